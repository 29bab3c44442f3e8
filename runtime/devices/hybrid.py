"""One program on two devices: some of its runs on the CPU, others on a GPU, the last one with the head there.

Owns the crossing of the hidden state and the overlap of the two.  Does not know how either computes.

A long prompt goes in pieces: while the GPU computes one, the CPU computes the next.  Where the hidden state crosses
more than once, two pieces are on their way together, in turn; at every run a piece comes after the one before it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import numpy as np

from models.segments import Link
from runtime.devices.binding import Batch, Best, BestRows, DeviceTimes, DeviceUse, Limits, uses_of
from runtime.devices.cpu import CpuBinding
from runtime.devices.gpu import GpuBinding
from runtime.devices.phases import Piece, pieces_of
from runtime.errors import Cancelled

Result = TypeVar("Result")
_ARRIVED = object()
PIECES_TOGETHER = 2
PIECE_TOKENS = 128
"""Of a prompt, at a time: enough that neither device waits for its memory rather than its arithmetic."""


class HybridBinding:
    """Two bindings as one; see runtime.devices.binding.Binding.  Both have the same pages under the same numbers."""

    def __init__(self, lower: CpuBinding, upper: GpuBinding, links: Sequence[Link]) -> None:
        """links: the runs in order, those of `lower` by "cpu" and those of `upper` by "gpu", which has the last one."""
        self._lower, self._upper, self._links = lower, upper, links
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
            self._send_all(batch, pieces, best)
            return finish(pieces)
        except Cancelled:
            # One of the two noticed it: the other one ends what it does, and both forget it.
            self._upper.settle()
            self._lower.clear_cancel()
            raise

    def _send_all(self, batch: Batch, pieces: list[Piece], best: Best | None) -> None:
        """Brings every piece to its last run, which is queued then."""
        waiting, first_token, first_row = iter(pieces), 0, 0
        under_way: list[Iterator[None]] = []
        while True:
            while len(under_way) < PIECES_TOGETHER and (piece := next(waiting, None)) is not None:
                under_way.append(self._send(batch, piece, first_token, first_row, best))
                first_token, first_row = first_token + len(piece.tokens), first_row + len(piece.outputs)
            if not under_way:
                return
            under_way = [way for way in under_way if next(way, _ARRIVED) is not _ARRIVED]

    def _send(self, batch: Batch, piece: Piece, first_token: int, first_row: int, best: Best | None) -> Iterator[None]:
        """One piece's way through all runs; stops wherever the GPU is to be waited for.

        first_token, first_row: where its hidden states, and its logits, stand among those of the batch.
        """
        hidden: np.ndarray | None = None
        for link in self._links[:-1]:
            if link.owner == "cpu":
                started_s = time.perf_counter()
                hidden = self._lower.compute(batch, piece, link.run_idx, hidden)
                self._cpu_ms += (time.perf_counter() - started_s) * 1e3
            else:
                crossing = self._upper.begin_run(batch, piece, link.run_idx, hidden, first_token)
                yield
                hidden = self._upper.finish_run(crossing)
        last_run = self._links[-1].run_idx
        if not self._upper.begin(batch, piece, hidden, first_row, best, run_idx=last_run):
            raise Cancelled("The run was stopped.")

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
