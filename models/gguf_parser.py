"""The header of a GGUF file: version, metadata, and where every tensor lies.

Owns the order of things in a header and every check of a tensor against its file.  Does not know splits, architectures
or what the tensors are for.

Source of the layout: the GGUF specification (ggml/docs/gguf.md), versions 2 and 3.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from models.errors import FileError, TensorError, quoted
from models.expanded_formats import EXPANDED_FORMATS
from models.file_guesses import FETCH_AGAIN, guess_from_content, guess_from_name
from models.file_reader import FileReader
from models.formats import BlockFormat, format_of
from models.gguf_cursor import MAX_NAME_BYTES, Cursor
from models.gguf_values import Metadata, MetadataValue, UnreadArray, shown_value

MAGIC = b"GGUF"
SUPPORTED_VERSIONS = (2, 3)
DEFAULT_ALIGNMENT = 32
MIN_ALIGNMENT = 8
MAX_ALIGNMENT = 1 << 20
MAX_KEYS = 1 << 16
MAX_TENSORS = 1 << 16
MAX_DIMENSIONS = 4
_FIXED_BYTES = 24  # magic, version and the two counts
_MIN_KEY_BYTES = 8 + 1 + 4 + 1  # length, one character, value type, one byte
_MIN_TENSOR_BYTES = 8 + 1 + 4 + 8 + 4 + 8  # length, one character, number of dimensions, one of them, type, offset


@dataclass(frozen=True, kw_only=True)
class TensorInfo:
    """A tensor of a file.

    shape is in NumPy order, slowest dimension first: (rows, columns) for a matrix, the reverse of what the file says.
    offset_bytes counts from the beginning of the file.  gap_bytes: that belong to others, behind each matrix but the
    last of a tensor of three dimensions.
    """

    name: str
    format: BlockFormat
    shape: tuple[int, ...]
    offset_bytes: int
    size_bytes: int
    gap_bytes: int = 0

    @property
    def num_columns(self) -> int:
        return self.shape[-1]

    @property
    def num_rows(self) -> int:
        """Rows of all matrices together: the product of all dimensions but the last."""
        return math.prod(self.shape[:-1])

    @property
    def row_bytes(self) -> int:
        return self.size_bytes // self.num_rows

    @property
    def end_bytes(self) -> int:
        return self.offset_bytes + self.size_bytes + self.gap_bytes * (self.shape[0] - 1 if self.gap_bytes else 0)

    def runs(self, first_row: int, num_rows: int) -> Iterator[tuple[int, int]]:
        """Where so many rows lie: runs without a gap, as (first byte, rows)."""
        rows_each = self.shape[-2] if self.gap_bytes else self.num_rows
        row, end = first_row, first_row + num_rows
        while row < end:
            count = min(end, (row // rows_each + 1) * rows_each) - row
            yield self.offset_bytes + row * self.row_bytes + row // rows_each * self.gap_bytes, count
            row += count


@dataclass(frozen=True, kw_only=True)
class Header:
    """What stands before the tensors' data, which begins data_offset_bytes into the file."""

    version: int
    metadata: Metadata
    tensors: tuple[TensorInfo, ...]
    data_offset_bytes: int


