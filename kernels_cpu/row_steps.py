"""Lowers what changes rows in place to the executor's steps (rows.py has their kernels).

Owns their operands.  Works on addresses that binding.py took from its arenas.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernels_cpu import operands
from kernels_cpu.operands import float_word
from models.program import Scale, SoftCap, WeighRows

if TYPE_CHECKING:
    from kernels_cpu.steps import Step, StepMaker


def row_step(maker: StepMaker, operation: SoftCap | Scale | WeighRows) -> Step:
    """The step of one such operation: a chunk is a row."""
    x = operation.x
    values = {**maker.floats("x", x), "width": x.width}
    match operation:
        case SoftCap():
            kernel, layout = "cap", operands.CAP
            values["cap"] = float_word(operation.cap)
        case Scale():
            kernel, layout = "scale", operands.SCALE
            values["weight"] = maker.vector(operation.weight)
        case WeighRows():
            kernel, layout = "weigh", operands.WEIGH
            values |= maker.floats("by", operation.by)
    return maker.step(f"row-{kernel}", layout, values, 1, maker.count_of(x))
