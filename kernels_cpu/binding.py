"""A segment of a program bound to the CPU: weights packed, buffers reserved, steps laid out; `run` computes a batch.

Owns the memory and the thread team of one model.  Does not know sequences, sampling or text.  Nothing is allocated
after `bind`: what `bill.make_bill` says is what is taken.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from kernels_cpu import kv_layout, table
from kernels_cpu.activations import Precision
from kernels_cpu.arena import Arena, view
from kernels_cpu.batch_arrays import batch_arrays
from kernels_cpu.bill import CpuBill, cache_sizes, make_bill, partial_bytes, rope_tables
from kernels_cpu.isa import Isa, choose
from kernels_cpu.kernel_cache import KernelCache
from kernels_cpu.plan import (  # fmt: skip
    MAX_SPLIT_CELLS,
    MAX_SPLIT_TOKENS,
    OPERAND_BYTES,
    CpuLimits,
    Plan,
)
from kernels_cpu.planning import make_plan
from kernels_cpu.shape_checks import MAX_TILE_ROWS
from kernels_cpu.step_pieces import HEADER, Places, Step
from kernels_cpu.steps import StepMaker
from kernels_cpu.team import Team
from kernels_cpu.weights import Packer
from models.program import Attend, Buffer, Rope
from models.segments import Segment

if TYPE_CHECKING:
    from models.gguf_file import ModelFile

Progress = Callable[[str, int, int], None]


@dataclass(frozen=True, kw_only=True)
class CpuOptions:
    """threads: of the team.  kernel_folder: where compiled kernels are kept.  requantize: see `plan.make_plan`."""

    threads: int
    activations: Precision
    isa: str
    kernel_folder: Path
    requantize: bool = False


def bill(segment: Segment, file: ModelFile, limits: CpuLimits, options: CpuOptions) -> CpuBill:
    """What `bind` will reserve, without reserving it."""
    plan = _plan(segment, file, limits, options)
    return make_bill(plan, segment, limits)


def _plan(segment: Segment, file: ModelFile, limits: CpuLimits, options: CpuOptions) -> Plan:
    isa = choose(options.isa)
    return make_plan(segment, file.tensors, limits, isa, options.activations, requantize=options.requantize)


def bind(
    segment: Segment, file: ModelFile, limits: CpuLimits, options: CpuOptions, progress: Progress | None = None
) -> CpuModel:
    """Compiles the kernels that the segment needs, packs the weights, reserves everything else.

    progress(what, done, total): "kernels" (compiled) and "weights" (bytes packed); an exception in it ends the binding.
    """
    return CpuModel(segment, file, limits, options, progress)


class CpuModel:
    """A bound segment.  One thread at a time calls `run`; `cancel` may come from any."""

    def __init__(
        self, segment: Segment, file: ModelFile, limits: CpuLimits, options: CpuOptions, progress: Progress | None
    ) -> None:
        self.segment, self.limits = segment, limits
        self.isa: Isa = choose(options.isa)
        self._arenas: list[Arena] = []
        self._team: Team | None = None
        self._kernels = KernelCache(options.kernel_folder, self.isa, workers=max(2, options.threads))
        try:
            plan = _plan(segment, file, limits, options)
            self.bill = make_bill(plan, segment, limits)
            self._build(plan, file, options, progress)
        except BaseException:
            self.close()
            raise

    @property
    def warnings(self) -> tuple[str, ...]:
        """What a person should know about the kernels."""
        return tuple(self._kernels.warnings)

    def _build(self, plan: Plan, file: ModelFile, options: CpuOptions, progress: Progress | None) -> None:
        packer = Packer(plan)
        weights = self._arena(self.bill.weights_bytes, "the weights")
        caches = self._arena(self.bill.kv_bytes, "the KV cache")
        workspace = self._arena(self.bill.workspace_bytes, "the workspace")
        matrices, vectors = packer.place(weights)
        places = self._place(plan, caches, workspace, matrices, vectors)
        maker = StepMaker(self.segment, plan, places, options.activations, options.threads)
        runs = [maker.of_run(run_idx) for run_idx in range(len(self.segment.runs))]
        names = [*packer.kernels, *(step.kernel for steps in runs for step in steps), "executor-run", "executor-work"]
        notify = (lambda done, total: progress("kernels", done, total)) if progress else None
        addresses = self._kernels.load(names, notify)
        self._team = Team(addresses["executor-run"], addresses["executor-work"], options.threads)
        packer.pack(
            file, self._team, addresses, (lambda done, total: progress("weights", done, total)) if progress else None
        )
        self._fill_ropes(places)
        self._tables = self._lay_out(plan, runs, addresses, workspace, places)
        self._prepare_views(plan, places)
        self.kv_page_bytes = {
            places.caches[idx]: self.limits.cache_types.page_bytes(layer.num_kv_heads, layer.head_dim)
            for idx, layer in self.segment.layers.items()
        }

    def _arena(self, size_bytes: int, purpose: str) -> Arena:
        arena = Arena(size_bytes, purpose)
        self._arenas.append(arena)
        return arena

    def _place(
        self, plan: Plan, caches: Arena, workspace: Arena, matrices: dict[tuple[str, ...], int], vectors: dict[str, int]
    ) -> Places:
        floats, records = {}, {}
        for name, area in plan.areas.items():
            floats[name] = workspace.take(area.float_bytes)
            for terms in sorted(area.terms):
                records[name, terms] = workspace.take(area.record_bytes(terms))
        arrays = batch_arrays(self.limits)
        return Places(
            matrices=matrices,
            vectors=vectors,
            floats=floats,
            records=records,
            batch={name: workspace.take(size) for name, size in arrays.sizes_bytes.items()},
            ropes={
                rope: workspace.take(4 * n * self.limits.context_size) for rope, n in rope_tables(self.segment).items()
            },
            caches={idx: caches.take(size) for idx, size in cache_sizes(self.segment, self.limits).items()},
            partial=workspace.take(partial_bytes(self.segment)),
            table_row_bytes=4 * arrays.table_row,
            cache_types=self.limits.cache_types,
        )

    def _fill_ropes(self, places: Places) -> None:
        """Cosines and sines of every position, once: in float64, then rounded."""
        for rope, address in places.ropes.items():
            angles = view(address, (self.limits.context_size, 2, rope.dimensions // 2), np.float32)
            turns = _frequencies(rope)
            for first in range(0, self.limits.context_size, 1024):
                part = angles[first : first + 1024]
                phase = np.arange(first, first + len(part))[:, None] * turns
                part[:, 0] = np.cos(phase) * rope.magnitude
                part[:, 1] = np.sin(phase) * rope.magnitude

    def _lay_out(
        self, plan: Plan, runs: list[list[Step]], addresses: dict[str, int], workspace: Arena, places: Places
    ) -> list[int]:
        """Writes the tables of steps and their operands; returns the tables' addresses, one for each run."""
        at = workspace.take((plan.num_steps + plan.num_tables) * table.STEP_BYTES)
        blocks = workspace.take(plan.num_steps * OPERAND_BYTES)
        tables = []
        for steps in runs:
            write_table(at, blocks, steps, addresses, places.batch["header"])
            tables.append(at)
            at += (len(steps) + 1) * table.STEP_BYTES
            blocks += len(steps) * OPERAND_BYTES
        return tables

    def _prepare_views(self, plan: Plan, places: Places) -> None:
        arrays, at = batch_arrays(self.limits), places.batch
        self._header = view(at["header"], (8,), np.int64)
        self._token_ids = view(at["token_ids"], (arrays.tokens,), np.int32)
        self._positions = view(at["positions"], (arrays.tokens,), np.int32)
        self._slots = view(at["slots"], (arrays.tokens,), np.int32)
        self._outputs = view(at["outputs"], (arrays.outputs,), np.int32)
        self._tiles = view(at["tiles"], (arrays.tiles, 3), np.int32)
        self._runs = view(at["runs"], (arrays.runs, 4), np.int32)
        self._page_tables = view(at["page_tables"], (self.limits.max_sequences, arrays.table_row), np.int32)
        program = self.segment.program
        self._hidden = self._rows_of(plan, places, program.hidden)
        self._logits = self._rows_of(plan, places, program.logits) if self.segment.has_head else None
        attends = [operation for operation in self.segment.operations if isinstance(operation, Attend)]
        heads = max((attend.num_heads // attend.cache.num_kv_heads for attend in attends), default=1)
        self._tile_tokens = max(1, MAX_TILE_ROWS // heads)
        self._experts_used = plan.experts_used
        self._kv_heads = max((layer.num_kv_heads for layer in self.segment.layers.values()), default=1)
        self._keeps_states = bool(self.segment.state_layers)

    def _rows_of(self, plan: Plan, places: Places, buffer: Buffer) -> np.ndarray:
        """A buffer's floats [rows, width]."""
        area = plan.areas[buffer.name]
        return view(places.floats[buffer.name], (area.rows, area.row_bytes // 4), np.float32)[:, : buffer.width]

    def run(
        self,
        token_ids: np.ndarray | None,
        positions: np.ndarray,
        slots: np.ndarray,
        page_tables: np.ndarray,
        outputs: np.ndarray,
        states: np.ndarray | None = None,
        hidden: np.ndarray | None = None,
        *,
        run_idx: int = 0,
    ) -> np.ndarray | None:
        """One run of the segment for a batch; the result is valid until the next one; None when it was cancelled.

        A run that takes tokens needs token_ids [T], another one hidden float32 [T, width].  One that gives logits
        returns them, float32 [outputs, vocabulary]; another returns the hidden state of every token, [T, width].
        states: int32 [max_sequences, 2], for each slot the state to go on from (-1: none) and the one to leave.
        """
        assert self._team is not None
        gives_logits = self.segment.gives_logits(run_idx)
        count, num_outputs = len(positions), len(outputs) if gives_logits else 0
        if self.segment.takes_tokens(run_idx):
            assert token_ids is not None, "a run with the embedding takes tokens"
            self._token_ids[:count] = token_ids
        else:
            assert hidden is not None, "a run without the embedding takes the hidden state"
            self._hidden[:count] = hidden
        self._positions[:count] = positions
        self._slots[:count] = slots
        self._outputs[:num_outputs] = outputs[:num_outputs]
        self._page_tables[: len(page_tables)] = page_tables
        num_tiles = self._cut_tiles(count)
        spans = self._spans(count, num_tiles)
        words = {
            "num_tokens": count,
            "num_outputs": num_outputs,
            "num_tiles": num_tiles,
            "spans": spans,
            "attend_pieces": num_tiles * max(spans, 1),
            "combine_tokens": count if spans else 0,
            "num_pairs": count * self._experts_used,
            "num_runs": self._cut_runs(count, states),
        }
        for idx, name in enumerate(HEADER):
            self._header[idx] = words[name]
        if not self._team.run(self._tables[run_idx], count if count <= MAX_SPLIT_TOKENS else None):
            return None
        if not gives_logits:
            return self._hidden[:count]
        assert self._logits is not None, "a run with the head has logits"
        return self._logits[:num_outputs]

    def _cut_tiles(self, count: int) -> int:
        """Runs of tokens of one sequence, at most a tile long."""
        if count == 1:
            self._tiles[0] = (0, 1, self._slots[0])
            return 1
        slots = self._slots[:count]
        edges = np.flatnonzero(np.diff(slots)) + 1
        num_tiles = 0
        for first, last in zip((0, *edges.tolist()), (*edges.tolist(), count), strict=True):
            for start in range(first, last, self._tile_tokens):
                self._tiles[num_tiles] = (start, min(self._tile_tokens, last - start), slots[start])
                num_tiles += 1
        return num_tiles

    def _cut_runs(self, count: int, states: np.ndarray | None) -> int:
        """Runs of all tokens of one sequence, for layers that keep a state."""
        if not self._keeps_states:
            return 0
        assert states is not None, "a program with states is told where they are"
        slots = self._slots[:count]
        firsts = np.concatenate(([0], np.flatnonzero(np.diff(slots)) + 1))
        runs = self._runs[: len(firsts)]
        runs[:, 0] = firsts
        runs[:, 1] = np.diff(np.append(firsts, count))
        runs[:, 2:] = states[slots[firsts]]
        return len(firsts)

    def _spans(self, count: int, num_tiles: int) -> int:
        """Into how many chunks a tile's keys are split: all spans when there are few tiles, else 0 (not split)."""
        spans = -(-(int(self._positions[:count].max()) + 1) // kv_layout.SPAN)
        is_short = spans == 1 or count > MAX_SPLIT_TOKENS or count * spans > MAX_SPLIT_CELLS
        assert self._team is not None
        return 0 if is_short or num_tiles * self._kv_heads >= 4 * self._team.num_threads else spans

    def copy_page(self, source: int, target: int) -> None:
        """Copies one page of every layer."""
        for cache, size in self.kv_page_bytes.items():
            ctypes.memmove(cache + target * size, cache + source * size, size)

    def cancel(self) -> None:
        """Stops the current run at its next step."""
        if self._team is not None:
            self._team.cancel()

    def clear_cancel(self) -> None:
        """Forgets a cancel that came between runs."""
        if self._team is not None:
            self._team.clear()

    def close(self) -> None:
        """Ends the threads and gives the memory back.  May be called twice."""
        if self._team is not None:
            self._team.close()
            self._team = None
        for name in [name for name, value in vars(self).items() if isinstance(value, np.ndarray)]:
            delattr(self, name)
        for arena in self._arenas:
            arena.close()
        self._arenas = []
        self._kernels.close()


def _frequencies(rope: Rope) -> np.ndarray:
    return np.array(rope.frequencies, np.float64)


def write_table(program: int, blocks: int, steps: list[Step], addresses: dict[str, int], header: int) -> None:
    """Writes steps as the executor reads them: the table at `program`, operands at `blocks`."""
    words = view(program, (len(steps) + 1, table.STEP_BYTES // 8), np.int64)
    words[:] = 0
    words[0, 0] = len(steps)
    first_of_phase = 0
    for idx, step in enumerate(steps):
        operands = blocks + idx * OPERAND_BYTES
        values = step.layout.fill(step.values)
        view(operands, (len(values),), np.int64)[:] = values
        row = words[idx + 1]
        row[table.KERNEL // 8] = addresses[step.kernel]
        row[table.OPERANDS // 8] = operands
        row[table.FIXED // 8] = step.fixed
        row[table.PER_CHUNK // 8] = step.per_chunk
        row[table.COUNT_AT // 8] = header + 8 * HEADER.index(step.count) if step.count else 0
        row[table.WAITS // 8] = int(step.waits)
        if step.waits:
            done = program + (idx + 1) * table.STEP_BYTES + table.DONE
            words[first_of_phase + 1 : idx + 2, table.DONE_AT // 8] = done
            first_of_phase = idx + 1
