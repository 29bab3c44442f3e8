"""The values in a GGUF header: their types, and metadata whose arrays are decoded when they are asked for.

Owns the value types and the decoding of arrays.  Does not find or check anything in a file: gguf_cursor.py does, and
leaves arrays here whose place and size are sure.
"""

from __future__ import annotations

import struct
from abc import ABC, abstractmethod
from array import array
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from models.errors import FileError, quoted
from models.file_reader import FileReader

MetadataValue: TypeAlias = str | int | float | bool | list[Any] | np.ndarray

LIST_ELEMENTS = 1024
"""Arrays of up to that many numbers come as lists, longer ones as NumPy arrays."""

BOOL, STRING, ARRAY = 7, 8, 9
NUMBERS: Mapping[int, tuple[str, struct.Struct]] = {
    0: ("uint8", struct.Struct("<B")),
    1: ("int8", struct.Struct("<b")),
    2: ("uint16", struct.Struct("<H")),
    3: ("int16", struct.Struct("<h")),
    4: ("uint32", struct.Struct("<I")),
    5: ("int32", struct.Struct("<i")),
    6: ("float32", struct.Struct("<f")),
    BOOL: ("bool", struct.Struct("<B")),
    10: ("uint64", struct.Struct("<Q")),
    11: ("int64", struct.Struct("<q")),
    12: ("float64", struct.Struct("<d")),
}
"""Name and encoding of the value types that are numbers, by their number in GGUF files."""

LENGTH_BYTES = 8
"""A string is its length as uint64 and that many bytes."""


def shown_value(value: MetadataValue) -> str:
    """The value for a message: short, on one line, escaped."""
    match value:
        case str():
            return quoted(value)
        case list() | np.ndarray():
            return f"an array of {len(value):,}"
        case _:
            return repr(value)


class UnreadArray(ABC):
    """An array that has been stepped over."""

    __slots__ = ()

    @abstractmethod
    def read(self) -> MetadataValue:
        """Decodes the elements.  FileError when the file has been closed."""


@dataclass(frozen=True, kw_only=True, slots=True)
class NumberArray(UnreadArray):
    file: FileReader
    place: str
    element_type: int
    count: int
    start: int

    def read(self) -> MetadataValue:
        number = NUMBERS[self.element_type][1]
        values = self.file.bytes_at(self.start, self.count * number.size).view(np.dtype(number.format))
        if self.element_type == BOOL:
            if (values > 1).any():
                raise FileError(
                    f"{self.file.label}: {self.place} holds booleans other than 0 and 1: the file is damaged."
                )
            values = values.astype(np.bool_)
        return values.tolist() if self.count <= LIST_ELEMENTS else values


@dataclass(frozen=True, kw_only=True, slots=True)
class StringArray(UnreadArray):
    file: FileReader
    start: int
    end: int
    lengths: array[int]

    def read(self) -> MetadataValue:
        """All strings through one decode: the length in front of each is overwritten with one NUL to split at."""
        if not self.lengths:
            return []
        region = self.file.bytes_at(self.start, self.end - self.start)
        sizes = np.frombuffer(self.lengths, np.uint32).astype(np.int64) + LENGTH_BYTES
        begins = np.cumsum(sizes) - sizes
        is_kept = np.ones(region.size, np.bool_)
        for byte_idx in range(1, LENGTH_BYTES):
            is_kept[begins + byte_idx] = False
        region[begins] = 0
        joined = region[is_kept].tobytes()
        if joined.count(0) == len(self.lengths):
            return joined[1:].decode("utf-8", "surrogateescape").split("\0")
        # Some string holds a NUL itself: one by one.
        data = region.tobytes()
        return [
            data[begin + LENGTH_BYTES : begin + size].decode("utf-8", "surrogateescape")
            for begin, size in zip(begins.tolist(), sizes.tolist(), strict=True)
        ]


@dataclass(frozen=True, kw_only=True, slots=True)
class NestedArray(UnreadArray):
    elements: tuple[UnreadArray, ...]

    def read(self) -> MetadataValue:
        return [element.read() for element in self.elements]


class Metadata(Mapping[str, MetadataValue]):
    """Keys and values of a header.  Arrays are decoded on first access: read what you need before closing the file."""

    def __init__(self, values: Mapping[str, MetadataValue | UnreadArray]) -> None:
        self._values = dict(values)

    def __getitem__(self, key: str) -> MetadataValue:
        value = self._values[key]
        if isinstance(value, UnreadArray):
            value = self._values[key] = value.read()
        return value

    def __contains__(self, key: object) -> bool:
        return key in self._values

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)
