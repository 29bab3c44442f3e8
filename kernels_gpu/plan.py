"""What a program bound to a card needs: every matrix, vector, buffer and cache with its size.

Owns these shapes and the sums of the memory bill.  binding.py takes exactly these pieces, in this order: the bill is
what is allocated, to the byte.  planning.py decides which there are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from kernels_gpu.layout import UNIT, aligned
from kernels_gpu.matrices import Matrix
from kernels_gpu.precision import record_bytes
from models.program import (
    Attend,
    Buffer,
    GatedProject,
    Rope,
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
