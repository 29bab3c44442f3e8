"""What is kept of the chat's settings for the next time, and the presets.

Owns what there is before anybody kept a preset. The file is `app/settings_file.py`'s.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from app.settings_file import Value, save_preset, save_values

BUILT_IN_PRESETS: Mapping[str, Mapping[str, object]] = {
    "usual": {},
    "exact": {"temp": 0.0},
    "lively": {"temp": 1.1, "top_p": 1.0, "min_p": 0.1},
    "brief": {"system": "Answer in one or two sentences."},
}


class SettingsKeeper(Protocol):
    """Where settings are kept. Both raise SettingsError."""

    def save(self, values: Mapping[str, Value]) -> None:
        """Keeps these values; None takes one out."""
        ...

    def save_preset(self, name: str, values: Mapping[str, Value] | None) -> None:
        """Keeps a preset in place of the one of that name; None takes it away."""
        ...


class FileKeeper:
    """Keeps settings in the user's settings file."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def save(self, values: Mapping[str, Value]) -> None:
        """Writes them."""
        save_values(self._path, values)

    def save_preset(self, name: str, values: Mapping[str, Value] | None) -> None:
        """Writes it."""
        save_preset(self._path, name, values)
