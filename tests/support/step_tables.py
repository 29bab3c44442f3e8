"""Tables of steps whose result shows whether every chunk ran once and in its phase.

Owns a program for the executor that shuffles rows from buffer to buffer, phase by phase, and at the end adds them up:
a chunk that was left out, ran twice or ran before the phase it depends on was finished changes the result.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from kernels import Guarded, addresses, floats

from kernels_cpu import operands, table
from kernels_cpu.binding import OPERAND_BYTES, write_table
from kernels_cpu.operands import float_word
from kernels_cpu.step_pieces import HEADER, Step
from kernels_cpu.team import Team

Array = np.ndarray[Any, np.dtype[Any]]
WIDTH = 16


def make_team(level: str, num_threads: int) -> Team:
    """A team of a level's executor."""
    executor = addresses(level, "executor-run")
    return Team(executor["executor-run"], executor["executor-work"], num_threads)


class Shuffle:
    """Rows [rows, 16] that pass `phases` permutations; `total` sums up what came out, normalised, run by run."""

    def __init__(self, level: str, *, rows: int, phases: int, seed: int = 0) -> None:
        rng = np.random.default_rng(seed)
        self._buffers = [floats((rows, WIDTH)) for _ in range(phases + 1)]
        self._orders = [rng.permutation(rows).astype(np.int32) for _ in range(phases)]
        self._total_memory, self.total = floats((rows, WIDTH), 0.0)
        self._weight, self._count = np.ones(WIDTH, np.float32), np.array([rows])
        self._header = np.zeros(len(HEADER), np.int64)
        self._header[HEADER.index("num_tokens")] = rows
        steps = list(self._steps(rows))
        self.num_steps = len(steps)
        self._table = Guarded((len(steps) + 1) * table.STEP_BYTES)
        self._operands = Guarded(len(steps) * OPERAND_BYTES)
        kernels = addresses(level, "row-select")
        header = self._header.ctypes.data
        write_table(self._table.address, self._operands.address, steps, kernels, header)

    @property
    def address(self) -> int:
        """Of the table, for Team.run."""
        return self._table.address

    def _steps(self, rows: int) -> Iterator[Step]:
        """Each phase is two steps: the first rows, then the others."""
        cut = rows // 3
        for phase, order in enumerate(self._orders):
            source, target = self._buffers[phase][1], self._buffers[phase + 1][1]
            yield self._select(source, order, target, 0, fixed=cut)
            yield self._select(source, order, target, cut, fixed=rows - cut, waits=True)
        last = self._buffers[-1][1]
        values = {
            "x": last.ctypes.data,
            "x_stride": last.strides[0],
            "weight": self._weight.ctypes.data,
            "width": WIDTH,
            "epsilon": float_word(1e-6),
            "out": self.total.ctypes.data,
            "out_stride": self.total.strides[0],
            "add": 1,
            "single": 0,
            "double": 0,
            "num_blocks": 0,
            "count": self._count.ctypes.data,
            "heads": 1,
            "bias": 0,
            "own_bytes": 0,
            "is_centred": 0,
        }
        layout = operands.NORMALIZE
        yield Step(kernel="row-normalize", layout=layout, values=values, fixed=1, count="num_tokens", per_chunk=1)

    def _select(
        self, source: Array, order: Array, target: Array, first: int, *, fixed: int, waits: bool = False
    ) -> Step:
        values = {
            "x": source.ctypes.data,
            "x_stride": source.strides[0],
            "outputs": order.ctypes.data + 4 * first,
            "out": target.ctypes.data + first * target.strides[0],
            "out_stride": target.strides[0],
            "width": WIDTH,
        }
        return Step(kernel="row-select", layout=operands.SELECT, values=values, fixed=fixed, waits=waits)

    def feed(self, number: int) -> None:
        """New rows at the beginning; what the buffers hold of older ones becomes NaN."""
        for _, buffer in self._buffers:
            buffer[:] = np.nan
        self._buffers[0][1][:] = np.random.default_rng(number).standard_normal(self.total.shape)

    def is_right(self) -> bool:
        """Whether the rows that came out are those that went in, in the order of all permutations."""
        rows = self._buffers[0][1]
        for order in self._orders:
            rows = rows[order]
        for memory in (*(memory for memory, _ in self._buffers), self._total_memory, self._table, self._operands):
            memory.check()
        return bool((rows == self._buffers[-1][1]).all())

    def snapshot(self) -> Array:
        """Everything that chunks write."""
        return np.stack([*(buffer for _, buffer in self._buffers), self.total])
