"""One program on two devices: the first layers on the CPU, the last ones with the head on a GPU.

Owns the crossing of the hidden state and the overlap of the two.  Does not know how either computes.

A long prompt goes in pieces: while the GPU computes one, the CPU computes the next.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

import numpy as np

from runtime.devices.binding import Batch, Best, BestRows, DeviceTimes, DeviceUse, Limits, uses_of
from runtime.devices.cpu import CpuBinding
from runtime.devices.gpu import GpuBinding
from runtime.devices.phases import Piece, pieces_of
from runtime.errors import Cancelled

Result = TypeVar("Result")
PIECE_TOKENS = 128
"""Of a prompt, at a time: enough that neither device waits for its memory rather than its arithmetic."""


class HybridBinding:
    """Two bindings as one; see runtime.devices.binding.Binding.  Both have the same pages under the same numbers."""

    def __init__(self, lower: CpuBinding, upper: GpuBinding) -> None:
        """lower: gives the hidden state of every token of a batch, in place of logits."""
        self._lower, self._upper = lower, upper
        self.limits: Limits = upper.limits
        self.vocab_size = upper.vocab_size
        self.memory = lower.memory.plus(upper.memory)
        self.notes = (*lower.notes, *upper.notes)
        self._cpu_ms = 0.0

    @property
    def uses(self) -> tuple[DeviceUse, ...]:
        return (*uses_of(self._lower), *self._upper.uses)

    @property
    def times(self) -> DeviceTimes:
        upper = self._upper.times
        return DeviceTimes(cpu_ms=self._cpu_ms, gpu_ms=upper.gpu_ms, transfer_ms=upper.transfer_ms)

    @property
    def most_best(self) -> int:
        return self._upper.most_best

    def run(self, batch: Batch) -> np.ndarray:
        return self._run(batch, None, lambda pieces: self._upper.finish(batch, pieces))

    def run_best(self, batch: Batch, best: Best) -> BestRows:
        return self._run(batch, best, lambda pieces: self._upper.finish_best(batch, pieces, best))

    def _run(self, batch: Batch, best: Best | None, finish: Callable[[list[Piece]], Result]) -> Result:
        pieces = pieces_of(batch, most_prompt_tokens=PIECE_TOKENS)
        try:
            first_row = 0
            for piece in pieces:
                if not self._upper.begin(batch, piece, self._hidden(batch, piece), first_row, best):
                    break
                first_row += len(piece.outputs)
            return finish(pieces)
        except Cancelled:
            # One of the two noticed it: the other one ends what it does, and both forget it.
            self._upper.settle()
            self._lower.clear_cancel()
            raise

    def _hidden(self, batch: Batch, piece: Piece) -> np.ndarray:
        """float32 [tokens of the piece, width], valid until the next one."""
        tokens = piece.tokens
        started_s = time.perf_counter()
        hidden = self._lower.run(
            Batch(
                token_ids=batch.token_ids[tokens],
                positions=batch.positions[tokens],
                slots=batch.slots[tokens],
                is_prompt=batch.is_prompt[tokens],
                page_tables=batch.page_tables,
                outputs=np.arange(len(tokens), dtype=np.int32),
                states=batch.states,
            )
        )
        self._cpu_ms += (time.perf_counter() - started_s) * 1e3
        return hidden

    def copy_page(self, source: int, target: int) -> None:
        self._lower.copy_page(source, target)
        self._upper.copy_page(source, target)

    def cancel(self) -> None:
        self._lower.cancel()
        self._upper.cancel()

    def close(self) -> None:
        try:
            self._lower.close()
        finally:
            self._upper.close()
