"""What a bound program will need: every matrix, vector and buffer with its size, before anything is allocated.

Owns the decisions: which matrices stand together, which are requantised, which records a buffer needs.  weights.py and
binding.py take exactly these pieces, in this order; bill.py adds them up.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import prod
from typing import Protocol

from kernels_cpu.activations import RECORDS, Precision, terms_for
from kernels_cpu.arena import aligned
from kernels_cpu.expert_buffers import expert_buffers
from kernels_cpu.isa import Isa
from kernels_cpu.kv_layout import CacheTypes
from kernels_cpu.packed_formats import BLOCK, FLOAT_FORMATS, PACKED_FORMATS, packed_bytes, padded_columns
from kernels_cpu.shape_checks import UnsupportedError, check_group, check_head, check_state
from models.program import (
    Attend,
    Buffer,
    Embed,
    Gate,
    GatedProject,
    MixExperts,
    Normalize,
    Part,
    Project,
    RotateAndStore,
    Scale,
    SelectOutputs,
    WeighRows,
    buffers_of,
    multiplied_weights,
)
from models.recurrence import Convolve, DeltaRule
from models.segments import Segment

ROW_ALIGNMENT = 256  # floats: packed blocks of an embedding are unpacked whole
MAX_SPLIT_CELLS = 512  # (token, span) pairs of partial attention results that are kept at a time
MAX_SPLIT_TOKENS = 8
MOST_LANES = 16  # of any instruction set
OPERAND_BYTES = 256  # reserved for each step
REQUANTIZED_FORMAT = "Q4_0"
WORTH_REQUANTIZING = 0.85  # of the bytes: what 5 bits and more become, while 4-bit formats stay as they are


class TensorLike(Protocol):
    """What is asked of a file's tensor."""

    @property
    def shape(self) -> tuple[int, ...]: ...

    @property
    def format(self) -> FormatLike: ...


class FormatLike(Protocol):
    """What is asked of a block format."""

    @property
    def name(self) -> str: ...


@dataclass(frozen=True, kw_only=True)
class CpuLimits:
    """How much a binding is made for; pages hold 64 positions.

    num_states: of layers that keep one, for all sequences together; 0 for programs without such layers.
    """

    max_batch_tokens: int
    max_outputs: int
    max_sequences: int
    context_size: int
    num_pages: int
    num_states: int = 0
    cache_types: CacheTypes = CacheTypes.named("f16", "f16")


