"""Lowers the operations of recurrent layers to the executor's steps (recurrence.py has their kernels).

Owns their operands and the cutting into chunks.  Works on addresses that binding.py took from its arenas.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from kernels_cpu import operands
from kernels_cpu.bill import state_bytes
from kernels_cpu.operands import float_word
from models.recurrence import Convolve, DeltaRule, Recurrence, Separate, StateLayer

if TYPE_CHECKING:
    from kernels_cpu.steps import Step, StepMaker

CHANNELS_A_CHUNK = 256


class RecurrenceSteps:
    """The steps of one such operation."""

    def __init__(self, maker: StepMaker) -> None:
        self._maker = maker

    def of(self, operation: Recurrence) -> Iterator[Step]:
        """In order, records of what they give included."""
        match operation:
            case Convolve():
                yield self._convolve(operation)
                yield from self._maker.quantize(operation.out)
            case DeltaRule():
                yield self._learn(operation)
                yield from self._maker.quantize(operation.out)
            case Separate():
                yield self._separate(operation)

    def _convolve(self, operation: Convolve) -> Step:
        maker, state = self._maker, operation.state
        none = {"before": 0, "before_stride": 0, "after": 0, "after_stride": 0}
        sides = {"before": operation.before, "after": operation.after}
        for name, buffer in sides.items():
            none |= {} if buffer is None else maker.floats(name, buffer)
        per_chunk = min(CHANNELS_A_CHUNK, state.channels)
        values = {
            **maker.floats("x", operation.x),
            **none,
            **maker.floats("out", operation.out),
            "weight": maker.vector(operation.weight),
            "num_inputs": state.num_inputs,
            "channels": state.channels,
            "channels_per_chunk": per_chunk,
            "has_silu": int(operation.activation == "silu"),
            **self._states(operation.layer_idx, state),
        }
        return maker.step("recurrence-convolve", operands.CONVOLVE, values, -(-state.channels // per_chunk), "num_runs")

    def _learn(self, operation: DeltaRule) -> Step:
        maker, state = self._maker, operation.state
        values = {
            **maker.floats("x", operation.x),
            **maker.floats("decay", operation.decay),
            **maker.floats("learn", operation.learn),
            **maker.floats("out", operation.out),
            "rate": maker.vector(operation.rate),
            "shift": maker.vector(operation.shift),
            "epsilon": float_word(operation.epsilon),
            "scale": float_word(state.key_dim**-0.5),
            "num_heads": state.num_heads,
            "num_key_heads": operation.num_key_heads,
            "is_grouped": int(operation.is_grouped),
            "key_dim": state.key_dim,
            "value_dim": state.value_dim,
            "offset": 4 * state.num_inputs * state.channels,
            **self._states(operation.layer_idx, state),
        }
        return maker.step("recurrence-delta", operands.DELTA, values, state.num_heads, "num_runs")

    def _separate(self, operation: Separate) -> Step:
        maker, run = self._maker, operation.run
        values = {
            **maker.floats("x", operation.x),
            **maker.floats("first", operation.first),
            **maker.floats("second", operation.second),
            "run": run,
            "num_runs": operation.first.width // run,
        }
        return maker.step("row-separate", operands.SEPARATE, values, 1, "num_tokens")

    def _states(self, layer_idx: int, state: StateLayer) -> dict[str, int]:
        places = self._maker.places
        return {
            "runs": places.batch["runs"],
            "states": places.caches[layer_idx],
            "state_bytes": state_bytes(state),
        }
