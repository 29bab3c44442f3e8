"""Packs a file's weights into an arena, tensor by tensor, with the thread team.

Owns the order of weights in memory.  Does not know how a block is packed (packing.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import numpy as np

from kernels_cpu import operands, table
from kernels_cpu.arena import Arena, view
from kernels_cpu.packed_formats import FLOAT_FORMATS
from kernels_cpu.plan import Matrix, Plan, vector_bytes
from kernels_cpu.team import Team
from models.formats import FORMATS

if TYPE_CHECKING:
    from models.gguf_file import ModelFile

CHUNK_BYTES = 256 * 1024
READ_BYTES = 8 << 20
Progress = Callable[[int, int], None]


class Packer:
    """Places the weights of a plan and fills them in."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.kernels = sorted({f"pack-{matrix.format_name}" for matrix in plan.matrices.values()})
        self._matrices: dict[tuple[str, ...], int] = {}
        self._vectors: dict[str, int] = {}

    def place(self, arena: Arena) -> tuple[dict[tuple[str, ...], int], dict[str, int]]:
        """Addresses of all matrices and vectors."""
        self._matrices = {names: arena.take(matrix.size_bytes) for names, matrix in self.plan.matrices.items()}
        self._vectors = {name: arena.take(vector_bytes(count)) for name, count in self.plan.vectors.items()}
        return self._matrices, self._vectors

    def pack(self, file: ModelFile, team: Team, addresses: dict[str, int], progress: Progress | None) -> None:
        """Fills everything in, a few megabytes at a time."""
        for name, address in self._vectors.items():
            values = file.floats(name).reshape(-1)
            view(address, (len(values),), np.float32)[:] = values
        total = sum(file.tensors[name].size_bytes for names in self._matrices for name in names)
        done = 0
        for names, matrix in self.plan.matrices.items():
            for idx, name in enumerate(names):
                out = self._matrices[names] + idx * matrix.group_bytes
                for rows, group_idx in _read(file, name, matrix):
                    to = out + group_idx * matrix.group_bytes * len(names)
                    self._pack_rows(rows, matrix, to, team, addresses[f"pack-{matrix.format_name}"])
                    done += rows.size
                    if progress:
                        progress(done, total)
        file.check_unchanged()

    def _pack_rows(self, raw: np.ndarray, matrix: Matrix, out: int, team: Team, kernel: int) -> None:
        """Packs rows (uint8 [rows, row_bytes]), the first of which begins a group, from address `out` on."""
        num_groups = -(-len(raw) // matrix.lanes)
        zeros = np.zeros(512, np.uint8)
        per_chunk = max(1, CHUNK_BYTES // matrix.group_bytes)
        source = FORMATS[matrix.format_name]
        columns = (
            matrix.num_columns if matrix.format_name in FLOAT_FORMATS else matrix.num_columns // source.block_elements
        )
        values = operands.PACK.fill(
            {
                "source": raw.ctypes.data,
                "row_bytes": raw.shape[-1],
                "num_rows": len(raw),
                "source_blocks": columns,
                "out": out,
                "group_stride": matrix.group_bytes * len(matrix.names),
                "groups_per_chunk": per_chunk,
                "zeros": zeros.ctypes.data,
            }
        )
        block = np.array(values, np.int64)
        steps = np.zeros((3, table.STEP_BYTES // 8), np.int64)
        team.keep(steps)
        start = -(-steps.ctypes.data // 64) * 64
        words = view(start, (2, table.STEP_BYTES // 8), np.int64)
        words[0, 0] = 1
        row = words[1]
        row[table.KERNEL // 8] = kernel
        row[table.OPERANDS // 8] = block.ctypes.data
        row[table.FIXED // 8] = -(-num_groups // per_chunk)
        row[table.WAITS // 8] = 1
        row[table.DONE_AT // 8] = start + table.STEP_BYTES + table.DONE
        team.run(start)


def _read(file: ModelFile, name: str, matrix: Matrix) -> Iterator[tuple[np.ndarray, int]]:
    """The rows of a tensor in runs of whole groups, and the group that each begins with; one buffer for all."""
    row_bytes = file.tensors[name].row_bytes
    at_once = min(max(1, READ_BYTES // (row_bytes * matrix.lanes)), matrix.num_groups)
    buffer = np.empty((at_once * matrix.lanes, row_bytes), np.uint8)
    for group_idx in range(0, matrix.num_groups, at_once):
        first = group_idx * matrix.lanes
        rows = buffer[: min(len(buffer), matrix.num_rows - first)]
        file.read_rows(name, first, rows)
        yield rows, group_idx
