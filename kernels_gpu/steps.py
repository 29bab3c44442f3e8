"""Lowers a segment to launches: which kernel, on which grid, with which arguments, for a batch of a given shape.

Owns which operation is whose: products, attention and experts have modules of their own.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from kernels_gpu.attention_steps import AttentionSteps
from kernels_gpu.expert_steps import ExpertSteps
from kernels_gpu.launch_pieces import ROW_THREADS, LaunchPieces
from kernels_gpu.launches import BatchShape, Launch, Places, launch
from kernels_gpu.modules import ROWS_MODULE, product_module
from kernels_gpu.plan import GpuLimits, Plan, attention_tokens
from kernels_gpu.precision import Precision, terms_for
from kernels_gpu.product_steps import PRODUCT_THREADS, gated, pieces_of, project
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
    SelectOutputs,
    SoftCap,
)
from models.segments import Segment


@dataclass(frozen=True, kw_only=True)
class StepMaker:
    """Makes the launches of a segment."""

    segment: Segment
    plan: Plan
    limits: GpuLimits
    precision: Precision
    places: Places

    def launches(self, shape: BatchShape) -> list[Launch]:
        """Everything for a run with a batch of that shape, in order."""
        pieces = LaunchPieces(
            plan=self.plan, limits=self.limits, places=self.places, precision=self.precision, shape=shape
        )
        steps = [step for operation in self.segment.runs[shape.run_idx] for step in self._steps(pieces, operation)]
        if self.segment.takes_tokens(shape.run_idx):
            return steps
        return [*pieces.quantize(self.segment.program.hidden), *steps]

    def _steps(self, pieces: LaunchPieces, operation: Operation) -> Iterator[Launch]:
        attention = AttentionSteps(pieces, attention_tokens(self.segment, self.limits))
        match operation:
            case Embed():
                yield _embed(pieces, operation)
                yield from pieces.quantize(operation.out)
            case Normalize():
                yield _normalize(pieces, operation)
            case Project():
                yield from project(pieces, operation)
            case GatedProject():
                yield from gated(pieces, operation)
            case Gate(up=Buffer() as up):
                yield from pieces.gate(operation.gate, up, operation.activation)
            case MixExperts():
                yield from ExpertSteps(pieces, operation).all()
            case RotateAndStore():
                yield attention.rotate(operation)
            case Attend():
                yield from attention.attend(operation)
            case SelectOutputs():
                yield _select(pieces, operation)
                yield from pieces.quantize(operation.out)
            case SoftCap():
                yield _cap(pieces, operation)


def _embed(pieces: LaunchPieces, operation: Embed) -> Launch:
    matrix = pieces.plan.matrices[operation.weight]
    arguments = (pieces.places.matrices[matrix.name], matrix.num_rows, pieces_of(matrix), pieces.batch("token_ids"))
    return launch(
        product_module(matrix, terms_for(pieces.precision)), "embed", (pieces.shape.num_tokens,), PRODUCT_THREADS,
        *arguments, float(operation.scale), *pieces.floats(operation.out),
    )  # fmt: skip


def _normalize(pieces: LaunchPieces, operation: Normalize) -> Launch:
    area = pieces.area(operation.out)
    return launch(
        ROWS_MODULE, "normalize", (pieces.count(operation.x),), ROW_THREADS,
        *pieces.floats(operation.x), pieces.vector(operation.weight), float(operation.epsilon), int(operation.add),
        *pieces.floats(operation.out), area.units, pieces.records(operation.out, 1), pieces.records(operation.out, 2),
        area.rows,
    )  # fmt: skip


def _select(pieces: LaunchPieces, operation: SelectOutputs) -> Launch:
    return launch(
        ROWS_MODULE, "select_rows", (pieces.shape.num_outputs,), ROW_THREADS,
        *pieces.floats(operation.x), pieces.batch("outputs"), *pieces.floats(operation.out),
        pieces.area(operation.x).units,
    )  # fmt: skip


def _cap(pieces: LaunchPieces, operation: SoftCap) -> Launch:
    x = operation.x
    return launch(
        ROWS_MODULE, "cap_softly", (-(-x.width // ROW_THREADS), pieces.count(x)), ROW_THREADS,
        *pieces.floats(x), x.width, float(operation.cap),
    )  # fmt: skip
