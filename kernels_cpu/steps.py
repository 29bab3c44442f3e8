"""Lowers a program to the executor's steps: kernel names, operands, chunks, and where threads wait.

Owns which operation is whose: products, attention, experts and recurrent layers have modules of their own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kernels_cpu import operands
from kernels_cpu.activations import Precision
from kernels_cpu.attention_steps import AttentionSteps
from kernels_cpu.expert_steps import ExpertSteps
from kernels_cpu.operands import float_word
from kernels_cpu.plan import Plan
from kernels_cpu.product_steps import ProductSteps
from kernels_cpu.recurrence_steps import RecurrenceSteps
from kernels_cpu.row_steps import row_step
from kernels_cpu.step_pieces import Places, Step, StepPieces
from models.program import (
    Attend,
    Embed,
    Gate,
    GatedProject,
    MixExperts,
    Normalize,
    Operation,
    Project,
    RotateAndStore,
    Scale,
    SelectOutputs,
    SoftCap,
    WeighRows,
)  # fmt: skip
from models.recurrence import Convolve, DeltaRule, Separate
from models.segments import Segment


class StepMaker:
    """Makes the steps of a segment, operation by operation."""

    def __init__(self, segment: Segment, plan: Plan, places: Places, precision: Precision, threads: int) -> None:
        self._segment = segment
        self._pieces = StepPieces(plan=plan, places=places, precision=precision, threads=threads)
        self._products = ProductSteps(self._pieces)
        self._attention = AttentionSteps(self._pieces)
        self._recurrence = RecurrenceSteps(self._pieces)

    def of_run(self, run_idx: int) -> list[Step]:
        """The steps of a run in order."""
        operations = self._segment.runs[run_idx]
        steps = [step for idx, one in enumerate(operations) for step in self._steps(one, operations[idx + 1 :])]
        if self._segment.takes_tokens(run_idx):
            return steps
        return [*self._pieces.quantize(self._segment.program.hidden), *steps]

    def _steps(self, operation: Operation, following: Sequence[Operation]) -> Iterator[Step]:
        pieces = self._pieces
        match operation:
            case Embed():
                yield self._embed(operation)
                yield from pieces.quantize(operation.out)
            case Normalize():
                yield self._normalize(operation)
                if operation.heads is not None:
                    yield from pieces.quantize(operation.out)
            case Project():
                yield from self._products.project(operation, following)
            case GatedProject():
                yield from self._products.gated(operation)
            case Gate(gate=gate, up=up, activation=activation, up_start=up_start):
                yield from pieces.gate_and_quantize(gate, up, activation, up_start)
            case MixExperts():
                yield from ExpertSteps(pieces, self._products, operation).all()
                yield from pieces.quantize(operation.out)
            case RotateAndStore():
                yield self._attention.rotate(operation)
            case Attend():
                yield from self._attention.attend(operation)
            case Convolve() | DeltaRule() | Separate():
                yield from self._recurrence.of(operation)
            case SelectOutputs():
                yield self._select(operation)
            case SoftCap() | Scale() | WeighRows():
                yield row_step(pieces, operation)
                yield from pieces.quantize(operation.x)

    def _embed(self, operation: Embed) -> Step:
        pieces = self._pieces
        matrix = pieces.plan.matrix_of(operation.weight)
        values = {
            "weights": pieces.places.matrices[matrix.names],
            "num_blocks": matrix.blocks_per_row,
            "group_bytes": matrix.group_bytes,
            "token_ids": pieces.places.batch["token_ids"],
            "scale": float_word(operation.scale),
            **pieces.floats("out", operation.out),
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
        pieces = self._pieces
        area, count, heads = pieces.area(operation.out), pieces.count_of(operation.out), operation.heads or 1
        values = {
            **pieces.floats("x", operation.x),
            **pieces.floats("out", operation.out),
            "weight": pieces.vector(operation.weight),
            "width": operation.x.width // heads,
            "epsilon": float_word(operation.epsilon),
            "add": int(operation.add),
            "single": pieces.record(operation.out, 1),
            "double": pieces.record(operation.out, 2),
            "num_blocks": area.num_blocks if area.terms and operation.heads is None else 0,
            "count": pieces.word(count),
            "heads": heads,
            "bias": pieces.vector(operation.bias),
            "own_bytes": 4 * operation.x.width // heads if operation.has_own_weights else 0,
            "is_centred": int(operation.is_centred),
        }
        return Step(
            kernel="row-normalize", layout=operands.NORMALIZE, values=values, fixed=heads, count=count, per_chunk=1
        )

    def _select(self, operation: SelectOutputs) -> Step:
        pieces = self._pieces
        values = {
            **pieces.floats("x", operation.x),
            **pieces.floats("out", operation.out),
            "outputs": pieces.places.batch["outputs"],
            "width": operation.x.width,
        }
        return Step(
            kernel="row-select", layout=operands.SELECT, values=values, fixed=1, count="num_outputs", per_chunk=1
        )
