"""Packs a file's weights into an arena, tensor by tensor, with the thread team.

Owns the order of weights in memory.  Does not know how a block is packed (packing.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import groupby
from typing import TYPE_CHECKING

import numpy as np

from kernels_cpu import operands, table
from kernels_cpu.arena import Arena, view
from kernels_cpu.bill import vector_bytes
from kernels_cpu.plan import Matrix, Plan
from kernels_cpu.reading import Read, groups_at_once, read_ahead, reads_of
from kernels_cpu.team import Team
from models.formats import FORMATS

if TYPE_CHECKING:
    from models.gguf_file import ModelFile

CHUNK_BYTES = 256 * 1024
Progress = Callable[[int, int], None]


class Packer:
    """Places the weights of a plan and fills them in."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        matrices = plan.matrices.values()
        packing = {f"pack-{matrix.stored_format}" for matrix in matrices}
        requantizing = {f"requantize-{matrix.stored_format}" for matrix in matrices if matrix.is_requantized}
        self.kernels = sorted(packing | requantizing)
        self._matrices: dict[tuple[str, ...], int] = {}
        self._vectors: dict[str, int] = {}

    def place(self, arena: Arena) -> tuple[dict[tuple[str, ...], int], dict[str, int]]:
        """Addresses of all matrices and vectors."""
        self._matrices = {names: arena.take(matrix.size_bytes) for names, matrix in self.plan.matrices.items()}
        self._vectors = {name: arena.take(vector_bytes(count)) for name, count in self.plan.vectors.items()}
        return self._matrices, self._vectors

    def pack(self, file: ModelFile, team: Team, addresses: dict[str, int], progress: Progress | None) -> None:
        """Fills everything in, a few megabytes at a time, the next of which are read meanwhile."""
        for name, address in self._vectors.items():
            values = file.floats(name)
            values = (values.T if name in self.plan.turned else values).reshape(-1)
            view(address, (len(values),), np.float32)[:] = values
        total = sum(file.tensors[name].size_bytes for names in self._matrices for name in names)
        done = 0
        places = list(self._reads(file))
        rows_of = read_ahead(file, [read for read, _, _ in places])
        for matrix, run in groupby(places, lambda place: place[1]):
            runner = _Runner(matrix, team, addresses)
            for _, _, out in run:
                rows = next(rows_of)
                runner.run(rows, out)
                done += rows.size
                if progress:
                    progress(done, total)
        file.check_unchanged()

    def _reads(self, file: ModelFile) -> Iterator[tuple[Read, Matrix, int]]:
        """What is read, in order: for which matrix, and where its first group goes."""
        for names, matrix in self.plan.matrices.items():
            for idx, name in enumerate(names):
                out = self._matrices[names] + idx * matrix.group_bytes
                for read in reads_of(name, file.tensors[name].row_bytes, matrix):
                    yield read, matrix, out + read.group_idx * matrix.group_bytes * len(names)


class _Runner:
    """Packs rows of one matrix (or of the two that alternate), with the team."""

    def __init__(self, matrix: Matrix, team: Team, addresses: dict[str, int]) -> None:
        self._matrix, self._team, self._addresses = matrix, team, addresses
        self._stored = matrix.as_stored
        self._zeros = np.zeros(512, np.uint8)
        # What is packed and then requantised: a read's worth of groups, in the file's own format.
        num_groups = groups_at_once(matrix) if matrix.is_requantized else 0
        self._between = np.zeros(num_groups * self._stored.group_bytes + 64, np.uint8)

    def run(self, raw: np.ndarray, out: int) -> None:
        """Packs rows (uint8 [rows, row_bytes]), the first of which begins a group, from address `out` on."""
        matrix, stride = self._matrix, self._matrix.group_bytes * len(self._matrix.names)
        if not matrix.is_requantized:
            self._pack(raw, out, stride)
            return
        num_groups = -(-len(raw) // matrix.lanes)
        between = -(-self._between.ctypes.data // 64) * 64
        if len(raw) % matrix.lanes:
            self._between[:] = 0  # lanes past the last row hold nothing
        self._pack(raw, between, self._stored.group_bytes)
        values = {
            "source": between,
            "source_group_bytes": self._stored.group_bytes,
            "num_pieces": matrix.blocks_per_row,
            "out": out,
            "group_stride": stride,
        }
        self._in_chunks(operands.REQUANTIZE, f"requantize-{matrix.stored_format}", values, num_groups)

    def _pack(self, raw: np.ndarray, out: int, stride: int) -> None:
        stored = self._stored
        values = {
            "source": raw.ctypes.data,
            "row_bytes": raw.shape[-1],
            "num_rows": len(raw),
            "source_blocks": stored.num_columns // FORMATS[stored.format_name].block_elements,
            "out": out,
            "group_stride": stride,
            "zeros": self._zeros.ctypes.data,
        }
        self._in_chunks(operands.PACK, f"pack-{stored.format_name}", values, -(-len(raw) // stored.lanes))

    def _in_chunks(self, layout: operands.Layout, kernel: str, values: dict[str, int], num_groups: int) -> None:
        """Runs one kernel over all groups of rows."""
        per_chunk = max(1, CHUNK_BYTES // self._matrix.group_bytes)
        words = {"num_groups": num_groups, "groups_per_chunk": per_chunk, **values}
        block = np.array(layout.fill({name: words[name] for name in layout.names}), np.int64)
        steps = np.zeros((3, table.STEP_BYTES // 8), np.int64)
        self._team.keep(steps)
        start = -(-steps.ctypes.data // 64) * 64
        words = view(start, (2, table.STEP_BYTES // 8), np.int64)
        words[0, 0] = 1
        row = words[1]
        row[table.KERNEL // 8] = self._addresses[kernel]
        row[table.OPERANDS // 8] = block.ctypes.data
        row[table.FIXED // 8] = -(-num_groups // per_chunk)
        row[table.WAITS // 8] = 1
        row[table.DONE_AT // 8] = start + table.STEP_BYTES + table.DONE
        self._team.run(start)
