"""Reads a file's weights a few megabytes at a time, one read ahead of whoever takes them.

Owns the cutting of tensors into reads, and the thread that reads.  Does not know what is done with the rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from kernels_cpu.plan import Matrix
from models.formats import FORMATS

if TYPE_CHECKING:
    from models.gguf_file import ModelFile

READ_BYTES = 8 << 20


@dataclass(frozen=True, kw_only=True)
class Read:
    """Rows of a tensor that are read together: whole groups of a matrix, from group `group_idx` on."""

    name: str
    first_row: int
    num_rows: int
    row_bytes: int
    group_idx: int

    @property
    def size_bytes(self) -> int:
        return self.num_rows * self.row_bytes


def groups_at_once(matrix: Matrix) -> int:
    """Groups of rows that are read together."""
    row_bytes = FORMATS[matrix.stored_format].row_bytes(matrix.num_columns)
    return min(max(1, READ_BYTES // (row_bytes * matrix.lanes)), matrix.num_groups)


def reads_of(name: str, row_bytes: int, matrix: Matrix) -> Iterator[Read]:
    """A tensor of a matrix, in runs of whole groups; each part of it begins a group."""
    num_rows, num_groups, num_parts = matrix.num_rows, matrix.groups_per_part, matrix.num_parts
    if num_rows % matrix.lanes == 0:  # no part ends within a group: all are one
        num_rows, num_groups, num_parts = num_rows * num_parts, num_groups * num_parts, 1
    at_once = min(groups_at_once(matrix), num_groups)
    for part in range(num_parts):
        for group_idx in range(0, num_groups, at_once):
            first = group_idx * matrix.lanes
            yield Read(
                name=name,
                first_row=part * num_rows + first,
                num_rows=min(at_once * matrix.lanes, num_rows - first),
                row_bytes=row_bytes,
                group_idx=part * num_groups + group_idx,
            )


def read_ahead(file: ModelFile, reads: Sequence[Read]) -> Iterator[np.ndarray]:
    """The rows of each read (uint8 [rows, row_bytes]), good until the next one is taken.  Errors as in read_rows.

    While one is used, the next is read: with two buffers for all, since fresh memory would cost as much as the reading.
    """
    buffers = [np.empty(max((read.size_bytes for read in reads), default=0), np.uint8) for _ in range(2)]

    def fill(idx: int) -> np.ndarray:
        read = reads[idx]
        rows = buffers[idx % 2][: read.size_bytes].reshape(read.num_rows, read.row_bytes)
        file.read_rows(read.name, read.first_row, rows)
        return rows

    with ThreadPoolExecutor(1, thread_name_prefix="tandem-read") as reader:
        coming = reader.submit(fill, 0) if reads else None
        for following in range(1, len(reads) + 1):
            assert coming is not None, "each read is asked for while the one before is used"
            rows = coming.result()
            coming = reader.submit(fill, following) if following < len(reads) else None
            yield rows
