"""What a program bound to a card will need: every matrix, vector, buffer and cache, before anything is allocated.

Owns the decisions (formats, records, the warps that share a row) and the sums of the memory bill.  binding.py takes
exactly these pieces, in this order: the bill is what is allocated, to the byte.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod
from typing import Protocol

from kernels_gpu.expert_buffers import MAX_EXPERTS, MAX_PAIRS, MAX_USED, choice_sizes, expert_buffers
from kernels_gpu.layout import UNIT, aligned, is_plain
from kernels_gpu.matrices import Matrix
from kernels_gpu.precision import Precision, record_bytes, terms_for
from models.program import (
    Attend,
    Buffer,
    Embed,
    GatedProject,
    MixExperts,
    Normalize,
    Operation,
    Project,
    Rope,
    RotateAndStore,
    Scale,
    SelectOutputs,
    WeighRows,
    buffers_of,
)
from models.segments import Segment

PAGE_SIZE = 64  # positions, as in attention.cu
SPAN = 128
PARTIAL_HEADER = 4  # floats
PLAIN_STEP = 8  # columns of a plain matrix that are read at once
MAX_HEAD_DIM = 256
STEP_TOKENS = 8  # tokens of one launch of a product, and at least of one of attention
MAX_ATTENTION_TOKENS = 64
PARTIAL_BYTES = 32 << 20  # of partial results, where they need not be more


CacheTypes = tuple[str, str]
CACHE_BITS = {"f16": 16, "q8_0": 8, "q4_0": 4}  # of an element; their numbers in kv_pages.cuh are 0, 1, 2
SCALE_BLOCK = 32  # elements of q8_0 and q4_0 that share a scale


class UnsupportedError(ValueError):
    """A program or weight that these kernels cannot run."""


class FormatLike(Protocol):
    """What is asked of a block format."""

    @property
    def name(self) -> str: ...


class TensorLike(Protocol):
    """What is asked of a file's tensor."""

    @property
    def shape(self) -> tuple[int, ...]: ...

    @property
    def format(self) -> FormatLike: ...


