"""Numbers in a file's metadata under one architecture's prefix, each checked when it is read.

Owns what is said of a value that is missing or makes no sense.  Does not know what a number is for.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from models.errors import ArchitectureError, quoted

MOST_VALUES = 1 << 24  # larger than any model's: beyond it a number is damage


class MetadataKeys:
    """Reads checked values under one architecture's prefix."""

    def __init__(self, metadata: Mapping[str, Any], architecture: str) -> None:
        self.metadata = metadata
        self.architecture = architecture

    def find(self, key: str) -> tuple[str, Any]:
        full_key = f"{self.architecture}.{key}"
        value = self.metadata.get(full_key)
        return full_key, value.tolist() if isinstance(value, np.ndarray) else value

    def integer(self, key: str, *, at_most: int = MOST_VALUES) -> int:
        value = self.optional_integer(key, at_most=at_most)
        if value is None:
            raise ArchitectureError(
                f"The file's metadata lacks {self.architecture}.{key}, a whole number that a model can't run without."
            )
        return value

    def optional_integer(self, key: str, *, at_least: int = 1, at_most: int = MOST_VALUES) -> int | None:
        """A whole number; a list is one where its items agree (some converters write a number for each layer)."""
        full_key, value = self.find(key)
        if value is None:
            return None
        if isinstance(value, list):
            if not value or any(item != value[0] for item in value):
                raise ArchitectureError(f"{full_key} differs from layer to layer, which Tandem can't run yet.")
            value = value[0]
        if isinstance(value, bool) or not isinstance(value, int) or not at_least <= value <= at_most:
            raise ArchitectureError(
                f"{full_key} is {shown(value)}; a whole number from {at_least} to {at_most} was expected."
            )
        return value

    def integers(self, key: str, num_layers: int) -> tuple[int, ...]:
        """A whole number for every layer that is run, or the one that all have."""
        full_key, value = self.find(key)
        if not isinstance(value, list) or len(set(map(str, value))) == 1:
            return (self.integer(key),)
        if len(value) < num_layers:
            raise ArchitectureError(
                f"{full_key} has {len(value)} items; one for each of the {num_layers} layers was expected."
            )
        return tuple(MetadataKeys({full_key: item}, self.architecture).integer(key) for item in value[:num_layers])

    def number(self, key: str, default: float) -> float:
        value = self.optional_number(key)
        return default if value is None else value

    def optional_number(self, key: str, *, at_least: float = 1e-6, at_most: float = 1e12) -> float | None:
        """A positive number; 0 means silence, as converters write it."""
        full_key, value = self.find(key)
        if value is None or value == 0:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float) or not at_least <= value <= at_most:
            raise ArchitectureError(
                f"{full_key} is {shown(value)}; a number from {at_least:g} to {at_most:g} was expected."
            )
        return float(value)


def shown(value: object) -> str:
    if isinstance(value, str):
        return quoted(value)
    return f"a list of {len(value)}" if isinstance(value, list) else repr(value)
