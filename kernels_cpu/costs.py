"""What a step program costs on the CPU: bytes that have to be read, multiply-adds that have to be done.

Owns the sums, made from the program and the sizes of packed weights.  Does not know batches: what depends on how many
tokens stand where is left to the reader.  Only what can't be avoided counts: every packed weight once a run, every key
and value that a token sees; activations stay in caches.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

from kernels_cpu.activations import Precision, terms_for
from kernels_cpu.isa import choose
from kernels_cpu.kv_layout import PAGE_SIZE, CacheTypes
from kernels_cpu.packed_formats import FLOAT_FORMATS, packed_bytes
from models.program import (
    Attend,
    Embed,
    GatedProject,
    MixExperts,
    Normalize,
    Operation,
    Project,
    Scale,
    SelectOutputs,
    weights_of,
)
from models.recurrence import Convolve, DeltaRule, recurrence_weights
from models.segments import Segment
from models.tensor_like import TensorLike


@dataclass(frozen=True, kw_only=True)
class LayerCost:
    """One layer's cache.  position_bytes: K and V of one position; multiply_adds_per_position: for one token."""

    position_bytes: int
    multiply_adds_per_position: int
    window: int | None


@dataclass(frozen=True, kw_only=True)
class RowCost:
    """What a run costs for weights (weight_bytes, once) and for each row of them, by the kind of multiply-add."""

    weight_bytes: int = 0
    byte_multiply_adds: int = 0
    float_multiply_adds: int = 0

    def part(self, share: float) -> RowCost:
        """A share of it."""
        return RowCost(
            weight_bytes=round(self.weight_bytes * share),
            byte_multiply_adds=round(self.byte_multiply_adds * share),
            float_multiply_adds=round(self.float_multiply_adds * share),
        )

    def plus(self, other: RowCost) -> RowCost:
        """Both together."""
        return RowCost(
            weight_bytes=self.weight_bytes + other.weight_bytes,
            byte_multiply_adds=self.byte_multiply_adds + other.byte_multiply_adds,
            float_multiply_adds=self.float_multiply_adds + other.float_multiply_adds,
        )


@dataclass(frozen=True, kw_only=True)
class CpuCosts:
    """tokens: a row is a token of the run; outputs: a row is a token whose logits are wanted.

    embedding_bytes: the row of the embedding that a token gathers.
    """

    tokens: RowCost
    outputs: RowCost
    embedding_bytes: int
    layers: tuple[LayerCost, ...]


def count_costs(
    segment: Segment, tensors: Mapping[str, TensorLike], isa: str, precision: Precision, cache_types: CacheTypes
) -> CpuCosts:
    """The costs of a segment bound at an instruction-set level with a rounding of activations."""
    lanes = choose(isa).lanes
    tokens, outputs, embedding_bytes = RowCost(), RowCost(), 0
    is_output = False
    for operation in segment.operations:
        is_output |= isinstance(operation, SelectOutputs)
        if isinstance(operation, Embed):
            tensor = tensors[operation.weight]
            embedding_bytes += packed_bytes(tensor.format.name, 1, tensor.shape[-1], 1)
        for cost in _weight_costs(operation, tensors, lanes, precision):
            if is_output:
                outputs = outputs.plus(cost)
            else:
                tokens = tokens.plus(cost)
    return CpuCosts(
        tokens=tokens, outputs=outputs, embedding_bytes=embedding_bytes, layers=_layers(segment, cache_types)
    )


def _weight_costs(
    operation: Operation, tensors: Mapping[str, TensorLike], lanes: int, precision: Precision
) -> list[RowCost]:
    match operation:
        case Normalize() | Scale() | Attend():
            return [_vector(tensors[name]) for name in weights_of(operation)]
        case Convolve() | DeltaRule():
            return [*(_vector(tensors[name]) for name in recurrence_weights(operation)), _state(operation)]
        case Project(parts=parts, is_coarse=is_coarse):
            terms = terms_for(precision, is_coarse=is_coarse)
            products = [_product(tensors[part.weight], lanes, terms) for part in parts]
            return [*products, *(_vector(tensors[part.bias]) for part in parts if part.bias is not None)]
        case GatedProject(gate=gate, up=up, is_coarse=is_coarse):
            terms = terms_for(precision, is_coarse=is_coarse)
            return [_product(tensors[name], lanes, terms) for name in (gate, up)]
        case MixExperts():
            return _expert_costs(operation, tensors, lanes, precision)
        case _:
            return []


def _expert_costs(
    operation: MixExperts, tensors: Mapping[str, TensorLike], lanes: int, precision: Precision
) -> list[RowCost]:
    """The router, and the experts that one token uses."""
    share = operation.num_used / operation.num_experts
    coarse, fine = terms_for(precision, is_coarse=True), terms_for(precision)
    names = (operation.gate, operation.up, operation.down)
    costs = [_product(tensors[name], lanes, coarse, num_parts=operation.num_experts) for name in names]
    biases = (operation.gate_bias, operation.up_bias, operation.down_bias)
    costs += [_vector(tensors[name]) for name in biases if name is not None]
    router = [_product(tensors[operation.router.weight], lanes, fine)]
    router += [] if operation.router.bias is None else [_vector(tensors[operation.router.bias])]
    return [*router, *(cost.part(share) for cost in costs)]


def _state(operation: Convolve | DeltaRule) -> RowCost:
    """A convolution's inputs or a delta rule's matrices, read and written once; of matrices, four products a value."""
    state = operation.state
    inputs, matrices = state.num_inputs * state.channels, state.num_heads * state.key_dim * state.value_dim
    if isinstance(operation, Convolve):
        return RowCost(weight_bytes=8 * inputs, float_multiply_adds=(state.num_inputs + 1) * state.channels)
    return RowCost(weight_bytes=8 * matrices, float_multiply_adds=4 * matrices)


def _vector(tensor: TensorLike) -> RowCost:
    """A norm's weights or a bias: float32 once packed."""
    return RowCost(weight_bytes=4 * prod(tensor.shape))


def _product(tensor: TensorLike, lanes: int, terms: int, *, num_parts: int = 1) -> RowCost:
    """num_parts: matrices in the tensor, each of which begins a group of rows."""
    format_name, num_rows, num_columns = tensor.format.name, prod(tensor.shape[:-1]), tensor.shape[-1]
    multiply_adds, is_float = num_rows * num_columns, tensor.format.name in FLOAT_FORMATS
    return RowCost(
        weight_bytes=num_parts * packed_bytes(format_name, num_rows // num_parts, num_columns, lanes),
        byte_multiply_adds=0 if is_float else multiply_adds * terms,
        float_multiply_adds=multiply_adds if is_float else 0,
    )


def _layers(segment: Segment, cache_types: CacheTypes) -> tuple[LayerCost, ...]:
    return tuple(
        LayerCost(
            position_bytes=cache_types.page_bytes(attend.cache.num_kv_heads, attend.cache.head_dim) // PAGE_SIZE,
            multiply_adds_per_position=2 * attend.num_heads * attend.cache.head_dim,
            window=attend.cache.window,
        )
        for attend in segment.operations
        if isinstance(attend, Attend)
    )
