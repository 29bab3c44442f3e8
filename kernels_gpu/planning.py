"""Decides what a program bound to a card needs, before anything is allocated: formats, records, who has a buffer.

Owns what these kernels refuse.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from kernels_gpu.expert_buffers import MAX_EXPERTS, MAX_PAIRS, MAX_USED, choice_sizes, expert_buffers
from kernels_gpu.layout import UNIT, is_plain
from kernels_gpu.matrices import Matrix
from kernels_gpu.plan import SCALE_BLOCK, Area, CacheTypes, GpuLimits, Plan, UnsupportedError, up_buffer
from kernels_gpu.precision import Precision, terms_for
from models.program import (
    Attend,
    Buffer,
    Embed,
    Gate,
    GatedProject,
    MixExperts,
    Normalize,
    Operation,
    Project,
    RotateAndStore,
    Scale,
    WeighRows,
    buffers_of,
)
from models.segments import Segment
from models.tensor_like import TensorLike

PLAIN_STEP = 8  # columns of a plain matrix that are read at once
MAX_HEAD_DIM = 256


def make_plan(segment: Segment, tensors: Mapping[str, TensorLike], limits: GpuLimits, precision: Precision) -> Plan:
    """The pieces for a segment with a file's tensors.  Raises UnsupportedError naming the weight."""
    return PlanMaker(tensors, limits, precision).of(segment)


class PlanMaker:
    """Collects what the operations of one segment need."""

    def __init__(self, tensors: Mapping[str, TensorLike], limits: GpuLimits, precision: Precision) -> None:
        self._tensors, self._limits = tensors, limits
        self._coarse, self._fine = terms_for(precision, is_coarse=True), terms_for(precision)
        self._plan = Plan()
        self._wanted: dict[str, set[int]] = {}  # terms of the records of a buffer

    def of(self, segment: Segment) -> Plan:
        """Everything that a segment needs."""
        if segment.program.state_layers:
            raise UnsupportedError(
                "the model has layers that keep a state, which the GPU kernels can't do: load it on the CPU"
            )
        if any(map(_is_unknown, segment.program.operations)):
            raise UnsupportedError(
                "the model has operations that the GPU kernels can't do yet (values normalised without weights or as"
                " LayerNorm does, heads that turn before they are normalised, a feed-forward without a gate, scaled"
                " layers, experts that are weighed in other ways): load it on the CPU"
            )
        for operation in segment.operations:
            self._add(operation)
        self._add_areas(segment)
        return self._plan

    def _add(self, operation: Operation) -> None:
        match operation:
            case Embed(weight=weight):
                self._add_matrix(weight)
            case Normalize(x=x, weight=str(weight)):
                if x.width % UNIT:
                    raise UnsupportedError(
                        f"norm {weight} has {x.width} values; the GPU kernels take multiples of {UNIT}"
                    )
                self._add_vectors(weight)
            case Project(x=x, parts=parts):
                for part in parts:
                    # Beside a weight, an adapter's second matrix has as many columns as its rank.
                    self._add_product(part.weight, x, self._terms(operation), PLAIN_STEP if operation.add else UNIT)
                    self._add_vectors(part.bias)
            case GatedProject(x=x, gate=gate, up=up):
                for name in (gate, up):
                    self._add_product(name, x, self._terms(operation))
            case RotateAndStore(cache=cache, rope=rope):
                _check_head(cache.head_dim, operation.layer_idx, self._limits.cache_types)
                self._add_vectors(operation.q_norm, operation.k_norm)
                if rope is not None and rope not in self._plan.ropes:
                    self._plan.ropes.append(rope)
            case MixExperts():
                self._add_experts(operation)
            case Attend(sinks=sinks):
                self._add_vectors(sinks)
            case _:
                pass

    def _terms(self, operation: Project | GatedProject) -> int:
        return self._coarse if operation.is_coarse else self._fine

    def _add_product(self, name: str, x: Buffer, terms: int, plain_step: int = UNIT) -> None:
        if not self._add_matrix(name, plain_step).is_plain:
            self._wanted.setdefault(x.name, set()).add(terms)

    def _add_experts(self, operation: MixExperts) -> None:
        """Matrices of all experts one after another, as one of so many rows; buffers with a row for each pair."""
        plan, tokens, used = self._plan, self._limits.max_batch_tokens, operation.num_used
        _check_experts(operation, tokens)
        self._add_product(operation.router.weight, operation.x, self._fine)
        self._wanted.setdefault(operation.x.name, set()).add(self._coarse)
        for name in (operation.gate, operation.up, operation.down):
            if self._add_matrix(name).is_plain:
                kind = self._tensors[name].format.name
                raise UnsupportedError(f"weight {name} holds experts as {kind}; the GPU kernels take quantised ones")
        self._add_vectors(operation.router.bias, operation.gate_bias, operation.up_bias, operation.down_bias)
        buffers = expert_buffers(operation)
        for buffer in (buffers.gate, buffers.up, buffers.y):
            terms = frozenset({self._coarse} if buffer == buffers.gate else ())
            area = Area(buffer=buffer, rows=tokens * used, is_output=False, terms=terms, rows_each=used)
            assert plan.areas.setdefault(buffer.name, area) == area, "layers whose experts differ in size"
        for name, size in choice_sizes(operation, tokens).items():
            plan.choices[name] = max(size, plan.choices.get(name, 0))

    def _add_matrix(self, name: str, plain_step: int = UNIT) -> Matrix:
        matrices, tensor = self._plan.matrices, self._tensors[name]
        if name not in matrices:
            format_name = tensor.format.name
            rows, columns = prod(tensor.shape[:-1]), tensor.shape[-1]
            step = plain_step if is_plain(format_name) else UNIT
            if columns % step:
                raise UnsupportedError(f"weight {name} has {columns} columns; the GPU kernels take multiples of {step}")
            matrices[name] = Matrix(name=name, format_name=format_name, num_rows=rows, num_columns=columns)
        return matrices[name]

    def _add_vectors(self, *names: str | None) -> None:
        self._plan.vectors |= {name: prod(self._tensors[name].shape) for name in names if name is not None}

    def _add_areas(self, segment: Segment) -> None:
        buffers = {segment.program.hidden.name: segment.program.hidden}
        for operation in segment.operations:
            buffers |= {buffer.name: buffer for buffer in buffers_of(operation)}
            if isinstance(operation, GatedProject):
                buffers[up_buffer(operation).name] = up_buffer(operation)
        outputs = segment.output_buffers
        for name, buffer in buffers.items():
            rows = self._limits.max_outputs if name in outputs else self._limits.max_batch_tokens
            terms = frozenset(self._wanted.get(name, ()))
            self._plan.areas[name] = Area(buffer=buffer, rows=rows, is_output=name in outputs, terms=terms)


def _is_unknown(operation: Operation) -> bool:
    match operation:
        case Scale() | WeighRows() | Normalize(weight=None) | RotateAndStore(k=None) | Gate(up=None):
            return True
        case RotateAndStore():
            return operation.norms_after
        case Normalize():
            return operation.is_centred or operation.bias is not None or operation.has_own_weights
        case MixExperts():
            return operation.weighing != "softmax" or operation.router_x is not None or operation.scale != 1.0
        case _:
            return False


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