@dataclass(frozen=True, kw_only=True)
class GpuLimits:
    """How much a binding is made for; pages hold 64 positions.  cache_types: of K and of V."""

    max_batch_tokens: int
    max_outputs: int
    max_sequences: int
    context_size: int
    num_pages: int
    cache_types: CacheTypes = ("f16", "f16")

    @property
    def table_row(self) -> int:
        """Entries of a sequence's page table."""
        return -(-self.context_size // PAGE_SIZE)

    @property
    def max_spans(self) -> int:
        return -(-self.context_size // SPAN)


@dataclass(frozen=True, kw_only=True)
class GpuBill:
    """Bytes allocated on the card, by what for."""

    weights_bytes: int
    kv_bytes: int
    workspace_bytes: int


@dataclass(frozen=True, kw_only=True)
class Area:
    """A buffer on the card: floats [rows][stride], and records where products want them."""

    buffer: Buffer
    rows: int
    is_output: bool
    terms: frozenset[int]
    rows_each: int = 1  # for a token

    @property
    def stride(self) -> int:
        """Floats from row to row."""
        return -(-self.buffer.width // UNIT) * UNIT

    @property
    def units(self) -> int:
        return self.stride // UNIT

    @property
    def float_bytes(self) -> int:
        return 4 * self.stride * self.rows

    def record_bytes(self, terms: int) -> int:
        return record_bytes(self.rows, self.stride, terms)


@dataclass
class Plan:
    """The pieces of a bound segment."""

    matrices: dict[str, Matrix] = field(default_factory=dict)
    vectors: dict[str, int] = field(default_factory=dict)  # float32 values
    areas: dict[str, Area] = field(default_factory=dict)
    ropes: list[Rope] = field(default_factory=list)
    choices: dict[str, int] = field(default_factory=dict)  # of experts: bytes by name

    def pieces(self, segment: Segment, limits: GpuLimits) -> Mapping[str, int]:
        """Bytes of everything in the workspace, by name; each begins at a multiple of 256."""
        sizes: dict[str, int] = {}
        for name, area in self.areas.items():
            sizes[f"floats {name}"] = area.float_bytes
            sizes |= {f"records {name} {terms}": area.record_bytes(terms) for terms in sorted(area.terms)}
        sizes |= dict.fromkeys(("token_ids", "positions", "slots"), 4 * limits.max_batch_tokens)
        sizes |= self.choices
        sizes["outputs"] = 4 * limits.max_outputs
        sizes["page_tables"] = 4 * limits.table_row * limits.max_sequences
        for idx, rope in enumerate(self.ropes):
            sizes[f"rope {idx}"] = 4 * rope.dimensions * limits.context_size
        sizes["partial"] = attention_tokens(segment, limits) * partial_bytes(segment, limits)
        return sizes


def partial_bytes(segment: Segment, limits: GpuLimits) -> int:
    """Bytes of the partial results of one token, in the layer that has most."""
    attends = [operation for operation in segment.operations if isinstance(operation, Attend)]
    cells = [operation.num_heads * (operation.cache.head_dim + PARTIAL_HEADER) for operation in attends]
    return 4 * limits.max_spans * max(cells, default=1)


def attention_tokens(segment: Segment, limits: GpuLimits) -> int:
    """Tokens of one launch of attention: as many as the room for partial results allows."""
    fitting = PARTIAL_BYTES // partial_bytes(segment, limits)
    return max(STEP_TOKENS, min(fitting, MAX_ATTENTION_TOKENS, limits.max_batch_tokens))


def attention_defines(cache_types: CacheTypes) -> tuple[str, ...]:
    """The lines of layout.h for the kernels that touch K and V."""
    kinds = list(CACHE_BITS)
    return tuple(f"{name}_KIND {kinds.index(kind)}" for name, kind in zip("KV", cache_types, strict=True))


def spans_for(last_position: int, limits: GpuLimits) -> int:
    """Spans that a launch covers: a power of two, so that a graph holds for many positions."""
    needed = last_position // SPAN + 1
    return min(1 << (needed - 1).bit_length(), limits.max_spans)


def up_buffer(operation: GatedProject) -> Buffer:
    """Where `up` goes when gate and up are not done in one pass."""
    return Buffer(name=f"{operation.out.name}.up", width=operation.out.width)


def shares_format(tensors: Mapping[str, TensorLike], operation: GatedProject) -> bool:
    """Whether gate and up can be done in one pass."""
    names = {tensors[name].format.name for name in (operation.gate, operation.up)}
    return len(names) == 1 and not is_plain(names.pop())


def make_plan(segment: Segment, tensors: Mapping[str, TensorLike], limits: GpuLimits, precision: Precision) -> Plan:
    """The pieces for a segment with a file's tensors.  Raises UnsupportedError naming the weight."""
    if segment.program.state_layers:
        raise UnsupportedError(
            "the model has layers that keep a state, which the GPU kernels can't do: load it on the CPU"
        )
    if any(map(_is_unknown, segment.program.operations)):
        raise UnsupportedError(
            "the model has operations that the GPU kernels can't do yet (values normalised without weights, scaled"
            " layers, experts that are weighed in other ways): load it on the CPU"
        )
    plan = Plan()
    wanted: dict[str, set[int]] = {}
    buffers = {segment.program.hidden.name: segment.program.hidden}
    for operation in segment.operations:
        _add_operation(plan, operation, tensors, precision, wanted, limits)
        buffers |= {buffer.name: buffer for buffer in buffers_of(operation)}
        if isinstance(operation, GatedProject):
            buffers[up_buffer(operation).name] = up_buffer(operation)
    outputs = _output_buffers(segment.operations)
    for name, buffer in buffers.items():
        rows = limits.max_outputs if name in outputs else limits.max_batch_tokens
        terms = frozenset(wanted.get(name, ()))
        plan.areas[name] = Area(buffer=buffer, rows=rows, is_output=name in outputs, terms=terms)
    return plan


def _is_unknown(operation: Operation) -> bool:
    match operation:
        case Scale() | WeighRows() | Normalize(weight=None) | RotateAndStore(k=None):
            return True
        case MixExperts():
            return operation.weighing != "softmax" or operation.router_x is not None or operation.scale != 1.0
        case _:
            return False


def _add_operation(
    plan: Plan,
    operation: Operation,
    tensors: Mapping[str, TensorLike],
    precision: Precision,
    wanted: dict[str, set[int]],
    limits: GpuLimits,
) -> None:
    def product(name: str, x: Buffer, terms: int, plain_step: int = UNIT) -> None:
        matrix = _add_matrix(plan, tensors, name, plain_step)
        if not matrix.is_plain:
            wanted.setdefault(x.name, set()).add(terms)

    match operation:
        case Embed(weight=weight):
            _add_matrix(plan, tensors, weight)
        case Normalize(x=x, weight=str(weight)):
            if x.width % UNIT:
                raise UnsupportedError(f"norm {weight} has {x.width} values; the GPU kernels take multiples of {UNIT}")
            _add_vector(plan, tensors, weight)
        case Project(x=x, parts=parts, is_coarse=is_coarse):
            for part in parts:
                # Beside a weight, an adapter's second matrix has as many columns as its rank.
                plain_step = PLAIN_STEP if operation.add else UNIT
                product(part.weight, x, terms_for(precision, is_coarse=is_coarse), plain_step)
                if part.bias is not None:
                    _add_vector(plan, tensors, part.bias)
        case GatedProject(x=x, gate=gate, up=up):
            for name in (gate, up):
                product(name, x, terms_for(precision, is_coarse=operation.is_coarse))
        case RotateAndStore(cache=cache, rope=rope):
            _check_head(cache.head_dim, operation.layer_idx, limits.cache_types)
            for name in (operation.q_norm, operation.k_norm):
                if name is not None:
                    _add_vector(plan, tensors, name)
            if rope is not None and rope not in plan.ropes:
                plan.ropes.append(rope)
        case MixExperts():
            _add_experts(plan, operation, tensors, limits, precision, wanted)
        case Attend(sinks=str(sinks)):
            _add_vector(plan, tensors, sinks)
        case _:
            pass


def _add_experts(
    plan: Plan,
    operation: MixExperts,
    tensors: Mapping[str, TensorLike],
    limits: GpuLimits,
    precision: Precision,
    wanted: dict[str, set[int]],
) -> None:
    """Matrices of all experts one after another, as one of so many rows; buffers with a row for each pair."""
    coarse, fine, tokens = terms_for(precision, is_coarse=True), terms_for(precision), limits.max_batch_tokens
    _check_experts(operation, tokens)
    if not _add_matrix(plan, tensors, operation.router.weight).is_plain:
        wanted.setdefault(operation.x.name, set()).add(fine)
    wanted.setdefault(operation.x.name, set()).add(coarse)
    for name in (operation.gate, operation.up, operation.down):
        if _add_matrix(plan, tensors, name).is_plain:
            kind = tensors[name].format.name
            raise UnsupportedError(f"weight {name} holds experts as {kind}; the GPU kernels take quantised ones")
    for name in (operation.router.bias, operation.gate_bias, operation.up_bias, operation.down_bias):
        if name is not None:
            _add_vector(plan, tensors, name)
    buffers, used = expert_buffers(operation), operation.num_used
    for buffer in (buffers.gate, buffers.up, buffers.y):
        terms = frozenset({coarse} if buffer == buffers.gate else ())
        area = Area(buffer=buffer, rows=tokens * used, is_output=False, terms=terms, rows_each=used)
        assert plan.areas.setdefault(buffer.name, area) == area, "layers whose experts differ in size"
    for name, size in choice_sizes(operation, tokens).items():
        plan.choices[name] = max(size, plan.choices.get(name, 0))


def _check_experts(operation: MixExperts, tokens: int) -> None:
    if operation.num_experts > MAX_EXPERTS or operation.num_used > MAX_USED:
        raise UnsupportedError(
            f"layer {operation.layer_idx} uses {operation.num_used} of {operation.num_experts} experts; "
            f"the GPU kernels take {MAX_USED} of {MAX_EXPERTS} at most"
        )
    if tokens * operation.num_used > MAX_PAIRS:
        raise UnsupportedError(
            f"a batch of {tokens} tokens that use {operation.num_used} experts each is more than the GPU kernels take: "
            f"choose -b {MAX_PAIRS // operation.num_used} or less"
        )


def _check_head(head_dim: int, layer_idx: int, cache_types: CacheTypes) -> None:
    for name in cache_types:
        if name != "f16" and head_dim % SCALE_BLOCK:
            raise UnsupportedError(
                f"layer {layer_idx} has heads of {head_dim} values, which do not fill blocks of {SCALE_BLOCK}: "
                "keep keys and values as f16 (-ctk f16 -ctv f16)"
            )
    if head_dim % 8 or head_dim > MAX_HEAD_DIM:
        raise UnsupportedError(
            f"layer {layer_idx} has heads of {head_dim} values; "
            f"the GPU kernels take multiples of 8 up to {MAX_HEAD_DIM}"
        )


def _add_matrix(plan: Plan, tensors: Mapping[str, TensorLike], name: str, plain_step: int = UNIT) -> Matrix:
    if name not in plan.matrices:
        format_name = tensors[name].format.name
        rows, columns = prod(tensors[name].shape[:-1]), tensors[name].shape[-1]
        step = plain_step if is_plain(format_name) else UNIT
        if columns % step:
            raise UnsupportedError(f"weight {name} has {columns} columns; the GPU kernels take multiples of {step}")
        plan.matrices[name] = Matrix(name=name, format_name=format_name, num_rows=rows, num_columns=columns)
    return plan.matrices[name]


def _add_vector(plan: Plan, tensors: Mapping[str, TensorLike], name: str) -> None:
    plan.vectors[name] = prod(tensors[name].shape)


def _output_buffers(operations: tuple[Operation, ...]) -> set[str]:
    """Names of the buffers that hold only rows whose logits are wanted."""
    found: set[str] = set()
    for operation in operations:
        match operation:
            case SelectOutputs(out=out):
                found.add(out.name)
            case Normalize(x=x, out=out) | GatedProject(x=x, out=out) if x.name in found:
                found.add(out.name)
            case Project(x=x, parts=parts) if x.name in found:
                found.update(part.out.name for part in parts)
            case _:
                pass
    return found


def page_bytes(num_kv_heads: int, head_dim: int, cache_types: CacheTypes) -> int:
    """Bytes of one page of one layer, as kv_pages.cuh lays it out."""
    scales = {name: 0 if name == "f16" else 2 * (head_dim // SCALE_BLOCK) for name in cache_types}
    return num_kv_heads * PAGE_SIZE * sum(head_dim * CACHE_BITS[name] // 8 + scales[name] for name in cache_types)


def make_bill(plan: Plan, segment: Segment, limits: GpuLimits) -> GpuBill:
    """What a binding allocates, to the byte."""
    pages = [page_bytes(kv.num_kv_heads, kv.head_dim, limits.cache_types) for kv in segment.layers.values()]
    return GpuBill(
        weights_bytes=sum(matrix.layout.size_bytes for matrix in plan.matrices.values())
        + sum(aligned(4 * count) for count in plan.vectors.values()),
        kv_bytes=sum(aligned(limits.num_pages * size) for size in pages),
        workspace_bytes=sum(map(aligned, plan.pieces(segment, limits).values())),
    )
