"""What this machine gives at most: bytes read from memory and multiply-adds, with a number of threads.

Owns the arena that is read, a thread team for each count, and the sizes of the measurements.  Works through the same
kernel cache, executor and huge-page arenas as models do.  Does not know models or what the limits are compared with.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from kernels_cpu import operands, table
from kernels_cpu.arena import Arena, view
from kernels_cpu.isa import choose
from kernels_cpu.kernel_cache import KernelCache
from kernels_cpu.operands import Layout
from kernels_cpu.team import Team

READ_CHUNK_BYTES = 256 * 1024
COMPUTE_CHUNKS_A_THREAD = 8
COMPUTE_ROUNDS = 8_000  # about half a millisecond a chunk
STEPS_A_ROUND = 8
READS, COMPUTES = 8, 8

KERNELS = ("probe-read", "probe-multiply", "probe-add")

Progress = Callable[[int, int], None]


@dataclass(frozen=True, kw_only=True)
class CpuLimits:
    """The best of a few short measurements.

    read_bytes_per_s: a plain read of memory that no cache holds.  byte_multiply_adds_per_s: dot products of bytes in
    registers, as products do them; float_multiply_adds_per_s: fused multiply-adds of float32 in registers.
    """

    read_bytes_per_s: float
    byte_multiply_adds_per_s: float
    float_multiply_adds_per_s: float


class LimitsProbe:
    """Measures as often as it is asked to.  One thread at a time uses it; close it when done."""

    def __init__(self, folder: Path, isa: str, arena_bytes: int, progress: Progress | None = None) -> None:
        """folder: where compiled kernels are kept; arena_bytes: what is read, several times the last cache."""
        self.isa = choose(isa)
        self._kernels = KernelCache(folder, self.isa)
        self._teams: dict[int, Team] = {}
        self._arenas: list[Arena] = []
        try:
            self._addresses = self._kernels.load([*KERNELS, "executor-run", "executor-work"], progress)
            self._num_chunks = max(1, arena_bytes // READ_CHUNK_BYTES)
            self._data = self._take(self._num_chunks * READ_CHUNK_BYTES)
            # Written, or the system would show one page of zeros everywhere; numbers that add up without denormals.
            view(self._data, (self._num_chunks * READ_CHUNK_BYTES // 4,), np.float32)[:] = 1.0
            self._table = self._take(2 * table.STEP_BYTES)
            self._operands = self._take(256)
            self._results = self._take(64 * max(self._num_chunks, 1024))
        except BaseException:
            self.close()
            raise

    def measure(self, threads: int) -> CpuLimits:
        """Takes about a tenth of a second on an idle machine."""
        team = self._team(threads)
        read_bytes = self._num_chunks * READ_CHUNK_BYTES
        read = {"data": self._data, "chunk_bytes": READ_CHUNK_BYTES, "out": self._results}
        compute = {"rounds": COMPUTE_ROUNDS, "out": self._results}
        chunks = min(1024, COMPUTE_CHUNKS_A_THREAD * threads)
        byte_lanes, float_lanes = 4 * self.isa.lanes, self.isa.lanes
        steps = chunks * COMPUTE_ROUNDS * operands.probe_chains(self.isa.lanes) * STEPS_A_ROUND
        read_s = self._best(team, "probe-read", operands.PROBE_READ, read, self._num_chunks, READS)
        byte_s = self._best(team, "probe-multiply", operands.PROBE_COMPUTE, compute, chunks, COMPUTES)
        float_s = self._best(team, "probe-add", operands.PROBE_COMPUTE, compute, chunks, COMPUTES)
        return CpuLimits(
            read_bytes_per_s=read_bytes / read_s,
            byte_multiply_adds_per_s=steps * byte_lanes / byte_s,
            float_multiply_adds_per_s=steps * float_lanes / float_s,
        )

    def _best(self, team: Team, kernel: str, layout: Layout, values: dict[str, int], chunks: int, times: int) -> float:
        self._write_step(kernel, layout, values, chunks)
        elapsed_s = []
        for _ in range(times):
            start_s = time.perf_counter()
            team.run(self._table)
            elapsed_s.append(time.perf_counter() - start_s)
        team.settle()  # the table is written anew for the next kernel, perhaps for another team
        return min(elapsed_s)

    def _write_step(self, kernel: str, layout: Layout, values: dict[str, int], chunks: int) -> None:
        """A table of one step."""
        words = layout.fill(values)
        view(self._operands, (len(words),), np.int64)[:] = words
        rows = view(self._table, (2, table.STEP_BYTES // 8), np.int64)
        rows[:] = 0
        rows[0, 0] = 1
        row = rows[1]
        row[table.KERNEL // 8] = self._addresses[kernel]
        row[table.OPERANDS // 8] = self._operands
        row[table.FIXED // 8] = chunks
        row[table.WAITS // 8] = 1
        row[table.DONE_AT // 8] = self._table + table.STEP_BYTES + table.DONE

    def _team(self, threads: int) -> Team:
        if threads not in self._teams:
            self._teams[threads] = Team(self._addresses["executor-run"], self._addresses["executor-work"], threads)
        return self._teams[threads]

    def _take(self, size_bytes: int) -> int:
        arena = Arena(size_bytes, "the measurement of the machine's limits")
        self._arenas.append(arena)
        return arena.take(size_bytes)

    def close(self) -> None:
        """Ends the threads and gives the memory back.  May be called twice."""
        for team in self._teams.values():
            team.close()
        self._teams = {}
        for arena in self._arenas:
            arena.close()
        self._arenas = []
        self._kernels.close()
