"""Lowers what changes rows in place to the executor's steps (rows.py has their kernels).

Owns their operands.  Works on addresses that binding.py took from its arenas.
"""

from __future__ import annotations

from kernels_cpu import operands
from kernels_cpu.operands import float_word
from kernels_cpu.step_pieces import Step, StepPieces
from models.program import Scale, SoftCap, WeighRows


def row_step(pieces: StepPieces, operation: SoftCap | Scale | WeighRows) -> Step:
    """The step of one such operation: a chunk is a row."""
    x = operation.x
    values = {**pieces.floats("x", x), "width": x.width}
    match operation:
        case SoftCap():
            kernel, layout = "cap", operands.CAP
            values["cap"] = float_word(operation.cap)
        case Scale():
            kernel, layout = "scale", operands.SCALE
            values["weight"] = pieces.vector(operation.weight)
        case WeighRows():
            kernel, layout = "weigh", operands.WEIGH
            values |= pieces.floats("by", operation.by)
    return pieces.step(f"row-{kernel}", layout, values, 1, pieces.count_of(x))
