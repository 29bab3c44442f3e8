"""Decides what a bound program needs, before anything is allocated.

Owns which matrices stand together, which are requantised, which records a buffer needs, and what these kernels refuse.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from kernels_cpu.activations import Precision, terms_for
from kernels_cpu.expert_buffers import expert_buffers
from kernels_cpu.isa import Isa
from kernels_cpu.packed_formats import FLOAT_FORMATS, PACKED_FORMATS
from kernels_cpu.plan import Area, CpuLimits, Matrix, Plan, up_buffer
from kernels_cpu.shape_checks import UnsupportedError, check_group, check_head, check_state
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
    multiplied_weights,
    weights_of,
)
from models.recurrence import Convolve, DeltaRule
from models.segments import Segment
from models.tensor_like import TensorLike

MOST_LANES = 16  # of any instruction set


def make_plan(
    segment: Segment,
    tensors: Mapping[str, TensorLike],
    limits: CpuLimits,
    isa: Isa,
    precision: Precision,
    *,
    requantize: bool = False,
) -> Plan:
    """The pieces for a segment with a file's tensors.  Raises UnsupportedError naming the weight.

    requantize: weights that products multiply with take 4.5 bits where they would take more (see requantize.py).
    """
    plan = Plan(requantized=multiplied_weights(segment.operations) if requantize else frozenset())
    return PlanMaker(plan, tensors, limits, isa, precision).of(segment)


class PlanMaker:
    """Collects what the operations of one segment need."""

    def __init__(
        self, plan: Plan, tensors: Mapping[str, TensorLike], limits: CpuLimits, isa: Isa, precision: Precision
    ) -> None:
        self._plan, self._tensors, self._limits, self._isa = plan, tensors, limits, isa
        self._coarse, self._fine = terms_for(precision, is_coarse=True), terms_for(precision)
        self._wanted: dict[str, set[int]] = {}  # terms of the records of a buffer

    def of(self, segment: Segment) -> Plan:
        """Everything that a segment needs."""
        for operation in segment.operations:
            self._add(operation)
        self._add_areas(segment)
        plan, num_runs = self._plan, len(segment.runs)
        plan.num_tables = num_runs
        arrivals = sum(not segment.takes_tokens(idx) for idx in range(num_runs))
        plan.num_steps = arrivals + sum(map(_steps_of, segment.operations))
        return plan

    def _add(self, operation: Operation) -> None:
        match operation:
            case Embed(weight=weight):
                self._add_matrix((weight,))
            case Normalize() | Scale():
                self._add_vectors(*weights_of(operation))
            case Project(x=x, parts=parts):
                for part in parts:
                    self._add_product((part.weight,), x, self._terms(operation))
                    self._add_vectors(part.bias)
            case GatedProject(x=x, gate=gate, up=up):
                are_alike = self._tensors[gate].format.name == self._tensors[up].format.name
                for names in [(gate, up)] if are_alike else [(gate,), (up,)]:
                    self._add_product(names, x, self._terms(operation))
            case MixExperts():
                self._add_experts(operation)
            case RotateAndStore(cache=cache):
                check_head(cache.head_dim, operation.layer_idx, self._limits.cache_types)
                check_group(operation.num_heads // cache.num_kv_heads, operation.layer_idx)
                self._add_vectors(operation.q_norm, operation.k_norm)
            case Attend(sinks=sinks):
                self._add_vectors(sinks)
            case Convolve(weight=weight, state=state):
                check_state(state, operation.layer_idx)
                self._add_vectors(weight)
                self._plan.turned.add(weight)
            case DeltaRule(rate=rate, shift=shift):
                self._add_vectors(rate, shift)
            case _:
                pass

    def _terms(self, operation: Project | GatedProject) -> int:
        return self._coarse if operation.is_coarse else self._fine

    def _add_product(self, names: tuple[str, ...], x: Buffer, terms: int) -> None:
        if not self._add_matrix(names).is_float:
            self._wanted.setdefault(x.name, set()).add(terms)

    def _add_experts(self, operation: MixExperts) -> None:
        """Matrices of all experts one after another, and the buffers between them."""
        plan, tokens = self._plan, self._limits.max_batch_tokens
        self._add_product((operation.router.weight,), operation.router_x or operation.x, self._fine)
        self._add_vectors(operation.router.bias, operation.preference, operation.expert_scale)
        for name in (operation.gate_bias, operation.up_bias, operation.down_bias):
            if name is not None:
                self._add_vectors(name)
                plan.vectors[name] += MOST_LANES  # the last expert's last group reads a whole vector, however few rows
        buffers = expert_buffers(operation, tokens)
        inner: dict[str, frozenset[int]] = {}
        for name, x in ((operation.gate, buffers.x), (operation.up, buffers.x), (operation.down, buffers.gate)):
            if not self._add_matrix((name,), num_parts=operation.num_experts).is_float:
                inner[x.name] = frozenset({self._coarse})
        self._wanted.setdefault(operation.x.name, set()).update(inner.get(buffers.x.name, ()))
        for buffer in buffers.of_pairs:
            # A tile of four may begin at the last pair: three more records are read, and what comes of them is left.
            rows, terms = tokens * operation.num_used + 4, inner.get(buffer.name, frozenset())
            plan.areas[buffer.name] = Area(buffer=buffer, rows=rows, is_output=False, terms=terms)
        for buffer, rows in ((buffers.route, tokens), (buffers.groups, 1)):
            plan.areas[buffer.name] = Area(buffer=buffer, rows=rows, is_output=False, terms=frozenset())
        assert plan.experts_used in (0, operation.num_used), "layers use different numbers of experts"
        plan.experts_used = operation.num_used

    def _add_matrix(self, names: tuple[str, ...], *, num_parts: int = 1) -> Matrix:
        matrices, tensor = self._plan.matrices, self._tensors[names[0]]
        if names not in matrices:
            format_name = tensor.format.name
            if format_name not in FLOAT_FORMATS and format_name not in PACKED_FORMATS:
                raise UnsupportedError(
                    f"weight {names[0]} has format {format_name}, which the CPU kernels cannot multiply with"
                )
            matrix = Matrix(
                names=names,
                format_name=format_name,
                stored_format=format_name,
                num_rows=prod(tensor.shape[:-1]) // num_parts,
                num_columns=tensor.shape[-1],
                lanes=self._isa.lanes,
                num_parts=num_parts,
            )
            matrices[names] = matrix.requantized() if self._plan.requantized.issuperset(names) else matrix
        return matrices[names]

    def _add_vectors(self, *names: str | None) -> None:
        self._plan.vectors |= {name: prod(self._tensors[name].shape) for name in names if name is not None}

    def _add_areas(self, segment: Segment) -> None:
        buffers = {segment.program.hidden.name: segment.program.hidden}
        for operation in segment.operations:
            buffers |= {buffer.name: buffer for buffer in buffers_of(operation)}
            if isinstance(operation, GatedProject) and (operation.gate, operation.up) not in self._plan.matrices:
                buffers[up_buffer(operation).name] = up_buffer(operation)
        outputs = segment.output_buffers
        for name, buffer in buffers.items():
            rows = self._limits.max_outputs if name in outputs else self._limits.max_batch_tokens
            terms = frozenset(self._wanted.get(name, ()))
            self._plan.areas[name] = Area(buffer=buffer, rows=rows, is_output=name in outputs, terms=terms)


def _steps_of(operation: Operation) -> int:
    match operation:
        case Project(parts=parts):
            return 2 * len(parts)
        case GatedProject():
            return 4
        case MixExperts():
            return 12
        case Attend():
            return 3
        case Embed() | Gate() | Scale() | WeighRows() | Convolve() | DeltaRule() | Normalize(heads=int()):
            return 2
        case _:
            return 1
