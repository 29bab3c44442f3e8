"""The values in a GGUF header: a bounds-checked cursor, and metadata that is decoded when it is asked for.

Owns the value types, their limits, and the reading of strings and arrays.  Does not know tensors or what any key means.

Source of the layout: the GGUF specification (ggml/docs/gguf.md).  A string is a uint64 length and that many bytes; an
array is a uint32 element type, a uint64 count and the elements.

Opening a file steps over arrays without decoding them; numbers cost nothing then, strings one length each.
"""
from __future__ import annotations

import mmap
import struct
from abc import ABC, abstractmethod
from array import array
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from models.errors import FileError
from models.mapped_file import MappedFile

MetadataValue: TypeAlias = str | int | float | bool | list[Any] | np.ndarray

MAX_NAME_BYTES = 65535  # of a key, by the specification; also applied to tensor names
MAX_STRING_BYTES = 4 << 20
MAX_STRINGS = 1 << 21  # in all arrays of a file; the largest vocabularies have 0.3 million tokens, 0.5 million merges
MAX_NESTED_ARRAYS = 1 << 16
MAX_NESTING = 4
LIST_ELEMENTS = 1024
"""Arrays of up to that many numbers come as lists, longer ones as NumPy arrays."""

_DAMAGED = "the file is damaged or was not made by a current converter."
_BOOL, _STRING, _ARRAY = 7, 8, 9
_TYPE_NAMES = (
    "uint8", "int8", "uint16", "int16", "uint32", "int32", "float32", "bool", "string", "array", "uint64", "int64", "float64",
)
_NUMBERS: Mapping[int, struct.Struct] = {
    number: struct.Struct("<" + code)
    for number, code in {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "B", 10: "Q", 11: "q", 12: "d"}.items()
}
_LENGTH = struct.Struct("<Q")
_STRIDE = 256  # strings stepped over before looking at what to give back
_RELEASE_BYTES = 8 << 20


class UnreadArray(ABC):
    """An array that has been stepped over."""

    __slots__ = ()

    @abstractmethod
    def read(self) -> MetadataValue: ...


@dataclass(frozen=True, kw_only=True, slots=True)
class _NumberArray(UnreadArray):
    file: MappedFile
    place: str
    element_type: int
    count: int
    start: int

    def read(self) -> MetadataValue:
        number = _NUMBERS[self.element_type]
        raw = self.file.bytes_at(self.start, self.count * number.size)
        values = raw.view(np.dtype(number.format)).copy()
        if self.element_type == _BOOL:
            if (values > 1).any():
                raise FileError(f"{self.file.label}: {self.place} holds booleans that are neither 0 nor 1: the file is damaged.")
            values = values.astype(np.bool_)
        return values.tolist() if self.count <= LIST_ELEMENTS else values


@dataclass(frozen=True, kw_only=True, slots=True)
class _StringArray(UnreadArray):
    file: MappedFile
    start: int
    end: int
    lengths: array[int]

    def read(self) -> MetadataValue:
        """All strings through one decode: the length in front of each is overwritten with one NUL to split at."""
        if not self.lengths:
            return []
        region = self.file.bytes_at(self.start, self.end - self.start).copy()
        sizes = np.frombuffer(self.lengths, np.uint32).astype(np.int64) + _LENGTH.size
        begins = np.cumsum(sizes) - sizes
        is_kept = np.ones(region.size, np.bool_)
        for byte_idx in range(1, _LENGTH.size):
            is_kept[begins + byte_idx] = False
        region[begins] = 0
        joined = region[is_kept].tobytes()
        if joined.count(0) == len(self.lengths):
            return joined[1:].decode("utf-8", "surrogateescape").split("\0")
        # Some string holds a NUL itself: one by one.
        data = region.tobytes()
        return [
            data[begin + _LENGTH.size : begin + size].decode("utf-8", "surrogateescape")
            for begin, size in zip(begins.tolist(), sizes.tolist(), strict=True)
        ]


@dataclass(frozen=True, kw_only=True, slots=True)
class _NestedArray(UnreadArray):
    elements: tuple[UnreadArray, ...]

    def read(self) -> MetadataValue:
        return [element.read() for element in self.elements]


class Metadata(Mapping[str, MetadataValue]):
    """Keys and values of a header.  Arrays are decoded on first access, so read what you need before closing the file."""

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


