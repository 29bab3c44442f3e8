"""The settings that can be changed in the chat: which, in which groups, how their values are read and shown.

Owns the table. Ranges are the runtime's, help texts those of the flags.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from app.errors import UsageError, report_of
from app.options import LOAD_OPTIONS, SAMPLING_OPTIONS, Option
from app.preferences import Preferences
from app.runtime_options import engine_options, generate_options
from app.settings_file import Value

_ANSWER_KEYS = ("system", "chat_template", "chat_template_kwargs", "predict", "seed")
_LEFT_OUT = ("model", "offline", "no_profile", "isa", *_ANSWER_KEYS)
CARD_KEYS = frozenset({"device", "gpu_layers", "n_cpu_moe", "vram_margin"})
_CHOICES = {
    "cache_type_k": ("f16", "q8_0", "q4_0"),
    "cache_type_v": ("f16", "q8_0", "q4_0"),
    "activations": ("fast", "balanced", "exact"),
    "spec": ("off", "ngram", "draft", "auto"),
    "mirostat": ("0", "2"),
    "draft_weights": ("q4_0", "stored"),
}
_DEFAULTS = {
    "system": "none",
    "chat_template": "the model's first",
    "chat_template_file": "the model's own",
    "chat_template_kwargs": "none",
    "cache_type_k": "f16",
    "cache_type_v": "f16",
    "activations": "balanced",
    "spec": "auto, with a draft model",
    "draft_model": "the catalog's, if it is here",
    "draft_weights": "q4_0",
    "lora": "none",
    "logit_bias": "none",
    "banned_string": "none",
    "stop": "none",
    "top_n_sigma": "off",
    "samplers": "the usual order",
    "dry_sequence_breaker": "line ends, colons, quotes, stars",
}
_TOLD_DEFAULT = re.compile(r"\(([^()]*)\)$")
_SHOWN_LENGTH = 60
_QUOTES = ("'", '"')


@dataclass(frozen=True, kw_only=True)
class SettingField:
    """One setting. `choices` are all its values where they are few; then it is stepped through, not typed."""

    key: str
    title: str
    help: str
    group: str
    option: Option
    choices: tuple[str, ...] = ()

    @property
    def is_list(self) -> bool:
        """Whether its value is several texts."""
        return self.option.kind is tuple

    @property
    def default(self) -> str:
        """What holds where nothing was chosen."""
        told = _TOLD_DEFAULT.search(self.help)
        return _DEFAULTS.get(self.key) or (told.group(1) if told else "default")

    def value_in(self, preferences: Preferences) -> object:
        """What was chosen for it; None: nothing."""
        return getattr(preferences, self.key)

    def put_in(self, value: object, preferences: Preferences) -> Preferences:
        """The preferences with this value; None takes it out."""
        return replace(preferences, **{self.key: value})


def _fields() -> tuple[SettingField, ...]:
    options = {option.key: option for option in LOAD_OPTIONS + SAMPLING_OPTIONS}
    groups = dict.fromkeys(_ANSWER_KEYS, "Answers")
    groups |= {option.key: "Model and memory" for option in LOAD_OPTIONS if option.key not in _LEFT_OUT}
    groups |= {option.key: "Sampling" for option in SAMPLING_OPTIONS if option.key not in _LEFT_OUT}
    return tuple(
        SettingField(
            key=key,
            title=_title(options[key]),
            help=options[key].help,
            group=group,
            option=options[key],
            choices=_CHOICES.get(key, ()),
        )
        for key, group in groups.items()
        if key in options
    )


def _title(option: Option) -> str:
    """What its flag is called."""
    return next((name for name in option.names if name.startswith("--")), option.key).lstrip("-")


FIELDS: tuple[SettingField, ...] = _fields()
_OF_A_MODEL = ("chat_template", "chat_template_kwargs")  # which a preset for any model leaves alone
PRESET_KEYS = ("system", *(option.key for option in SAMPLING_OPTIONS if option.key not in ("system", *_OF_A_MODEL)))


def field_of(word: str, fields: Sequence[SettingField] = FIELDS) -> SettingField | None:
    """The setting of this key, title or flag."""
    key = _key(word)
    for field in fields:
        if key in (field.key, _key(field.title)) or field in FIELDS and key in map(_key, field.option.names):
            return field
    return None


def _key(word: str) -> str:
    return word.strip().lstrip("-").replace("-", "_").lower()


def shown_value(field: SettingField, preferences: Preferences) -> str:
    """The value as it stands in the list."""
    value = field.value_in(preferences)
    if value is None:
        return field.default
    text = " ".join(typed_list(value).split() if isinstance(value, tuple) else str(value).split())
    return text if len(text) <= _SHOWN_LENGTH else text[: _SHOWN_LENGTH - 1] + "…"


def typed_value(field: SettingField, preferences: Preferences) -> str:
    """The value as it is edited, on one line: nothing stands for the default, \\n for a new line."""
    value = field.value_in(preferences)
    if isinstance(value, tuple):
        return typed_list(value)
    return "" if value is None else str(value).replace("\n", "\\n")


def typed_list(texts: Sequence[str]) -> str:
    """Several texts on one line, as `read_list` reads them."""
    return " ".join(map(_quoted, texts)).replace("\n", "\\n")


def _quoted(text: str) -> str:
    if text and not any(char.isspace() or char in _QUOTES for char in text):
        return text
    runs = [run for run in re.split('("+)', text) if run]  # each mark is quoted by the other
    return "".join(f"'{run}'" if run.startswith('"') else f'"{run}"' for run in runs) or '""'


def read_list(text: str) -> tuple[str, ...]:
    """The texts between blanks; one with blanks in it stands in quotation marks. Raises ValueError for half a pair."""
    reader = shlex.shlex(text, posix=True, punctuation_chars="")
    reader.whitespace_split, reader.commenters, reader.escape = True, "", ""
    return tuple(word.replace("\\n", "\n") for word in reader)


def with_text(field: SettingField, text: str, preferences: Preferences) -> Preferences:
    """The preferences with what was typed. Raises UsageError with a sentence where that makes no sense."""
    changed = field.put_in(_read(field, text), preferences)
    if (fault := fault_of(changed)) is not None:
        raise UsageError(fault)
    return changed


def fault_of(preferences: Preferences) -> str | None:
    """Why nothing can be loaded or answered with these, as one sentence."""
    try:
        engine_options(preferences)
        generate_options(preferences)
    except Exception as error:
        return report_of(error).message
    return None


def stepped(field: SettingField, step: int, preferences: Preferences) -> Preferences:
    """The preferences with the choice before or after; the default is one of them."""
    values: list[str | None] = [None, *field.choices]
    now = field.value_in(preferences)
    place = values.index(None if now is None else str(now)) if now is None or str(now) in values else 0
    value = values[(place + step) % len(values)]
    return with_text(field, value or "", preferences)


def preset_of(preferences: Preferences) -> dict[str, Value]:
    """What a preset keeps: the system prompt and how answers are sampled."""
    chosen: dict[str, Value] = {key: getattr(preferences, key) for key in PRESET_KEYS}
    return {key: value for key, value in chosen.items() if value is not None}


def with_preset(values: Mapping[str, object], preferences: Preferences) -> Preferences:
    """The preferences with a preset's values in place of all that a preset keeps."""
    return replace(preferences, **{key: values.get(key) for key in PRESET_KEYS})


def _read(field: SettingField, text: str) -> object:
    if field.is_list:
        try:
            return read_list(text) or None
        except ValueError:
            raise UsageError(f"{field.title}: a quotation mark is open in {ascii(text)}.") from None
    text = text.replace("\\n", "\n").strip()
    if not text:
        return None
    if field.choices and text not in field.choices:
        raise UsageError(f"{field.title} is one of {', '.join(field.choices)}, not {ascii(text)}.")
    try:
        return field.option.kind(text)
    except ValueError:
        kind = "a whole number" if field.option.kind is int else "a number"
        raise UsageError(f"{field.title} is {kind}, not {ascii(text)}.") from None