@dataclass(frozen=True, kw_only=True)
class Matrix:
    """A packed matrix, or two whose groups of rows alternate (gate, up).  stored_format: of its file.

    num_parts: matrices of num_rows rows, such as experts, that stand one after another; each begins a group of rows.
    """

    names: tuple[str, ...]
    format_name: str
    stored_format: str
    num_rows: int
    num_columns: int
    lanes: int
    num_parts: int = 1

    @property
    def group_bytes(self) -> int:
        return packed_bytes(self.format_name, self.lanes, self.num_columns, self.lanes)

    @property
    def groups_per_part(self) -> int:
        """Groups of rows of one part; the last may have rows of zeros at its end."""
        return -(-self.num_rows // self.lanes)

    @property
    def num_groups(self) -> int:
        """Groups of rows of one of the matrices."""
        return self.groups_per_part * self.num_parts

    @property
    def size_bytes(self) -> int:
        return self.group_bytes * self.num_groups * len(self.names)

    @property
    def is_float(self) -> bool:
        return self.format_name in FLOAT_FORMATS

    @property
    def is_requantized(self) -> bool:
        return self.format_name != self.stored_format

    def requantized(self) -> Matrix:
        """In fewer bits, where that takes a good deal less and columns fill the blocks."""
        narrow = replace(self, format_name=REQUANTIZED_FORMAT)
        has_blocks = self.num_columns % (2 * BLOCK if self.is_float else BLOCK) == 0
        return narrow if has_blocks and narrow.group_bytes < WORTH_REQUANTIZING * self.group_bytes else self

    @property
    def as_stored(self) -> Matrix:
        """As it would be packed in its file's format."""
        return replace(self, format_name=self.stored_format)

    @property
    def blocks_per_row(self) -> int:
        """Packed blocks of a row; columns for float formats."""
        return self.num_columns if self.is_float else -(-self.num_columns // PACKED_FORMATS[self.format_name].columns)


@dataclass(frozen=True, kw_only=True)
class Area:
    """A buffer in memory: floats [rows][row_floats] and records where products want them."""

    buffer: Buffer
    rows: int
    is_output: bool
    terms: frozenset[int]

    @property
    def row_bytes(self) -> int:
        return 4 * (-(-self.buffer.width // ROW_ALIGNMENT) * ROW_ALIGNMENT)

    @property
    def float_bytes(self) -> int:
        return self.row_bytes * self.rows

    @property
    def num_blocks(self) -> int:
        """Blocks of 32 columns that records hold."""
        return padded_columns(self.buffer.width) // BLOCK

    def record_bytes(self, terms: int) -> int:
        return self.num_blocks * padded_tokens(self.rows) * RECORDS[terms].size_bytes

    @property
    def size_bytes(self) -> int:
        return aligned(self.float_bytes) + sum(aligned(self.record_bytes(terms)) for terms in self.terms)


def padded_tokens(count: int) -> int:
    """Tokens for which records have room: tiles of four, or a single one."""
    return 1 if count == 1 else -(-count // 4) * 4


@dataclass
class Plan:
    """The pieces of a bound program."""

    matrices: dict[tuple[str, ...], Matrix] = field(default_factory=dict)
    vectors: dict[str, int] = field(default_factory=dict)  # float32 weights: values
    turned: set[str] = field(default_factory=set)  # of them, those [rows, columns] that are kept column by column
    areas: dict[str, Area] = field(default_factory=dict)
    num_steps: int = 0
    num_tables: int = 0  # of steps: one for each run
    requantized: frozenset[str] = frozenset()  # weights that become Q4_0 where they would take more
    experts_used: int = 0  # by every token, in each layer with experts

    def matrix_of(self, name: str) -> Matrix:
        return self.matrices[(name,)]


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
    wanted: dict[str, set[int]] = {}
    for operation in segment.operations:
        match operation:
            case Embed(weight=weight):
                _add_matrix(plan, tensors, (weight,), isa)
            case Normalize(weight=str(weight)) | Scale(weight=weight):
                _add_vector(plan, tensors, weight)
            case Project(x=x, parts=parts, is_coarse=is_coarse):
                for part in parts:
                    matrix = _add_matrix(plan, tensors, (part.weight,), isa)
                    _want_records(wanted, matrix, x, terms_for(precision, is_coarse=is_coarse))
                    if part.bias is not None:
                        _add_vector(plan, tensors, part.bias)
            case GatedProject(x=x, gate=gate, up=up):
                for names in gated_names(tensors, gate, up):
                    matrix = _add_matrix(plan, tensors, names, isa)
                    _want_records(wanted, matrix, x, terms_for(precision, is_coarse=operation.is_coarse))
            case MixExperts():
                _add_experts(plan, tensors, operation, limits, isa, precision, wanted)
            case RotateAndStore(q_norm=q_norm, k_norm=k_norm, cache=cache):
                check_head(cache.head_dim, operation.layer_idx, limits.cache_types)
                check_group(operation.num_heads // cache.num_kv_heads, operation.layer_idx)
                for name in (q_norm, k_norm):
                    if name is not None:
                        _add_vector(plan, tensors, name)
            case Attend(sinks=str(sinks)):
                _add_vector(plan, tensors, sinks)
            case Convolve(weight=weight, state=state):
                check_state(state, operation.layer_idx)
                _add_vector(plan, tensors, weight)
                plan.turned.add(weight)
            case DeltaRule(rate=rate, shift=shift):
                _add_vector(plan, tensors, rate)
                _add_vector(plan, tensors, shift)
            case _:
                pass
    _add_areas(plan, segment, tensors, limits, wanted)
    plan.num_tables = len(segment.runs)
    arrivals = sum(not segment.takes_tokens(idx) for idx in range(len(segment.runs)))
    plan.num_steps = arrivals + sum(_steps_of(operation) for operation in segment.operations)
    return plan


def gated_names(tensors: Mapping[str, TensorLike], gate: str, up: str) -> list[tuple[str, ...]]:
    """Gate and up stand together where they share a format, else each for itself."""
    if tensors[gate].format.name == tensors[up].format.name:
        return [(gate, up)]
    return [(gate,), (up,)]


def up_buffer(operation: GatedProject) -> Buffer:
    """Where `up` goes when it cannot stand together with the gate."""
    return Buffer(name=f"{operation.out.name}.up", width=operation.out.width)


def _add_experts(
    plan: Plan,
    tensors: Mapping[str, TensorLike],
    operation: MixExperts,
    limits: CpuLimits,
    isa: Isa,
    precision: Precision,
    wanted: dict[str, set[int]],
) -> None:
    """Matrices of all experts one after another, and the buffers between them."""
    coarse, fine = terms_for(precision, is_coarse=True), terms_for(precision)
    _want_records(
        wanted, _add_matrix(plan, tensors, (operation.router.weight,), isa), operation.router_x or operation.x, fine
    )
    for name in (operation.router.bias, operation.preference, operation.expert_scale):
        if name is not None:
            _add_vector(plan, tensors, name)
    for name in (operation.gate_bias, operation.up_bias, operation.down_bias):
        if name is not None:
            _add_vector(plan, tensors, name)
            plan.vectors[name] += MOST_LANES  # the last expert's last group reads a whole vector, however few its rows
    buffers = expert_buffers(operation, limits.max_batch_tokens)
    inner: dict[str, set[int]] = {}
    for name, x in ((operation.gate, buffers.x), (operation.up, buffers.x), (operation.down, buffers.gate)):
        matrix = _add_matrix(plan, tensors, (name,), isa, num_parts=operation.num_experts)
        _want_records(inner, matrix, x, coarse)
    wanted.setdefault(operation.x.name, set()).update(inner.get(buffers.x.name, ()))
    pairs = limits.max_batch_tokens * operation.num_used
    for buffer in buffers.of_pairs:
        # A tile of four may begin at the last pair: three more records are read, and what comes of them is left.
        plan.areas[buffer.name] = Area(
            buffer=buffer, rows=pairs + 4, is_output=False, terms=frozenset(inner.get(buffer.name, ()))
        )
    for buffer, rows in ((buffers.route, limits.max_batch_tokens), (buffers.groups, 1)):
        plan.areas[buffer.name] = Area(buffer=buffer, rows=rows, is_output=False, terms=frozenset())
    assert plan.experts_used in (0, operation.num_used), "layers use different numbers of experts"
    plan.experts_used = operation.num_used


def _steps_of(operation: object) -> int:
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


def _add_matrix(
    plan: Plan, tensors: Mapping[str, TensorLike], names: tuple[str, ...], isa: Isa, *, num_parts: int = 1
) -> Matrix:
    if names not in plan.matrices:
        tensor = tensors[names[0]]
        format_name = tensor.format.name
        if format_name not in FLOAT_FORMATS and format_name not in PACKED_FORMATS:
            raise UnsupportedError(
                f"weight {names[0]} has format {format_name}, which the CPU kernels cannot multiply with"
            )
        rows, columns = prod(tensor.shape[:-1]) // num_parts, tensor.shape[-1]
        matrix = Matrix(
            names=names,
            format_name=format_name,
            stored_format=format_name,
            num_rows=rows,
            num_columns=columns,
            lanes=isa.lanes,
            num_parts=num_parts,
        )
        plan.matrices[names] = matrix.requantized() if plan.requantized.issuperset(names) else matrix
    return plan.matrices[names]


def _add_vector(plan: Plan, tensors: Mapping[str, TensorLike], name: str) -> None:
    plan.vectors[name] = prod(tensors[name].shape)


def _want_records(wanted: dict[str, set[int]], matrix: Matrix, x: Buffer, terms: int) -> None:
    if not matrix.is_float:
        wanted.setdefault(x.name, set()).add(terms)


def _add_areas(
    plan: Plan, segment: Segment, tensors: Mapping[str, TensorLike], limits: CpuLimits, wanted: dict[str, set[int]]
) -> None:
    outputs = _output_buffers(segment)
    buffers = {segment.program.hidden.name: segment.program.hidden}
    for operation in segment.operations:
        buffers |= {buffer.name: buffer for buffer in buffers_of(operation)}
        if isinstance(operation, GatedProject) and len(gated_names(tensors, operation.gate, operation.up)) == 2:
            extra = up_buffer(operation)
            buffers[extra.name] = extra
    for name, buffer in buffers.items():
        is_output = name in outputs
        rows = limits.max_outputs if is_output else limits.max_batch_tokens
        terms = frozenset(wanted.get(name, ()))
        plan.areas[name] = Area(buffer=buffer, rows=rows, is_output=is_output, terms=terms)


def _output_buffers(segment: Segment) -> set[str]:
    """Names of the buffers that hold only rows whose logits are wanted."""
    found: set[str] = set()
    for operation in segment.operations:
        match operation:
            case SelectOutputs(out=out):
                found.add(out.name)
            case Normalize(x=x, out=out) | GatedProject(x=x, out=out) if x.name in found:
                found.add(out.name)
            case Project(x=x, parts=parts) if x.name in found:
                found.update(part.out.name for part in parts if isinstance(part, Part))
            case _:
                pass
    return found
