"""Lowers a segment to launches: which kernel, on which grid, with which arguments, for a batch of a given shape.

Owns the cutting of a batch into launches.  Works on regions that binding.py took from the card's memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from kernels_gpu.device import Region
from kernels_gpu.expert_steps import ExpertSteps
from kernels_gpu.launches import BatchShape, Launch, Module, Places, launch
from kernels_gpu.layout import UNIT, defines_for
from kernels_gpu.matrices import Matrix, Target
from kernels_gpu.plan import (
    Area,
    GpuLimits,
    Plan,
    TensorLike,
    attention_defines,
    attention_tokens,
    shares_format,
    up_buffer,
)
from kernels_gpu.precision import Precision, terms_for
from kernels_gpu.product_steps import (
    ADD,
    BUCKETS,
    PRODUCT_THREADS,
    STORE,
    WARPS,
    ProductSteps,
    bucket,
    pieces_of,
    prefill_module,
    tiles,
)
from models.program import (
    Activation,
    Attend,
    Buffer,
    Embed,
    Gate,
    GatedProject,
    MixExperts,
    Normalize,
    Operation,
    Project,
    Rope,
    RotateAndStore,
    SelectOutputs,
    SoftCap,
)
from models.segments import Segment

SOURCES = Path(__file__).resolve().parent / "sources"
MODES: Mapping[Activation, int] = {"silu": 2, "gelu_tanh": 3, "clamped_swiglu": 4}
ROW_THREADS, ATTENTION_THREADS = 256, 128
UNITS_OF_BLOCK = 64  # that one block of `quantize` rounds
HEADS_OF_BLOCK = 4  # query heads that one block of `attend` does
QUANTIZED = tuple(f"{kind}_{count}" for kind in ("product", "gated") for count in BUCKETS) + ("embed",)
PLAIN = (*(f"product_{count}" for count in BUCKETS), "embed")
ROWS = ("normalize", "quantize", "select_rows", "combine_gate", "cap_softly")
ATTENTION = ("rotate_and_store", "attend", "combine")
PROMPT_ATTENTION = ("attend_prompt",)
PROMPT_ROWS = 32  # tokens times heads of a block of attend_prompt


ROWS_MODULE = Module(source="rows.cu", defines=(), kernels=ROWS)


class StepMaker:
    """Makes the launches of a segment."""

    def __init__(
        self,
        segment: Segment,
        tensors: Mapping[str, TensorLike],
        plan: Plan,
        limits: GpuLimits,
        precision: Precision,
    ) -> None:
        self.segment, self.tensors, self.plan, self.limits = segment, tensors, plan, limits
        defines = attention_defines(limits.cache_types)
        self._attention = Module(source="attention.cu", defines=defines, kernels=ATTENTION)
        self._prompt_attention = Module(source="attention_prompt.cu", defines=defines, kernels=PROMPT_ATTENTION)
        self.precision: Precision = precision
        self.places = Places(matrices={}, vectors={}, caches={}, workspace={})

    def modules(self) -> list[Module]:
        """What must be compiled, each once."""
        wanted = {ROWS_MODULE: None}
        for operation in self.segment.operations:
            match operation:
                case Embed(weight=weight):
                    wanted[self.module(self.plan.matrices[weight], terms_for(self.precision))] = None
                case Project(parts=parts, is_coarse=is_coarse):
                    terms = terms_for(self.precision, is_coarse=is_coarse)
                    for part in parts:
                        wanted[self.module(self.plan.matrices[part.weight], terms)] = None
                case GatedProject(gate=gate, up=up):
                    for name in (gate, up):
                        wanted[self.module(self.plan.matrices[name], self._gate_terms(operation))] = None
                case MixExperts(router=router):
                    wanted[self.module(self.plan.matrices[router.weight], terms_for(self.precision))] = None
                    shape = BatchShape(num_tokens=1, num_outputs=0, spans=1)
                    wanted |= dict.fromkeys(ExpertSteps(self, operation, shape).modules())
                case RotateAndStore():
                    wanted[self._attention] = wanted[self._prompt_attention] = None
                case _:
                    pass
        quantized = [module for module in wanted if module.source == "product.cu"]
        return [*wanted, *map(prefill_module, quantized)]

    def launches(self, shape: BatchShape) -> list[Launch]:
        """Everything for a run with a batch of that shape, in order."""
        steps = [step for operation in self.segment.runs[shape.run_idx] for step in self._steps(operation, shape)]
        if self.segment.takes_tokens(shape.run_idx):
            return steps
        return [*self.quantize(self.segment.program.hidden, shape), *steps]

    def _steps(self, operation: Operation, shape: BatchShape) -> Iterator[Launch]:
        match operation:
            case Embed():
                yield self._embed(operation, shape)
                yield from self.quantize(operation.out, shape)
            case Normalize():
                yield self._normalize(operation, shape)
            case Project():
                yield from self._project(operation, shape)
            case GatedProject():
                yield from self._gated(operation, shape)
            case Gate():
                yield from self.gate(operation.gate, operation.up, operation.activation, shape)
            case MixExperts():
                yield from ExpertSteps(self, operation, shape).all()
            case RotateAndStore():
                yield self._rotate(operation, shape)
            case Attend():
                yield from self._attend(operation, shape)
            case SelectOutputs():
                yield self._select(operation, shape)
                yield from self.quantize(operation.out, shape)
            case SoftCap():
                yield self._cap(operation, shape)

    # --- pieces ---------------------------------------------------------------------------------------
    def module(self, matrix: Matrix, terms: int) -> Module:
        """The products of a matrix's format with so many terms."""
        if matrix.is_plain:
            return Module(source="product_plain.cu", defines=defines_for(matrix.format_name, 1), kernels=PLAIN)
        return Module(source="product.cu", defines=defines_for(matrix.format_name, terms), kernels=QUANTIZED)

    def _gate_terms(self, operation: GatedProject) -> int:
        return terms_for(self.precision, is_coarse=operation.is_coarse)

    def mode(self, activation: Activation) -> int:
        """As modes.cuh calls it."""
        return MODES[activation]

    def area(self, buffer: Buffer) -> Area:
        """A buffer's rows and columns."""
        return self.plan.areas[buffer.name]

    def count(self, buffer: Buffer, shape: BatchShape) -> int:
        """Rows of a buffer that a batch fills."""
        area = self.area(buffer)
        return shape.num_outputs if area.is_output else shape.num_tokens * area.rows_each

    def floats(self, buffer: Buffer) -> tuple[Region, int]:
        """A buffer's address and stride."""
        return self.places.workspace[f"floats {buffer.name}"], self.area(buffer).stride

    def _row(self, buffer: Buffer, token: int) -> Region:
        region, stride = self.floats(buffer)
        return region.part(4 * stride * token, region.size_bytes - 4 * stride * token)

    def records(self, buffer: Buffer, terms: int) -> Region | None:
        """A buffer's records, where some product wants them."""
        return self.places.workspace.get(f"records {buffer.name} {terms}")

    def vector(self, name: str | None) -> Region | None:
        """A bias or norm, if there is one."""
        return None if name is None else self.places.vectors[name]

    def _batch(self, name: str, first: int = 0) -> Region:
        region = self.places.workspace[name]
        return region.part(4 * first, region.size_bytes - 4 * first)

    def is_prefill(self, matrix: Matrix, x: Buffer, shape: BatchShape) -> bool:
        """Whether tensor cores do a product."""
        return shape.is_prefill and not matrix.is_plain and not self.area(x).is_output

    # --- operations -----------------------------------------------------------------------------------
    def _embed(self, operation: Embed, shape: BatchShape) -> Launch:
        matrix = self.plan.matrices[operation.weight]
        arguments = (self.places.matrices[matrix.name], matrix.num_rows, pieces_of(matrix), self._batch("token_ids"))
        return launch(
            self.module(matrix, terms_for(self.precision)), "embed", (shape.num_tokens,), PRODUCT_THREADS,
            *arguments, float(operation.scale), *self.floats(operation.out),
        )  # fmt: skip

    def _normalize(self, operation: Normalize, shape: BatchShape) -> Launch:
        area = self.area(operation.out)
        return launch(
            ROWS_MODULE, "normalize", (self.count(operation.x, shape),), ROW_THREADS,
            *self.floats(operation.x), self.vector(operation.weight), float(operation.epsilon), int(operation.add),
            *self.floats(operation.out), area.units, self.records(operation.out, 1), self.records(operation.out, 2),
            area.rows,
        )  # fmt: skip

    def quantize(self, buffer: Buffer, shape: BatchShape) -> Iterator[Launch]:
        """Records of a buffer that was written as floats, where some product wants them."""
        area = self.area(buffer)
        if area.terms:
            grid = (-(-area.units // UNITS_OF_BLOCK), self.count(buffer, shape))
            yield launch(
                ROWS_MODULE, "quantize", grid, ROW_THREADS,
                *self.floats(buffer), area.units, self.records(buffer, 1), self.records(buffer, 2), area.rows,
            )  # fmt: skip

    def product(
        self,
        targets: Sequence[Target],
        x: Buffer,
        terms: int,
        shape: BatchShape,
        *,
        scale: float = 1.0,
        mode: int = STORE,
    ) -> Iterator[Launch]:
        """out (+)= (x @ matrix.T + bias) * scale of each target."""
        yield from ProductSteps(self, x, terms, shape, scale=scale, mode=mode).all(targets)

    def _project(self, operation: Project, shape: BatchShape) -> Iterator[Launch]:
        mode, scale = ADD if operation.add else STORE, 1.0 if operation.scale is None else float(operation.scale)
        terms = terms_for(self.precision, is_coarse=operation.is_coarse)
        targets = [
            Target(matrix=self.plan.matrices[part.weight], out=part.out, bias=part.bias) for part in operation.parts
        ]
        yield from self.product(targets, operation.x, terms, shape, scale=scale, mode=mode)
        for target in targets:
            yield from self.quantize(target.out, shape)

    def _gated(self, operation: GatedProject, shape: BatchShape) -> Iterator[Launch]:
        terms, mode = self._gate_terms(operation), MODES[operation.activation]
        gate, up = self.plan.matrices[operation.gate], self.plan.matrices[operation.up]
        if shares_format(self.tensors, operation) and not self.is_prefill(gate, operation.x, shape):
            both = (self.places.matrices[gate.name], self.places.matrices[up.name], gate.num_rows, pieces_of(gate))
            for first, count in tiles(self.count(operation.x, shape)):
                yield launch(
                    self.module(gate, terms), f"gated_{bucket(count)}", (gate.blocks,), PRODUCT_THREADS,
                    *both, self.records(operation.x, terms), self.area(operation.x).rows, first, count, gate.shift,
                    mode, *self.floats(operation.out),
                )  # fmt: skip
            yield from self.quantize(operation.out, shape)
        else:
            raised = up_buffer(operation)
            targets = [Target(matrix=gate, out=operation.out), Target(matrix=up, out=raised)]
            yield from self.product(targets, operation.x, terms, shape)
            yield from self.gate(operation.out, raised, operation.activation, shape)

    def gate(self, gate: Buffer, up: Buffer, activation: Activation, shape: BatchShape) -> Iterator[Launch]:
        """What becomes of gate and up, in gate's place."""
        yield launch(
            ROWS_MODULE, "combine_gate", (-(-gate.width // ROW_THREADS), self.count(gate, shape)), ROW_THREADS,
            *self.floats(gate), *self.floats(up), gate.width, MODES[activation],
        )  # fmt: skip
        yield from self.quantize(gate, shape)

    def _angles(self, rope: Rope | None) -> tuple[Region | None, int, int]:
        if rope is None:
            return None, 0, 0
        region = self.places.workspace[f"rope {self.plan.ropes.index(rope)}"]
        return region, rope.dimensions, int(rope.pairing == "neighbours")

    def _rotate(self, operation: RotateAndStore, shape: BatchShape) -> Launch:
        cache, temperature = operation.cache, operation.temperature
        warmth = (0.0, 0) if temperature is None else (float(temperature.scale), temperature.length)
        heads = operation.num_heads + 2 * cache.num_kv_heads
        assert operation.k is not None and operation.v is not None, "shared keys and values are refused (plan.py)"
        k, kv_stride = self.floats(operation.k)
        return launch(
            self._attention, "rotate_and_store", (-(-heads // WARPS), shape.num_tokens), ATTENTION_THREADS,
            *self.floats(operation.q), k, self.floats(operation.v)[0], kv_stride, operation.num_heads,
            cache.num_kv_heads, cache.head_dim, self.vector(operation.q_norm), self.vector(operation.k_norm),
            float(operation.epsilon), *self._angles(operation.rope), *warmth, self._batch("positions"),
            self._batch("slots"), self._batch("page_tables"), self.limits.table_row,
            self.places.caches[operation.layer_idx],
        )  # fmt: skip

    def _attend(self, operation: Attend, shape: BatchShape) -> Iterator[Launch]:
        if shape.is_prefill:
            yield self._attend_prompt(operation, shape)
            yield from self.quantize(operation.out, shape)
            return
        cache, max_spans = operation.cache, self.limits.max_spans
        partial, area = self.places.workspace["partial"], self.area(operation.out)
        rounds = cache.head_dim % UNIT == 0
        records = [self.records(operation.out, terms) if rounds else None for terms in (1, 2)]
        batches = -(-operation.num_heads // cache.num_kv_heads // HEADS_OF_BLOCK)
        for first, count in tiles(shape.num_tokens, attention_tokens(self.segment, self.limits)):
            positions = self._batch("positions", first)
            yield launch(
                self._attention, "attend", (shape.spans, cache.num_kv_heads * batches, count), ATTENTION_THREADS,
                self._row(operation.q, first), self.area(operation.q).stride,
                self.places.caches[operation.layer_idx], positions, self._batch("slots", first),
                self._batch("page_tables"), self.limits.table_row, operation.num_heads, cache.num_kv_heads,
                cache.head_dim, float(operation.scale), cache.window or 0, float(operation.soft_cap or 0.0), partial,
                max_spans,
                shared_bytes=4 * (HEADS_OF_BLOCK * cache.head_dim + 8 * ATTENTION_THREADS),
            )  # fmt: skip
            yield launch(
                self._attention, "combine", (operation.num_heads, count), ATTENTION_THREADS,
                partial, max_spans, positions, operation.num_heads, cache.head_dim, cache.window or 0,
                self.vector(operation.sinks), self._row(operation.out, first), area.stride, area.units, *records,
                area.rows, first,
            )  # fmt: skip
        if not rounds:
            yield from self.quantize(operation.out, shape)

    def _attend_prompt(self, operation: Attend, shape: BatchShape) -> Launch:
        cache = operation.cache
        group = operation.num_heads // cache.num_kv_heads
        tokens = PROMPT_ROWS // min(group, HEADS_OF_BLOCK)
        grid = (-(-shape.num_tokens // tokens), cache.num_kv_heads * -(-group // HEADS_OF_BLOCK))
        return launch(
            self._prompt_attention, "attend_prompt", grid, ATTENTION_THREADS,
            *self.floats(operation.q), self.places.caches[operation.layer_idx], self._batch("positions"),
            self._batch("slots"), self._batch("page_tables"), self.limits.table_row, shape.num_tokens,
            operation.num_heads, cache.num_kv_heads, cache.head_dim, float(operation.scale), cache.window or 0,
            float(operation.soft_cap or 0.0), self.vector(operation.sinks), *self.floats(operation.out),
        )  # fmt: skip

    def _select(self, operation: SelectOutputs, shape: BatchShape) -> Launch:
        return launch(
            ROWS_MODULE, "select_rows", (shape.num_outputs,), ROW_THREADS,
            *self.floats(operation.x), self._batch("outputs"), *self.floats(operation.out),
            self.area(operation.x).units,
        )  # fmt: skip

    def _cap(self, operation: SoftCap, shape: BatchShape) -> Launch:
        x = operation.x
        return launch(
            ROWS_MODULE, "cap_softly", (-(-x.width // ROW_THREADS), self.count(x, shape)), ROW_THREADS,
            *self.floats(x), x.width, float(operation.cap),
        )  # fmt: skip
