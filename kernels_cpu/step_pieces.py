"""What the steps of all operations are made of: a step, the addresses it works on, and the pieces that several share.

Owns the words of the batch's header.  Works on addresses that binding.py took from its arenas.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from kernels_cpu import operands
from kernels_cpu.activations import Precision
from kernels_cpu.kv_layout import CacheTypes
from kernels_cpu.operands import Layout
from kernels_cpu.plan import Area, Plan
from models.program import Activation, Buffer, Rope

# product.SILU_GATE and so on
MODES: Mapping[Activation, int] = {"silu": 2, "gelu_tanh": 3, "clamped_swiglu": 4, "sigmoid": 5, "relu_squared": 6}
QUANTIZE_BLOCKS = 32


@dataclass(frozen=True, kw_only=True)
class Step:
    """chunks = fixed * ceil(count / per_chunk), or fixed when per_chunk is 0; `count` names a word of the header."""

    kernel: str
    layout: Layout
    values: Mapping[str, int]
    fixed: int
    count: str | None = None
    per_chunk: int = 0
    waits: bool = True


@dataclass(frozen=True, kw_only=True)
class Places:
    """Addresses of everything a step touches."""

    matrices: Mapping[tuple[str, ...], int]
    vectors: Mapping[str, int]
    floats: Mapping[str, int]
    records: Mapping[tuple[str, int], int]
    batch: Mapping[str, int]
    ropes: Mapping[Rope, int]
    caches: Mapping[int, int]
    partial: int
    table_row_bytes: int
    cache_types: CacheTypes

    @property
    def cache_names(self) -> str:
        """What follows a kernel's family where it depends on the cache's types."""
        return f"{self.cache_types.k.name}-{self.cache_types.v.name}"


HEADER = ("num_tokens", "num_outputs", "num_tiles", "spans", "attend_pieces", "combine_tokens", "num_pairs", "num_runs")


@dataclass(frozen=True, kw_only=True)
class StepPieces:
    """What the steps of a segment share: its plan, its addresses, how precise and for how many threads."""

    plan: Plan
    places: Places
    precision: Precision
    threads: int

    def step(self, kernel: str, layout: Layout, values: Mapping[str, int], fixed: int, count: str) -> Step:
        """So many chunks for each that is counted."""
        return Step(kernel=kernel, layout=layout, values=values, fixed=fixed, count=count, per_chunk=1)

    def word(self, name: str) -> int:
        """Address of a word of the batch's header."""
        return self.places.batch["header"] + 8 * HEADER.index(name)

    def area(self, buffer: Buffer) -> Area:
        """A buffer's rows and columns."""
        return self.plan.areas[buffer.name]

    def count_of(self, buffer: Buffer) -> str:
        """The word of the header that says how many rows a buffer has."""
        return "num_outputs" if self.area(buffer).is_output else "num_tokens"

    def vector(self, name: str | None) -> int:
        """Address of a bias or a norm, 0 where there is none."""
        return 0 if name is None else self.places.vectors[name]

    def record(self, buffer: Buffer, terms: int) -> int:
        """Address of a buffer's records, 0 where no product wants them."""
        return self.places.records.get((buffer.name, terms), 0)

    def floats(self, name: str, buffer: Buffer) -> dict[str, int]:
        """A buffer's address and stride, as two operands."""
        return {name: self.places.floats[buffer.name], f"{name}_stride": self.area(buffer).row_bytes}

    def floats_or_none(self, name: str, buffer: Buffer | None) -> dict[str, int]:
        """The same, zero where there is no buffer."""
        return {name: 0, f"{name}_stride": 0} if buffer is None else self.floats(name, buffer)

    def quantize(self, buffer: Buffer) -> Iterator[Step]:
        """Records of a buffer that was written as floats, where some product wants them."""
        if self.area(buffer).terms:
            yield self.round(buffer, self.count_of(buffer))

    def round(self, buffer: Buffer, count: str, rows_each: int = 1, rows: str | None = None) -> Step:
        """The step that writes a buffer's records.  rows: the word that holds the number of rows, if it isn't count."""
        area = self.area(buffer)
        values = {
            **self.floats("x", buffer),
            "width": buffer.width,
            "num_blocks": area.num_blocks,
            "blocks_per_chunk": QUANTIZE_BLOCKS,
            "single": self.record(buffer, 1),
            "double": self.record(buffer, 2),
            "count": self.word(rows or count),
        }
        pieces = -(-area.num_blocks // QUANTIZE_BLOCKS) * rows_each
        return Step(
            kernel="row-quantize", layout=operands.QUANTIZE, values=values, fixed=pieces, count=count, per_chunk=1
        )

    def gate_and_quantize(
        self, gate: Buffer, up: Buffer | None, activation: Activation, up_start: int = 0
    ) -> Iterator[Step]:
        """What becomes of gate and up in gate's place, and its records."""
        yield self.gate(gate, up, activation, self.count_of(gate), up_start=up_start)
        yield from self.quantize(gate)

    def gate(
        self, gate: Buffer, up: Buffer | None, activation: Activation, count: str, rows_each: int = 1, up_start: int = 0
    ) -> Step:
        """What becomes of gate and up, where they stand apart; rows_each: rows for each one that is counted."""
        values = {
            **self.floats("gate", gate), **self.floats_or_none("up", up), "width": gate.width,
            "mode": MODES[activation],
        }  # fmt: skip
        values["up"] += 4 * up_start
        return Step(kernel="row-gate", layout=operands.GATE, values=values, fixed=rows_each, count=count, per_chunk=1)
