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
        self._device, self._workspace, self._takes_tokens = device, workspace, segment.takes_tokens
        program, tokens = segment.program, limits.max_batch_tokens
        counts = {"token_ids": tokens, "positions": tokens, "slots": tokens, "outputs": limits.max_outputs}
        self._host = {name: device.host_array((count,), np.int32) for name, count in counts.items()}
        self._host["page_tables"] = device.host_array((limits.max_sequences, limits.table_row), np.int32)
        result = program.logits if segment.gives_logits else program.hidden
        area = plan.areas[result.name]
        self._width, self._stride = result.width, area.stride
        self._result_region = workspace[f"floats {result.name}"]
        self._result = device.host_array((area.rows, area.stride), np.float32)
        self._hidden_region = workspace[f"floats {program.hidden.name}"]
        self._hidden = device.host_array((tokens, plan.areas[program.hidden.name].stride), np.float32)
        self._ids = device.host_array((area.rows * most_candidates,), np.int32)
        self._logits = device.host_array((area.rows * most_candidates,), np.float32)

    @property
    def result(self) -> tuple[Region, int]:
        """Where the rows of the result lie on the card, and the floats from row to row."""
        return self._result_region, self._stride

    def upload(
        self, token_ids: np.ndarray | None, hidden: np.ndarray | None, stream: Stream, **arrays: np.ndarray
    ) -> None:
        """Queues a batch; what was queued before must have been taken up.  arrays: int32, by name."""
        for name, values in arrays.items():
            self._send(name, values, stream)
        if self._takes_tokens:
            assert token_ids is not None, "a segment with the embedding takes tokens"
            self._send("token_ids", token_ids, stream)
        else:
            assert hidden is not None, "a segment without the embedding takes the hidden state"
            count, width = hidden.shape
            self._hidden[:count, :width] = hidden
            self._device.upload(self._hidden_region, self._hidden[:count], stream)

    def _send(self, name: str, values: np.ndarray, stream: Stream) -> None:
        host = self._host[name]
        host[: len(values)] = values
        if len(values):
            self._device.upload(self._workspace[name], host[: len(values)], stream)

    def download(self, rows: int, first_row: int, best: Best | None, stream: Stream) -> None:
        """Queues the way back: so many rows, to stand from first_row on, or their best candidates."""
        if not rows:
            return
        if best is None:
            self._device.download(self._result[first_row : first_row + rows], self._result_region, stream)
            return
        part = slice(first_row * best.kept, (first_row + rows) * best.kept)
        self._device.download(self._ids[part], self._workspace[candidates.IDS], stream)
        self._device.download(self._logits[part], self._workspace[candidates.LOGITS], stream)

    def rows(self, count: int) -> np.ndarray:
        """The first rows that came back, float32 [count, width]."""
        return self._result[:count, : self._width]

    def best(self, count: int, best: Best) -> Candidates:
        """The candidates of the first rows that came back."""
        shape, size = (count, best.kept), count * best.kept
        return Candidates(ids=self._ids[:size].reshape(shape), logits=self._logits[:size].reshape(shape))