class Cursor:
    """Reads a header front to back.  Every method checks against the file before it reads, and names `place` when it fails."""

    def __init__(self, file: MappedFile, cut_hint: str) -> None:
        self._file = file
        self._map: mmap.mmap = file.map
        self._size_bytes = file.size_bytes
        self._cut_hint = cut_hint
        self._strings_left = MAX_STRINGS
        self._nested_left = MAX_NESTED_ARRAYS
        self.position = 0

    def fail(self, place: str, problem: str) -> FileError:
        """The error to raise: where and what."""
        return FileError(f"{self._file.label}: {place} {problem}")

    def need(self, size_bytes: int, place: str) -> None:
        """FileError unless that many bytes are left."""
        left = self._size_bytes - self.position
        if size_bytes > left:
            raise self.fail(
                place,
                f"at byte {self.position:,} needs {size_bytes:,} bytes, but the file ends after {self._size_bytes:,} bytes, "
                f"{left:,} further on. {self._cut_hint}",
            )

    def unsigned32(self, place: str) -> int:
        return int(self._number(_NUMBERS[4], place))

    def unsigned64(self, place: str) -> int:
        return int(self._number(_LENGTH, place))

    def string(self, place: str, *, limit_bytes: int) -> str:
        length = self.unsigned64(f"the length of {place}")
        if length > limit_bytes:
            raise self.fail(place, f"claims to be {length:,} bytes long, more than the {limit_bytes:,} it may have: {_DAMAGED}")
        self.need(length, place)
        start = self.position
        self.position += length
        return self._map[start : self.position].decode("utf-8", "surrogateescape")

    def value(self, place: str) -> MetadataValue | UnreadArray:
        """A typed value; an array is only stepped over."""
        value_type = self.unsigned32(f"the type of {place}")
        if value_type == _STRING:
            return self.string(f"the text of {place}", limit_bytes=MAX_STRING_BYTES)
        if value_type == _ARRAY:
            return self._array(place, nesting=1)
        number = _NUMBERS.get(value_type)
        if number is None:
            raise self.fail(place, f"has the unknown value type {value_type}, expected 0 to {len(_TYPE_NAMES) - 1}: {_DAMAGED}")
        value = self._number(number, f"the {_TYPE_NAMES[value_type]} of {place}")
        if value_type != _BOOL:
            return value
        if value > 1:
            raise self.fail(place, f"is a boolean of value {value}, expected 0 or 1: {_DAMAGED}")
        return value == 1

    def _number(self, number: struct.Struct, place: str) -> int | float:
        self.need(number.size, place)
        value = number.unpack_from(self._map, self.position)[0]
        self.position += number.size
        return value

    def _array(self, place: str, *, nesting: int) -> UnreadArray:
        element_type = self.unsigned32(f"the element type of {place}")
        count = self.unsigned64(f"the count of {place}")
        if element_type == _STRING:
            return self._strings(count, place)
        if element_type == _ARRAY:
            return self._nested(count, place, nesting=nesting)
        number = _NUMBERS.get(element_type)
        if number is None:
            raise self.fail(place, f"is an array of the unknown value type {element_type}, expected 0 to {len(_TYPE_NAMES) - 1}: {_DAMAGED}")
        self.need(count * number.size, f"{place} (an array of {count:,} x {_TYPE_NAMES[element_type]})")
        start = self.position
        self.position += count * number.size
        return _NumberArray(file=self._file, place=place, element_type=element_type, count=count, start=start)

    def _nested(self, count: int, place: str, *, nesting: int) -> UnreadArray:
        if nesting == MAX_NESTING:
            raise self.fail(place, f"is an array of arrays more than {MAX_NESTING} levels deep: {_DAMAGED}")
        if count > self._nested_left:
            raise self.fail(place, f"claims to hold {count:,} arrays, more than the {MAX_NESTED_ARRAYS:,} a file may have: {_DAMAGED}")
        self._nested_left -= count
        self.need(count * (4 + _LENGTH.size), f"{place} (an array of {count:,} arrays)")
        return _NestedArray(elements=tuple(self._array(place, nesting=nesting + 1) for _ in range(count)))

    def _strings(self, count: int, place: str) -> UnreadArray:
        if count > self._strings_left:
            raise self.fail(place, f"claims to hold {count:,} strings, more than the {MAX_STRINGS:,} a file may have: {_DAMAGED}")
        self._strings_left -= count
        self.need(count * _LENGTH.size, f"{place} (an array of {count:,} strings)")
        start = self.position
        lengths: array[int] = array("I")
        released = start
        while len(lengths) < count:
            self._step_over_strings(min(_STRIDE, count - len(lengths)), lengths, place)
            if self.position - released > _RELEASE_BYTES:
                self._file.release(released, self.position - released)
                released = self.position
        return _StringArray(file=self._file, start=start, end=self.position, lengths=lengths)

    def _step_over_strings(self, count: int, lengths: array[int], place: str) -> None:
        unpack, buffer, append = _LENGTH.unpack_from, self._map, lengths.append
        position, last = self.position, self._size_bytes - _LENGTH.size
        for _ in range(count):
            if position > last:
                break
            length = unpack(buffer, position)[0]
            if length > MAX_STRING_BYTES:
                break
            position += length + _LENGTH.size
            append(length)
        else:
            if position <= self._size_bytes:
                self.position = position
                return
        if position > self._size_bytes:
            position -= lengths.pop() + _LENGTH.size
        self.position = position
        self.string(f"string {len(lengths):,} of {place}", limit_bytes=MAX_STRING_BYTES)  # says what is wrong with it
