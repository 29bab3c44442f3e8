"""What a bound program takes, to the byte: the sums that the memory bill prints, of the pieces of a plan.

Does not decide anything: plan.py does.
"""

from __future__ import annotations

from dataclasses import dataclass

from kernels_cpu.arena import aligned
from kernels_cpu.batch_arrays import batch_arrays
from kernels_cpu.plan import MAX_SPLIT_CELLS, OPERAND_BYTES, CpuLimits, Plan
from kernels_cpu.table import STEP_BYTES
from models.program import Attend, Rope, RotateAndStore
from models.recurrence import StateLayer
from models.segments import Segment


@dataclass(frozen=True, kw_only=True)
class CpuBill:
    """Bytes reserved, by what for; states of layers that keep one are part of kv_bytes."""

    weights_bytes: int
    kv_bytes: int
    workspace_bytes: int


def weights_bytes(plan: Plan) -> int:
    """Bytes of all packed weights."""
    matrices = sum(aligned(matrix.size_bytes) for matrix in plan.matrices.values())
    return matrices + sum(aligned(vector_bytes(count)) for count in plan.vectors.values())


def vector_bytes(count: int) -> int:
    """float32 values, rounded up to whole vectors."""
    return 4 * (-(-count // 16) * 16)


def kv_bytes(segment: Segment, limits: CpuLimits) -> int:
    """Bytes of the K and V pages, and of the states, of all layers."""
    return sum(aligned(size) for size in cache_sizes(segment, limits).values())


def cache_sizes(segment: Segment, limits: CpuLimits) -> dict[int, int]:
    """Bytes of each layer's pages or states, for those that keep any here."""
    pages = {
        idx: limits.num_pages * limits.cache_types.page_bytes(layer.num_kv_heads, layer.head_dim)
        for idx, layer in segment.layers.items()
    }
    states = {idx: limits.num_states * state_bytes(layer) for idx, layer in segment.state_layers.items()}
    return dict(sorted((pages | states).items()))


def state_bytes(layer: StateLayer) -> int:
    """Bytes from one of a layer's states to the next."""
    return aligned(4 * layer.num_values)


def rope_tables(segment: Segment) -> dict[Rope, int]:
    """The distinct rotations of a segment and the floats of one position of each."""
    ropes = (operation.rope for operation in segment.operations if isinstance(operation, RotateAndStore))
    return {rope: rope.dimensions for rope in ropes if rope is not None}


def partial_bytes(segment: Segment) -> int:
    """Bytes of the partial attention results."""
    cells = (op.num_heads * (op.cache.head_dim + 16) for op in segment.operations if isinstance(op, Attend))
    return 4 * MAX_SPLIT_CELLS * max(cells, default=0)


def workspace_bytes(plan: Plan, segment: Segment, limits: CpuLimits) -> int:
    """Bytes of everything else: buffers, records, batch, rotation tables, partial results, the tables of steps."""
    areas = sum(area.size_bytes for area in plan.areas.values())
    batch = sum(aligned(size) for size in batch_arrays(limits).sizes_bytes.values())
    ropes = sum(aligned(4 * floats * limits.context_size) for floats in rope_tables(segment).values())
    table = aligned((plan.num_steps + plan.num_tables) * STEP_BYTES) + aligned(plan.num_steps * OPERAND_BYTES)
    return areas + batch + ropes + table + aligned(partial_bytes(segment))


def make_bill(plan: Plan, segment: Segment, limits: CpuLimits) -> CpuBill:
    """What a binding reserves, to the byte."""
    return CpuBill(
        weights_bytes=weights_bytes(plan),
        kv_bytes=kv_bytes(segment, limits),
        workspace_bytes=workspace_bytes(plan, segment, limits),
    )
