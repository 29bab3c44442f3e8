"""Lowers a program to the executor's steps: kernel names, operands, chunks, and where threads wait.

Owns the cutting into chunks.  Works on addresses that binding.py took from its arenas.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from kernels_cpu import operands
from kernels_cpu.activations import Precision, terms_for
from kernels_cpu.expert_steps import ExpertSteps
from kernels_cpu.kv_layout import CacheTypes
from kernels_cpu.operands import Layout, float_word
from kernels_cpu.plan import Area, Matrix, Plan, up_buffer
from kernels_cpu.recurrence_steps import RecurrenceSteps
from kernels_cpu.row_steps import row_step
from models.program import (
    Activation,
    Attend,
    Buffer,
    Embed,
    Gate,
    GatedProject,
    KvLayer,
    MixExperts,
    Normalize,
    Operation,
    Project,
    Rope,
    RotateAndStore,
    Scale,
    SelectOutputs,
    SoftCap,
    WeighRows,
    buffers_of,
)  # fmt: skip
from models.recurrence import Convolve, DeltaRule, Separate
from models.segments import Segment

# product.SILU_GATE and so on
MODES: Mapping[Activation, int] = {"silu": 2, "gelu_tanh": 3, "clamped_swiglu": 4, "sigmoid": 5}
STORE, ADD = 0, 1
# Packed weights of a chunk.  Long runs keep the memory's own prefetching going: two threads decoded Qwen2.5 1.5B in
# 38 ms a token with chunks of 48 KB and in 22 with up to 1 MB (2026-11-29).  Each thread gets a few chunks of a matrix.
LEAST_CHUNK_BYTES, MOST_CHUNK_BYTES = 96 * 1024, 1024 * 1024
CHUNKS_A_THREAD = 3
TOKEN_BLOCK_BYTES = 256 * 1024  # activation records of a chunk's tokens
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


class StepMaker:
    """Makes the steps of a segment, operation by operation."""

    def __init__(self, segment: Segment, plan: Plan, places: Places, precision: Precision, threads: int) -> None:
        self.segment, self.plan, self.places = segment, plan, places
        self.precision: Precision = precision
        self.threads = threads

    def of_run(self, run_idx: int) -> list[Step]:
        """The steps of a run in order."""
        operations = self.segment.runs[run_idx]
        steps = [step for idx, one in enumerate(operations) for step in self._steps(one, operations[idx + 1 :])]
        if self.segment.takes_tokens(run_idx):
            return steps
        return [*self.quantize(self.segment.program.hidden), *steps]

    def _steps(self, operation: Operation, following: Sequence[Operation]) -> Iterator[Step]:
        match operation:
            case Embed():
                yield self._embed(operation)
                yield from self.quantize(operation.out)
            case Normalize():
                yield self._normalize(operation)
                if operation.heads is not None:
                    yield from self.quantize(operation.out)
            case Project():
                yield from self._project(operation, following)
            case GatedProject():
                yield from self._gated(operation)
            case Gate():
                yield from self._gate(operation.gate, operation.up, operation.activation, operation.up_start)
            case MixExperts():
                yield from ExpertSteps(self, operation).all()
                yield from self.quantize(operation.out)
            case RotateAndStore():
                yield self._rotate(operation)
            case Attend():
                yield from self._attend(operation)
            case Convolve() | DeltaRule() | Separate():
                yield from RecurrenceSteps(self).of(operation)
            case SelectOutputs():
                yield self._select(operation)
            case SoftCap() | Scale() | WeighRows():
                yield row_step(self, operation)
                yield from self.quantize(operation.x)

    def step(self, kernel: str, layout: Layout, values: Mapping[str, int], fixed: int, count: str) -> Step:
        """So many chunks for each that is counted."""
        return Step(kernel=kernel, layout=layout, values=values, fixed=fixed, count=count, per_chunk=1)

    # --- pieces ---------------------------------------------------------------------------------------
    def word(self, name: str) -> int:
        """Address of a word of the batch's header."""
        return self.places.batch["header"] + 8 * HEADER.index(name)

    def _area(self, buffer: Buffer) -> Area:
        return self.plan.areas[buffer.name]

    def count_of(self, buffer: Buffer) -> str:
        """The word of the header that says how many rows a buffer has."""
        return "num_outputs" if self._area(buffer).is_output else "num_tokens"

    def vector(self, name: str | None) -> int:
        return 0 if name is None else self.places.vectors[name]

    def record(self, buffer: Buffer, terms: int) -> int:
        return self.places.records.get((buffer.name, terms), 0)

    def floats(self, name: str, buffer: Buffer) -> dict[str, int]:
        return {name: self.places.floats[buffer.name], f"{name}_stride": self._area(buffer).row_bytes}

    def _floats_or_none(self, name: str, buffer: Buffer | None) -> dict[str, int]:
        return {name: 0, f"{name}_stride": 0} if buffer is None else self.floats(name, buffer)

    # --- operations ---------------------------------------------------------------------------------------
    def _embed(self, operation: Embed) -> Step:
        matrix = self.plan.matrix_of(operation.weight)
        values = {
            "weights": self.places.matrices[matrix.names],
            "num_blocks": matrix.blocks_per_row,
            "group_bytes": matrix.group_bytes,
            "token_ids": self.places.batch["token_ids"],
            "scale": float_word(operation.scale),
            **self.floats("out", operation.out),
        }
        return Step(
            kernel=f"embed-{matrix.format_name}",
            layout=operands.EMBED,
            values=values,
            fixed=1,
            count="num_tokens",
            per_chunk=1,
        )

    def _normalize(self, operation: Normalize) -> Step:
        area, count, heads = self._area(operation.out), self.count_of(operation.out), operation.heads or 1
        values = {
            **self.floats("x", operation.x),
            **self.floats("out", operation.out),
            "weight": self.vector(operation.weight),
            "width": operation.x.width // heads,
            "epsilon": float_word(operation.epsilon),
            "add": int(operation.add),
            "single": self.record(operation.out, 1),
            "double": self.record(operation.out, 2),
            "num_blocks": area.num_blocks if area.terms and operation.heads is None else 0,
            "count": self.word(count),
            "heads": heads,
        }
        return Step(
            kernel="row-normalize", layout=operands.NORMALIZE, values=values, fixed=heads, count=count, per_chunk=1
        )

    def quantize(self, buffer: Buffer) -> Iterator[Step]:
        """Records of a buffer that was written as floats, where some product wants them."""
        if self._area(buffer).terms:
            yield self.round(buffer, self.count_of(buffer))

    def round(self, buffer: Buffer, count: str, rows_each: int = 1, rows: str | None = None) -> Step:
        """The step that writes a buffer's records.  rows: the word that holds the number of rows, if it isn't count."""
        area = self._area(buffer)
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

    def product(
        self,
        matrix: Matrix,
        x: Buffer,
        out: Buffer,
        bias: int,
        mode: int,
        terms: int,
        waits: bool,
        scale: float | None = None,
    ) -> Step:
        count = self.count_of(x)
        fair_bytes = matrix.size_bytes // (CHUNKS_A_THREAD * self.threads)
        chunk_bytes = min(max(fair_bytes, LEAST_CHUNK_BYTES), MOST_CHUNK_BYTES)
        per_chunk = max(1, chunk_bytes // (matrix.group_bytes * len(matrix.names)))
        row_chunks = -(-matrix.num_groups // per_chunk)
        per_chunk = -(-matrix.num_groups // row_chunks)
        values = {
            "weights": self.places.matrices[matrix.names],
            "group_bytes": matrix.group_bytes,
            **self.floats("out", out),
            "num_groups": matrix.num_groups,
            "groups_per_chunk": per_chunk,
            "bias": bias,
            "scale": float_word(1.0 if scale is None else scale),
            "mode": mode,
            "count": self.word(count),
        }
        if matrix.is_float:
            token_bytes, layout, kernel = 4 * x.width, operands.PRODUCT_FLOATS, f"product_floats-{matrix.format_name}"
            values |= {"num_columns": matrix.num_columns, **self.floats("x", x)}
        else:
            token_bytes, layout = (32 * terms + 16) * self._area(x).num_blocks, operands.PRODUCT
            kernel = f"product-{matrix.format_name}-{terms}"
            values |= {"num_blocks": matrix.blocks_per_row, "records": self.record(x, terms)}
        tokens = max(32, TOKEN_BLOCK_BYTES // token_bytes // 8 * 8)
        values["tokens_per_chunk"] = tokens
        return Step(
            kernel=kernel, layout=layout, values=values, fixed=row_chunks, count=count, per_chunk=tokens, waits=waits
        )

    def _project(self, operation: Project, following: Sequence[Operation]) -> Iterator[Step]:
        terms = terms_for(self.precision, is_coarse=operation.is_coarse)
        for idx, part in enumerate(operation.parts):
            matrix = self.plan.matrix_of(part.weight)
            is_last = idx == len(operation.parts) - 1
            mode = ADD if operation.add else STORE
            bias = self.vector(part.bias)
            yield self.product(matrix, operation.x, part.out, bias, mode, terms, is_last, operation.scale)
        for part in operation.parts:
            if not _is_changed_next(part.out, following):
                yield from self.quantize(part.out)

    def _gated(self, operation: GatedProject) -> Iterator[Step]:
        terms = terms_for(self.precision, is_coarse=operation.is_coarse)
        mode = MODES[operation.activation]
        if (operation.gate, operation.up) in self.plan.matrices:
            matrix = self.plan.matrices[operation.gate, operation.up]
            yield self.product(matrix, operation.x, operation.out, 0, mode, terms, True)
            yield from self.quantize(operation.out)
        else:
            up = up_buffer(operation)
            yield self.product(self.plan.matrix_of(operation.gate), operation.x, operation.out, 0, STORE, terms, False)
            yield self.product(self.plan.matrix_of(operation.up), operation.x, up, 0, STORE, terms, True)
            yield from self._gate(operation.out, up, operation.activation)

    def _gate(self, gate: Buffer, up: Buffer, activation: Activation, up_start: int = 0) -> Iterator[Step]:
        yield self.gate(gate, up, activation, self.count_of(gate), up_start=up_start)
        yield from self.quantize(gate)

    def gate(
        self, gate: Buffer, up: Buffer, activation: Activation, count: str, rows_each: int = 1, up_start: int = 0
    ) -> Step:
        """What becomes of gate and up, where they stand apart; rows_each: rows for each one that is counted."""
        values = {
            **self.floats("gate", gate), **self.floats("up", up), "width": gate.width, "mode": MODES[activation],
        }  # fmt: skip
        values["up"] += 4 * up_start
        return Step(kernel="row-gate", layout=operands.GATE, values=values, fixed=rows_each, count=count, per_chunk=1)

    def _cache(self, layer: KvLayer, layer_idx: int | None) -> dict[str, int]:
        return {
            "cache": 0 if layer_idx is None else self.places.caches[layer_idx],
            "page_bytes": self.places.cache_types.page_bytes(layer.num_kv_heads, layer.head_dim),
            "head_bytes": self.places.cache_types.head_bytes(layer.head_dim),
            "page_tables": self.places.batch["page_tables"],
            "table_stride": self.places.table_row_bytes,
            "positions": self.places.batch["positions"],
            "num_kv_heads": layer.num_kv_heads,
            "head_dim": layer.head_dim,
        }

    def _rotate(self, operation: RotateAndStore) -> Step:
        cache, rope, temperature = operation.cache, operation.rope, operation.temperature
        values = {
            **self.floats("q", operation.q),
            **self._floats_or_none("k", operation.k),
            **self._floats_or_none("v", operation.v),
            **self._cache(cache, None if operation.k is None else operation.layer_idx),
            "heads_per_kv": operation.num_heads // cache.num_kv_heads,
            "q_norm": self.vector(operation.q_norm),
            "k_norm": self.vector(operation.k_norm),
            "epsilon": float_word(operation.epsilon),
            "angles": 0 if rope is None else self.places.ropes[rope],
            "dimensions": 0 if rope is None else rope.dimensions,
            "is_neighbours": int(rope is not None and rope.pairing == "neighbours"),
            "temperature": float_word(0.0 if temperature is None else temperature.scale),
            "temperature_length": 0 if temperature is None else temperature.length,
            "slots": self.places.batch["slots"],
        }
        return Step(
            kernel=f"rotate-{self.places.cache_names}",
            layout=operands.ROTATE,
            values=values,
            fixed=cache.num_kv_heads,
            count="num_tokens",
            per_chunk=1,
        )

    def _attend(self, operation: Attend) -> Iterator[Step]:
        cache = operation.cache
        values = {
            **self.floats("q", operation.q),
            **self.floats("out", operation.out),
            **self._cache(cache, operation.layer_idx if operation.source_idx is None else operation.source_idx),
            "heads_per_kv": operation.num_heads // cache.num_kv_heads,
            "scale": float_word(operation.scale),
            "window": cache.window or 0,
            "tiles": self.places.batch["tiles"],
            "spans": self.word("spans"),
            "partial": self.places.partial,
            "soft_cap": float_word(operation.soft_cap or 0.0),
            "sinks": self.vector(operation.sinks),
        }
        for kernel, count in (
            (f"attend-{self.places.cache_names}", "attend_pieces"),
            ("combine", "combine_tokens"),
        ):
            yield Step(
                kernel=kernel, layout=operands.ATTEND, values=values, fixed=cache.num_kv_heads, count=count, per_chunk=1
            )
        yield from self.quantize(operation.out)

    def _select(self, operation: SelectOutputs) -> Step:
        values = {
            **self.floats("x", operation.x),
            **self.floats("out", operation.out),
            "outputs": self.places.batch["outputs"],
            "width": operation.x.width,
        }
        return Step(
            kernel="row-select", layout=operands.SELECT, values=values, fixed=1, count="num_outputs", per_chunk=1
        )


def _is_changed_next(buffer: Buffer, following: Sequence[Operation]) -> bool:
    """Whether the next operation that touches a buffer adds to it or gates it: nobody reads its records before."""
    for operation in following:
        if buffer in tuple(buffers_of(operation)):
            return isinstance(operation, Gate) or (isinstance(operation, Project) and operation.x != buffer)
    return False
