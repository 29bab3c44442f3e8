"""What goes to the card with a batch and comes back from it, through memory that the card copies without a detour.

Owns these arrays on the host.  Does not know what is computed in between, nor when a copy is done.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from kernels_gpu import candidates
from kernels_gpu.candidates import Candidates
from kernels_gpu.device import Device, Region, Stream
from kernels_gpu.launches import Best
from kernels_gpu.plan import GpuLimits, Plan
from models.segments import Segment


class Exchange:
    """The arrays of one bound segment.  workspace: the pieces on the card; most_candidates: that a row may give."""

    def __init__(
        self,
        segment: Segment,
        plan: Plan,
        limits: GpuLimits,
        device: Device,
        workspace: Mapping[str, Region],
        most_candidates: int,
    ) -> None:
        self._device, self._workspace = device, workspace
        program, tokens = segment.program, limits.max_batch_tokens
        counts = {"token_ids": tokens, "positions": tokens, "slots": tokens, "outputs": limits.max_outputs}
        self._host = {name: device.host_array((count,), np.int32) for name, count in counts.items()}
        self._host["page_tables"] = device.host_array((limits.max_sequences, limits.table_row), np.int32)
        stride, self._width = plan.areas[program.hidden.name].stride, program.hidden.width
        self._hidden_region = workspace[f"floats {program.hidden.name}"]
        self._arriving = device.host_array((tokens if segment.takes_hidden else 1, stride), np.float32)
        self._leaving = device.host_array((tokens if segment.gives_hidden else 1, stride), np.float32)
        if segment.has_head:
            area = plan.areas[program.logits.name]
            self._vocab_size, self._stride = program.logits.width, area.stride
            self._logits_region = workspace[f"floats {program.logits.name}"]
            self._logits = device.host_array((area.rows, area.stride), np.float32)
            self._best_ids = device.host_array((area.rows * most_candidates,), np.int32)
            self._best_logits = device.host_array((area.rows * most_candidates,), np.float32)

    @property
    def logits_on_card(self) -> tuple[Region, int]:
        """Where the rows of logits lie on the card, and the floats from row to row."""
        return self._logits_region, self._stride

    def upload(
        self, token_ids: np.ndarray | None, hidden: np.ndarray | None, stream: Stream, **arrays: np.ndarray
    ) -> None:
        """Queues a batch; what was queued before must have been taken up.  arrays: int32, by name.

        Either token_ids or the hidden state, for a run that begins without the embedding.
        """
        for name, values in arrays.items():
            self._send(name, values, stream)
        if token_ids is not None:
            self._send("token_ids", token_ids, stream)
        if hidden is not None:
            count, width = hidden.shape
            self._arriving[:count, :width] = hidden
            self._device.upload(self._hidden_region, self._arriving[:count], stream)

    def _send(self, name: str, values: np.ndarray, stream: Stream) -> None:
        host = self._host[name]
        # The card has what the host has, zeros at first; the runs of one batch send the same again.
        if len(values) and not np.array_equal(host[: len(values)], values):
            host[: len(values)] = values
            self._device.upload(self._workspace[name], host[: len(values)], stream)

    def download_hidden(self, rows: int, first_row: int, stream: Stream) -> None:
        """Queues the way back of the hidden state: so many rows, to stand from first_row on."""
        self._device.download(self._leaving[first_row : first_row + rows], self._hidden_region, stream)

    def hidden(self, first_row: int, count: int) -> np.ndarray:
        """Rows of the hidden state that came back, float32 [count, width]."""
        return self._leaving[first_row : first_row + count, : self._width]

    def download(self, rows: int, first_row: int, best: Best | None, stream: Stream) -> None:
        """Queues the way back: so many rows of logits, to stand from first_row on, or their best candidates."""
        if not rows:
            return
        if best is None:
            self._device.download(self._logits[first_row : first_row + rows], self._logits_region, stream)
            return
        part = slice(first_row * best.kept, (first_row + rows) * best.kept)
        self._device.download(self._best_ids[part], self._workspace[candidates.IDS], stream)
        self._device.download(self._best_logits[part], self._workspace[candidates.LOGITS], stream)

    def rows(self, count: int) -> np.ndarray:
        """The first rows of logits that came back, float32 [count, vocabulary]."""
        return self._logits[:count, : self._vocab_size]

    def best(self, count: int, best: Best) -> Candidates:
        """The candidates of the first rows that came back."""
        shape, size = (count, best.kept), count * best.kept
        return Candidates(ids=self._best_ids[:size].reshape(shape), logits=self._best_logits[:size].reshape(shape))
