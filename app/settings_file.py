"""Writing the settings file: single values and presets, with everything else in it left as it is.

Owns the lines that are replaced, and the promise that the file reads as it was meant to: what was written is read back
before it takes the old file's place.  Does not know what a value is good for.
"""

from __future__ import annotations

import json
import os
import re
import tempfile
import tomllib
from collections.abc import Mapping
from pathlib import Path

from app.errors import SettingsError

PRESETS_TABLE = "presets"
Value = str | int | float | bool | tuple[str, ...] | None
"""None: the key is taken out."""

_HEADER = re.compile(r"\s*\[")


def save_values(path: Path, values: Mapping[str, Value]) -> None:
    """Sets these keys at the top of the file, which is made if it is missing.  Raises SettingsError."""
    text = _read(path)
    before = _parse(text, path)
    lines = _lines_of(text)
    for key, value in values.items():
        lines = _with_value(lines, key, value)
    expected = {key: value for key, value in before.items() if key not in values}
    expected |= {key: _plain(value) for key, value in values.items() if value is not None}
    _write(path, "\n".join(lines) + "\n" if lines else "", expected)


def save_preset(path: Path, name: str, values: Mapping[str, Value] | None) -> None:
    """Puts a table [presets.NAME] with these values in place of the one of that name; None takes it away."""
    text = _read(path)
    before = _parse(text, path)
    lines = _without_table(_lines_of(text), name)
    tables = before.get(PRESETS_TABLE, {})
    presets: dict[str, object] = dict(tables) if isinstance(tables, dict) else {}
    expected_presets = {known: table for known, table in presets.items() if known != name}
    if values is not None:
        kept = {key: value for key, value in values.items() if value is not None}
        lines += ["", f"[{PRESETS_TABLE}.{json.dumps(name)}]"] if lines else [f"[{PRESETS_TABLE}.{json.dumps(name)}]"]
        lines += [f"{key} = {_toml(value)}" for key, value in kept.items()]
        expected_presets[name] = {key: _plain(value) for key, value in kept.items()}
    expected = {key: value for key, value in before.items() if key != PRESETS_TABLE}
    if expected_presets:
        expected[PRESETS_TABLE] = expected_presets
    _write(path, "\n".join(lines) + "\n" if lines else "", expected)


def _lines_of(text: str) -> list[str]:
    """Lines as TOML has them: other line ends may stand within a text."""
    return text.removesuffix("\n").split("\n") if text else []


def _with_value(lines: list[str], key: str, value: Value) -> list[str]:
    """The lines with a key of the top table set, added behind the last of them, or taken out."""
    end = next((place for place, line in enumerate(lines) if _HEADER.match(line)), len(lines))
    pattern = re.compile(rf"\s*{re.escape(key)}\s*=")
    places = [place for place in range(end) if pattern.match(lines[place])]
    new = [] if value is None else [f"{key} = {_toml(value)}"]
    if places:
        return [*lines[: places[0]], *new, *lines[places[0] + 1 :]]
    while end and not lines[end - 1].strip():
        end -= 1
    return [*lines[:end], *new, *lines[end:]]


def _without_table(lines: list[str], name: str) -> list[str]:
    headers = {f"[{PRESETS_TABLE}.{text}]" for text in (json.dumps(name), name, f"'{name}'")}
    kept: list[str] = []
    is_inside = False
    for line in lines:
        if _HEADER.match(line):
            is_inside = line.strip() in headers
        if not is_inside:
            kept.append(line)
    while kept and not kept[-1].strip():
        kept.pop()
    return kept


def _toml(value: Value) -> str:
    """A value as TOML writes it: JSON's strings are TOML's, but for the delete character and half surrogates."""
    if isinstance(value, tuple):
        return f"[{', '.join(map(_toml, value))}]"
    if isinstance(value, str):
        storable = value.encode("utf-8", "replace").decode("utf-8")
        return json.dumps(storable, ensure_ascii=False).replace("\x7f", "\\u007f")
    return str(value).lower() if isinstance(value, bool) else repr(value)


def _plain(value: Value) -> object:
    return list(value) if isinstance(value, tuple) else value


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return ""
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"The settings file {path} can't be read: {error}.") from error


def _parse(text: str, path: Path) -> dict[str, object]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise SettingsError(f"The settings file {path} is no valid TOML, so nothing was written: {error}.") from error


def _write(path: Path, text: str, expected: Mapping[str, object]) -> None:
    try:
        if tomllib.loads(text) != expected:
            raise tomllib.TOMLDecodeError("its values would not be what was meant")
    except tomllib.TOMLDecodeError as error:
        raise SettingsError(
            f"The settings file {path} could not be changed line by line ({error}), so it was left as it is.",
            hint="change it by hand.",
        ) from error
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", encoding="utf-8", dir=path.parent, delete=False) as file:
            file.write(text)
        os.replace(file.name, path)
    except OSError as error:
        raise SettingsError(f"The settings file {path} can't be written: {error.strerror or error}.") from error