def parse_header(file: FileReader) -> Header:
    """Reads and checks the header.  FileError or TensorError for anything that does not fit the file."""
    cut_hint = guess_from_name(file.path.name) or FETCH_AGAIN
    version = _check_beginning(file, cut_hint)
    cursor = Cursor(file, position=8, cut_hint=cut_hint)
    num_tensors = cursor.unsigned64("the number of tensors")
    num_keys = cursor.unsigned64("the number of keys")
    _check_count(cursor, num_keys, MAX_KEYS, _MIN_KEY_BYTES, "keys")
    _check_count(cursor, num_tensors, MAX_TENSORS, _MIN_TENSOR_BYTES, "tensors")
    metadata = _read_metadata(cursor, num_keys)
    alignment = _alignment(cursor, metadata)
    entries = [_read_entry(cursor, tensor_idx) for tensor_idx in range(num_tensors)]
    data_offset = -(-cursor.position // alignment) * alignment
    tensors = tuple(_place(file, entry, data_offset, alignment) for entry in entries)
    _check_inside(file, tensors, cut_hint)
    _check_apart(file, tensors)
    return Header(version=version, metadata=metadata, tensors=tensors, data_offset_bytes=data_offset)


def _check_beginning(file: FileReader, cut_hint: str) -> int:
    """The version of a file that begins as it should."""
    first_bytes = file.bytes_at(0, min(64, file.size_bytes)).tobytes()
    if not first_bytes.startswith(MAGIC):
        guess = guess_from_name(file.path.name) or guess_from_content(first_bytes) or "Is it the right file?"
        found = quoted(first_bytes[:8].decode("latin-1"))
        raise FileError(f"{file.label} is not a GGUF file: it begins with {found}, expected 'GGUF'. {guess}")
    if file.size_bytes < _FIXED_BYTES:
        raise FileError(
            f"{file.label} ends inside its header: it has {file.size_bytes} bytes and needs at least {_FIXED_BYTES}. "
            f"{cut_hint}"
        )
    version = int.from_bytes(first_bytes[4:8], "little")
    if version in SUPPORTED_VERSIONS:
        return version
    if int.from_bytes(first_bytes[4:8], "big") in SUPPORTED_VERSIONS:
        raise FileError(f"{file.label} is a big-endian GGUF file, expected a little-endian one: look for that instead.")
    if version == 1:
        problem = "convert the original model again with a current converter"
    else:
        problem = "it is damaged, or newer than this program"
    raise FileError(f"{file.label} has GGUF version {version:,}, expected 2 or 3: {problem}.")


def _check_count(cursor: Cursor, count: int, limit: int, min_bytes: int, what: str) -> None:
    if count > limit:
        raise cursor.error("the header", f"claims {count:,} {what}, expected at most {limit:,}: the file is damaged.")
    cursor.need(count * min_bytes, f"the list of {count:,} {what}")


def _read_metadata(cursor: Cursor, num_keys: int) -> Metadata:
    values: dict[str, MetadataValue | UnreadArray] = {}
    for key_idx in range(num_keys):
        which = f"key {key_idx + 1} of {num_keys}"
        key = cursor.string(f"the name of {which}", limit_bytes=MAX_NAME_BYTES)
        if not key:
            raise cursor.error(which, "has an empty name: the file is damaged.")
        place = f"key {quoted(key)}"
        if key in values:
            raise cursor.error(place, "occurs twice: the file is damaged or was edited by a broken tool.")
        values[key] = cursor.value(place)
    return Metadata(values)


def _alignment(cursor: Cursor, metadata: Metadata) -> int:
    alignment = metadata.get("general.alignment", DEFAULT_ALIGNMENT)
    is_power_of_two = isinstance(alignment, int) and alignment > 0 and alignment & (alignment - 1) == 0
    if isinstance(alignment, int) and is_power_of_two and MIN_ALIGNMENT <= alignment <= MAX_ALIGNMENT:
        return alignment
    raise cursor.error(
        "key 'general.alignment'",
        f"is {shown_value(alignment)}, expected a power of two from {MIN_ALIGNMENT} to {MAX_ALIGNMENT:,}: the file is "
        "damaged.",
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class _Entry:
    """A tensor as the header states it: dimensions fastest first, offset from the beginning of the data."""

    name: str
    dimensions: tuple[int, ...]
    ggml_id: int
    offset_bytes: int


def _read_entry(cursor: Cursor, tensor_idx: int) -> _Entry:
    name = cursor.string(f"the name of tensor {tensor_idx + 1}", limit_bytes=MAX_NAME_BYTES)
    place = f"tensor {quoted(name)}"
    num_dimensions = cursor.unsigned32(f"the number of dimensions of {place}")
    if not 1 <= num_dimensions <= MAX_DIMENSIONS:
        raise cursor.error(
            place, f"claims {num_dimensions:,} dimensions, expected 1 to {MAX_DIMENSIONS}: the file is damaged."
        )
    dimensions = tuple(cursor.unsigned64(f"a dimension of {place}") for _ in range(num_dimensions))
    ggml_id = cursor.unsigned32(f"the type of {place}")
    offset = cursor.unsigned64(f"the offset of {place}")
    return _Entry(name=name, dimensions=dimensions, ggml_id=ggml_id, offset_bytes=offset)


def _place(file: FileReader, entry: _Entry, data_offset_bytes: int, alignment: int) -> TensorInfo:
    """The tensor with absolute offset and size, not yet compared with the size of the file."""
    place = f"{file.label}: tensor {quoted(entry.name)}"
    shape = entry.dimensions[::-1]
    if min(shape) < 1:
        raise TensorError(f"{place} has the shape {_shown(shape)}, expected no 0 in it: the file is damaged.")
    try:
        block_format = EXPANDED_FORMATS.get(entry.ggml_id) or format_of(entry.ggml_id)
        row_bytes = block_format.row_bytes(shape[-1])
    except TensorError as error:
        raise TensorError(f"{place} cannot be used. {error}") from error
    if entry.offset_bytes % alignment:
        raise TensorError(
            f"{place} has the offset {entry.offset_bytes:,}, expected a multiple of the alignment {alignment:,}: the "
            "file is damaged."
        )
    return TensorInfo(
        name=entry.name,
        format=block_format,
        shape=shape,
        offset_bytes=data_offset_bytes + entry.offset_bytes,
        size_bytes=math.prod(shape[:-1]) * row_bytes,
    )


def _check_inside(file: FileReader, tensors: Sequence[TensorInfo], cut_hint: str) -> None:
    outside = [tensor for tensor in tensors if tensor.end_bytes > file.size_bytes]
    if not outside:
        return
    first = min(outside, key=lambda tensor: tensor.offset_bytes)
    needed = max(tensor.end_bytes for tensor in outside)
    raise TensorError(
        f"{file.label} has {file.size_bytes:,} bytes but needs {needed:,}: {len(outside):,} of {len(tensors):,} "
        f"tensors are not complete, the first is {quoted(first.name)} ({first.format.name} {_shown(first.shape)}, "
        f"bytes {first.offset_bytes:,} to {first.end_bytes:,}). {cut_hint}"
    )


def _check_apart(file: FileReader, tensors: Sequence[TensorInfo]) -> None:
    """No name twice, no byte in two tensors."""
    names: set[str] = set()
    for tensor in tensors:
        if tensor.name in names:
            raise TensorError(f"{file.label}: tensor {quoted(tensor.name)} occurs twice: the file is damaged.")
        names.add(tensor.name)
    for before, after in pairwise(sorted(tensors, key=lambda tensor: tensor.offset_bytes)):
        if before.end_bytes > after.offset_bytes:
            raise TensorError(
                f"{file.label}: tensors {quoted(before.name)} (up to byte {before.end_bytes:,}) and "
                f"{quoted(after.name)} (from byte {after.offset_bytes:,}) overlap: the file is damaged."
            )


def _shown(shape: tuple[int, ...]) -> str:
    return f"[{' x '.join(f'{size:,}' for size in shape)}]"
