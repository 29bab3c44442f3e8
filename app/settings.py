"""Choices that outlive a command: the settings file and the TANDEM_ variables.

Owns where they lie and how they are read: flags beat the environment, the environment beats the file.  The keys are
the flags' long names with underscores.  Does not know flags (options.py) or what a value is good for.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from app.errors import SettingsError
from app.options import OPTIONS, SAMPLING_OPTIONS, Option
from app.preferences import Preferences
from app.settings_file import PRESETS_TABLE

PREFIX = "TANDEM_"
CONFIG_VARIABLE = "TANDEM_CONFIG"
DEBUG_VARIABLE = "TANDEM_DEBUG"
_OTHER_VARIABLES = (CONFIG_VARIABLE, DEBUG_VARIABLE)
_FILE_NAME = "settings.toml"
_KEYS_TABLE = "keys"
_TRUE = ("1", "true", "yes", "on")
_FALSE = ("", "0", "false", "no", "off")
_KIND_TEXTS = {int: "a whole number", float: "a number", bool: "true or false", str: "a text", tuple: "a list of texts"}


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What file and environment say.  warnings: sentences for stderr.

    keys: the keys that the file's table [keys] gives to commands of the chat, by the command's name.  presets: values
    of the tables [presets.NAME], by that name.
    """

    preferences: Preferences
    path: Path
    warnings: tuple[str, ...]
    keys: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    presets: Mapping[str, Mapping[str, object]] = field(default_factory=dict)


def settings_path(environment: Mapping[str, str] = os.environ) -> Path:
    """TANDEM_CONFIG, or settings.toml in the user's folder for settings."""
    if text := environment.get(CONFIG_VARIABLE):
        return Path(text).expanduser()
    from platformdirs import user_config_path

    return user_config_path("tandem", appauthor=False) / _FILE_NAME


def load_settings(environment: Mapping[str, str] = os.environ) -> Settings:
    """Read both.  Raises SettingsError for a damaged file or a value of the wrong kind; unknown keys only warn."""
    path = settings_path(environment)
    content = _read_file(path, is_required=bool(environment.get(CONFIG_VARIABLE)))
    from_file, unknown_keys = _file_preferences(content, path)
    from_environment, unknown_names = _environment_preferences(environment)
    known_keys = [option.key for option in OPTIONS]
    known_names = [*_OTHER_VARIABLES, *(_variable(option) for option in OPTIONS)]
    warnings = [
        warning
        for warning in (
            _unknown(f"{path} has", unknown_keys, known_keys),
            _unknown("The environment has", unknown_names, known_names),
        )
        if warning is not None
    ]
    return Settings(
        preferences=from_environment.over(from_file),
        path=path,
        warnings=tuple(warnings),
        keys=_keys_of(content.get(_KEYS_TABLE, {}), path),
        presets=_presets_of(content.get(PRESETS_TABLE, {}), path),
    )


def _presets_of(tables: object, path: Path) -> dict[str, dict[str, object]]:
    """The tables [presets.NAME], each with values of the options that a preset may hold; others are left out."""
    if not isinstance(tables, dict) or not all(isinstance(table, dict) for table in tables.values()):
        raise SettingsError(f"{path}: {PRESETS_TABLE} holds what is no table; expected [{PRESETS_TABLE}.NAME].")
    options = {option.key: option for option in SAMPLING_OPTIONS}
    return {
        name: {
            key: value_of_kind(value, options[key], f"{path}, preset {name}")
            for key, value in table.items()
            if key in options
        }
        for name, table in tables.items()
    }


def _keys_of(table: object, path: Path) -> dict[str, tuple[str, ...]]:
    """The table [keys]: a key, or a list of keys, for each name; an empty text or list stands for no key."""
    if not isinstance(table, dict):
        raise SettingsError(f"{path}: {_KEYS_TABLE} is {table!r}; expected a table, as in [{_KEYS_TABLE}].")
    keys: dict[str, tuple[str, ...]] = {}
    for name, value in table.items():
        texts = [value] if isinstance(value, str) else value
        if not (isinstance(texts, list) and all(isinstance(text, str) for text in texts)):
            raise SettingsError(f"{path}: the key of {name} is {value!r}; expected {_KIND_TEXTS[tuple]}.")
        keys[name] = tuple(text for text in texts if text.strip())
    return keys


def _read_file(path: Path, *, is_required: bool) -> Mapping[str, object]:
    import tomllib

    try:
        with open(path, "rb") as file:
            return tomllib.load(file)
    except (FileNotFoundError, NotADirectoryError) as error:
        if not is_required:
            return {}
        raise SettingsError(f"{path} (from {CONFIG_VARIABLE}) does not exist.") from error
    except OSError as error:
        raise SettingsError(f"The settings file {path} can't be read: {error.strerror}.") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingsError(
            f"The settings file {path} is no valid TOML: {error}.", hint="mend that place, or move the file away."
        ) from error


def _file_preferences(content: Mapping[str, object], path: Path) -> tuple[Preferences, list[str]]:
    options = {option.key: option for option in OPTIONS}
    values = {key: value_of_kind(value, options[key], str(path)) for key, value in content.items() if key in options}
    return Preferences(**values), [key for key in content if key not in (*options, _KEYS_TABLE, PRESETS_TABLE)]


def value_of_kind(value: object, option: Option, where: str) -> Any:
    """A TOML or JSON value as the option's kind; a single text may stand for a list of one.

    where: what it stands in, for the message.  Raises SettingsError.
    """
    if option.kind is tuple:
        texts = [value] if isinstance(value, str) else value
        if isinstance(texts, list) and all(isinstance(text, str) for text in texts):
            return tuple(texts)
    elif option.kind is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    elif isinstance(value, option.kind) and isinstance(value, bool) == (option.kind is bool):
        return value
    raise SettingsError(f"{where}: {option.key} is {value!r}; expected {_KIND_TEXTS[option.kind]}.")


def _environment_preferences(environment: Mapping[str, str]) -> tuple[Preferences, list[str]]:
    options = {_variable(option): option for option in OPTIONS}
    values = {
        option.key: _of_text(environment[name], option, name)
        for name, option in options.items()
        if environment.get(name)
    }
    unknown = [name for name in environment if name.startswith(PREFIX) and name not in (*options, *_OTHER_VARIABLES)]
    return Preferences(**values), unknown


def _of_text(text: str, option: Option, name: str) -> Any:
    readers: dict[type, Callable[[str], object]] = {
        int: int,
        float: float,
        bool: _truth,
        str: str,
        tuple: lambda text: (text,),
    }
    try:
        return readers[option.kind](text)
    except ValueError as error:
        raise SettingsError(f"{name} is {text!r}; expected {_KIND_TEXTS[option.kind]}.") from error


def _truth(text: str) -> bool:
    if text.lower() in _TRUE:
        return True
    if text.lower() in _FALSE:
        return False
    raise ValueError(text)


def _variable(option: Option) -> str:
    return PREFIX + option.key.upper()


def _unknown(where: str, unknown: list[str], known: list[str]) -> str | None:
    """One sentence for all keys that mean nothing, each with the nearest that does."""
    if not unknown:
        return None
    told = []
    for key in unknown:
        near = difflib.get_close_matches(key, known, 1, cutoff=0.6)
        told.append(f"{key!r} (did you mean {near[0]}?)" if near else repr(key))
    return f"{where} unknown keys that are ignored: {', '.join(told)}."
