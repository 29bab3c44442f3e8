"""What the loaded model's chat template reads besides the conversation, as settings: whether it thinks, how hard.

Owns how such a value lies in the preferences: as one member of the JSON object of `--chat-template-kwargs`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, replace

from app.chat.settings_fields import FIELDS, SettingField
from app.preferences import Preferences
from app.runtime_options import read_json_object

_OBJECT = next(field for field in FIELDS if field.key == "chat_template_kwargs")
_PREFIX = f"{_OBJECT.key}."
_THINKING = ("enable_thinking", "thinking")
_CHOICES = {
    **dict.fromkeys(_THINKING, ("true", "false")),
    "reasoning_effort": ("low", "medium", "high"),
}
_HELP = {
    **dict.fromkeys(_THINKING, "whether the model thinks before it answers"),
    "reasoning_effort": "how long the model thinks before it answers",
}


@dataclass(frozen=True, kw_only=True)
class VariableField(SettingField):
    """A variable of the template. Its value is shown and typed as JSON, a text also without quotation marks."""

    @property
    def name(self) -> str:
        """As the template calls it."""
        return self.key.removeprefix(_PREFIX)

    def value_in(self, preferences: Preferences) -> object:
        """What was chosen for it, as text; None: nothing."""
        chosen = read_json_object(preferences.chat_template_kwargs)
        if self.name not in chosen:
            return None
        value = chosen[self.name]
        return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)

    def put_in(self, value: object, preferences: Preferences) -> Preferences:
        """The preferences with this value among the others; None takes it out."""
        chosen = read_json_object(preferences.chat_template_kwargs)
        chosen.pop(self.name, None)
        if value is not None:
            chosen[self.name] = _parsed(str(value))
        return replace(preferences, chat_template_kwargs=json.dumps(chosen, ensure_ascii=False) if chosen else None)

    @property
    def default(self) -> str:
        """What holds where nothing was chosen."""
        return "as the model's template has it"


def variable_fields(names: Iterable[str]) -> tuple[VariableField, ...]:
    """A setting for each of the template's variables, those about thinking first."""
    return tuple(
        VariableField(
            key=_PREFIX + name,
            title=name,
            help=_HELP.get(name, "a variable of the model's chat template"),
            group=_OBJECT.group,
            option=_OBJECT.option,
            choices=_CHOICES.get(name, ()),
        )
        for name in sorted(names, key=lambda name: (name not in _HELP, name))
    )


def thinking_field(fields: Iterable[VariableField]) -> VariableField | None:
    """The switch for thinking; None where the template has none."""
    return next((field for field in fields if field.name in _THINKING), None)


def _parsed(text: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text
