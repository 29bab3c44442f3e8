"""Lowers the operations of recurrent layers to the executor's steps (recurrence.py has their kernels).

Owns their operands and the cutting into chunks.  Works on addresses that binding.py took from its arenas.
"""

from __future__ import annotations

from collections.abc import Iterator

from kernels_cpu import operands
from kernels_cpu.bill import state_bytes
from kernels_cpu.operands import float_word
from kernels_cpu.step_pieces import Step, StepPieces
from models.recurrence import Convolve, DeltaRule, Recurrence, Separate, StateLayer

CHANNELS_A_CHUNK = 256


class RecurrenceSteps:
    """The steps of one such operation."""

    def __init__(self, pieces: StepPieces) -> None:
        self._pieces = pieces

    def of(self, operation: Recurrence) -> Iterator[Step]:
        """In order, records of what they give included."""
        match operation:
            case Convolve():
                yield self._convolve(operation)
                yield from self._pieces.quantize(operation.out)
            case DeltaRule():
                yield self._learn(operation)
                yield from self._pieces.quantize(operation.out)
            case Separate():
                yield self._separate(operation)

    def _convolve(self, operation: Convolve) -> Step:
        pieces, state = self._pieces, operation.state
        none = {"before": 0, "before_stride": 0, "after": 0, "after_stride": 0}
        sides = {"before": operation.before, "after": operation.after}
        for name, buffer in sides.items():
            none |= {} if buffer is None else pieces.floats(name, buffer)
        per_chunk = min(CHANNELS_A_CHUNK, state.channels)
        values = {
            **pieces.floats("x", operation.x),
            **none,
            **pieces.floats("out", operation.out),
            "weight": pieces.vector(operation.weight),
            "num_inputs": state.num_inputs,
            "channels": state.channels,
            "channels_per_chunk": per_chunk,
            "has_silu": int(operation.activation == "silu"),
            **self._states(operation.layer_idx, state),
        }
        return pieces.step(
            "recurrence-convolve", operands.CONVOLVE, values, -(-state.channels // per_chunk), "num_runs"
        )

    def _learn(self, operation: DeltaRule) -> Step:
        pieces, state = self._pieces, operation.state
        values = {
            **pieces.floats("x", operation.x),
            **pieces.floats("decay", operation.decay),
            **pieces.floats("learn", operation.learn),
            **pieces.floats("out", operation.out),
            "rate": pieces.vector(operation.rate),
            "shift": pieces.vector(operation.shift),
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
        return pieces.step("recurrence-delta", operands.DELTA, values, state.num_heads, "num_runs")

    def _separate(self, operation: Separate) -> Step:
        pieces, run = self._pieces, operation.run
        values = {
            **pieces.floats("x", operation.x),
            **pieces.floats("first", operation.first),
            **pieces.floats("second", operation.second),
            "run": run,
            "num_runs": operation.first.width // run,
        }
        return pieces.step("row-separate", operands.SEPARATE, values, 1, "num_tokens")

    def _states(self, layer_idx: int, state: StateLayer) -> dict[str, int]:
        places = self._pieces.places
        return {
            "runs": places.batch["runs"],
            "states": places.caches[layer_idx],
            "state_bytes": state_bytes(state),
        }
