"""What the engine is loaded and asked with: the model, the settings, and what may be had in their place.

Owns the preferences in force and the downloads. Knows neither the screen nor how an engine is loaded: a loader is made
for it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace

from app.chat.downloads import Download, Downloads
from app.chat.engine_port import EngineLoader, ModelFacts
from app.chat.model_port import Bill, ModelLine, ModelPlace, ModelShelf, ShelfFault
from app.chat.settings_fields import FIELDS, SettingField
from app.chat.settings_keeper import BUILT_IN_PRESETS, SettingsKeeper
from app.chat.template_fields import VariableField, variable_fields
from app.options import FILE_OPTIONS, LOAD_OPTIONS
from app.preferences import Preferences
from app.settings_file import Value

# Preferences that the engine learns only by being loaded anew.
_LOAD_KEYS = frozenset(option.key for option in LOAD_OPTIONS + FILE_OPTIONS) - {"offline"}
# What another model could not be loaded with, or answers wrongly with.
_OF_ONE_MODEL = ("draft_model", "lora", "chat_template", "chat_template_file")

MakeLoader = Callable[[Preferences], EngineLoader]


class ModelDesk:
    """Used from the screen's thread; `bill` and the shelf from any."""

    def __init__(
        self,
        *,
        shelf: ModelShelf,
        preferences: Preferences,
        make_loader: MakeLoader,
        keeper: SettingsKeeper,
        presets: Mapping[str, Mapping[str, object]] | None = None,
    ) -> None:
        """`preferences`: as the chat was begun. Where they name no model, none is loaded before one is chosen.

        `presets`: those that were kept; they go before the built-in ones of the same name.
        """
        self.shelf = shelf
        self.preferences = preferences
        self.presets: dict[str, Mapping[str, object]] = {**BUILT_IN_PRESETS, **(presets or {})}
        self.facts: ModelFacts | None = None
        self._kept = preferences
        self._keeper = keeper
        self.downloads = Downloads(shelf, self._ended)
        self.when_download_ended: Callable[[Download], None] | None = None
        self.pass_bytes: Callable[[int], int] | None = None
        self.variable_fields: tuple[VariableField, ...] = ()
        self.limit_bytes_per_s: float | None = None
        self._make_loader = make_loader

    @property
    def model(self) -> str:
        """What the user called the model; nothing where none was chosen yet."""
        return self.preferences.model or ""

    @property
    def loaded_name(self) -> str:
        """The same, of a model that is loaded."""
        return self.model if self.facts is not None else ""

    @property
    def loaded_bytes(self) -> int:
        """The memory that the loaded model will give back."""
        return sum(use.total_bytes for use in self.facts.memory) if self.facts is not None else 0

    def loader(self) -> EngineLoader | None:
        """What loads the model in force."""
        return self._make_loader(self.preferences) if self.model else None

    def local_names(self) -> tuple[str, ...]:
        """What can be loaded without a download; none where the folder can't be read."""
        try:
            return self.shelf.names_on_disk()
        except ShelfFault:
            return ()

    def take_facts(self, facts: ModelFacts | None) -> None:
        """Another model is loaded, or none while it is being loaded."""
        self.facts, self.pass_bytes, self.variable_fields = facts, None, ()

    def change_facts(self, facts: ModelFacts) -> None:
        """The model that is loaded computes elsewhere than before."""
        self.facts, self.pass_bytes = facts, None

    def take_variables(self, names: Sequence[str]) -> None:
        """What the loaded model's templates read, and the user may set."""
        self.variable_fields = variable_fields(names)

    @property
    def fields(self) -> tuple[SettingField, ...]:
        """What can be set: those of the model's template behind the other settings of their group."""
        names = self.facts.template_names if self.facts is not None else ()
        own = tuple(replace(field, choices=names) if field.key == "chat_template" else field for field in FIELDS)
        last = max((place for place, field in enumerate(FIELDS) if field.group == FIELDS[0].group), default=-1) + 1
        return (*own[:last], *self.variable_fields, *own[last:])

    def take_pass_bytes(self, pass_bytes: Callable[[int], int]) -> None:
        """What a pass of the loaded model moves, at a position."""
        self.pass_bytes = pass_bytes

    def take_limit(self, bytes_per_s: float) -> None:
        """What the memory gives at most."""
        self.limit_bytes_per_s = bytes_per_s

    def bill(self, line: ModelLine, preferences: Preferences | None = None) -> Bill:
        """What a model takes with these preferences, or with those in force. May take a second; raises ShelfFault."""
        return self.shelf.bill(line, preferences or self.preferences, freed_bytes=self.loaded_bytes)

    def own_line(self, preferences: Preferences | None = None) -> ModelLine:
        """The chosen model, as the shelf wants it: it is on the disk once it was loaded."""
        name = (preferences or self.preferences).model or ""
        return ModelLine(name=name, title="", place=ModelPlace.DISK, size_bytes=0)

    def keep(self, keys: frozenset[str] | None = None) -> tuple[str, ...]:
        """Keeps for the next time what was changed since the chat was begun, or these keys of it; returns them.

        Raises SettingsError.
        """
        changed = sorted(key for key in changed_keys(self._kept, self.preferences) if keys is None or key in keys)
        values = {key: getattr(self.preferences, key) for key in changed}
        self._keeper.save(values)
        self._kept = replace(self._kept, **values)
        return tuple(changed)

    def keep_preset(self, name: str, values: Mapping[str, Value]) -> None:
        """Keeps a preset. Raises SettingsError."""
        self._keeper.save_preset(name, values)
        self.presets[name] = values

    def is_own_preset(self, name: str) -> bool:
        """Whether the user kept it; of a built-in one's name too."""
        return name in self.presets and self.presets[name] != BUILT_IN_PRESETS.get(name)

    def forget_preset(self, name: str) -> None:
        """Takes a preset away; a built-in one of that name is there again. Raises SettingsError."""
        self._keeper.save_preset(name, None)
        self.presets.pop(name, None)
        if name in BUILT_IN_PRESETS:
            self.presets[name] = BUILT_IN_PRESETS[name]

    def _ended(self, download: Download) -> None:
        if self.when_download_ended is not None:
            self.when_download_ended(download)


def changed_keys(before: Preferences, after: Preferences) -> frozenset[str]:
    """The keys whose values differ."""
    return frozenset(field.name for field in fields(after) if getattr(before, field.name) != getattr(after, field.name))


def needs_load(before: Preferences, after: Preferences) -> bool:
    """Whether the engine has to be loaded anew."""
    return bool(changed_keys(before, after) & _LOAD_KEYS)


def left_behind(before: Preferences, after: Preferences) -> tuple[str, ...]:
    """What a change of the model took out of the preferences, by the names of its flags."""
    gone = [key for key in _OF_ONE_MODEL if getattr(before, key) is not None and getattr(after, key) is None]
    return tuple(f"--{key.replace('_', '-')}" for key in gone) if before.model != after.model else ()


def with_model(preferences: Preferences, name: str) -> Preferences:
    """The preferences with another model; what was named for the one before goes with it."""
    if name == preferences.model:
        return preferences
    return replace(preferences, model=name, **dict.fromkeys(_OF_ONE_MODEL))
