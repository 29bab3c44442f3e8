"""The best candidates of rows of logits, found on the card, so that a few numbers come back and not the vocabulary.

Owns the rounds of slicing and sorting (head.cu) and the room that they take.  Does not know sampling.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from kernels_gpu.device import Device, Region, Stream
from kernels_gpu.layout import aligned

SLICE = 1024  # candidates that one block sorts
MAX_KEPT = 256
THREADS = 512
_SOURCE = Path(__file__).resolve().parent / "sources" / "head.cu"
_KERNELS = ("top_of_logits", "top_of_candidates", "split_candidates")


@dataclass(frozen=True, kw_only=True)
class Candidates:
    """ids int32 and logits float32, both [rows, kept], the best first; among equals the smaller id first."""

    ids: np.ndarray
    logits: np.ndarray


@dataclass(frozen=True, kw_only=True)
class CandidateRoom:
    """How much is kept, of which rows, and the memory for it."""

    kept: int
    max_rows: int
    vocab_size: int

    def __post_init__(self) -> None:
        assert 0 < self.kept <= min(MAX_KEPT, self.vocab_size), "a number of candidates that can't be kept"

    @property
    def slices(self) -> int:
        return -(-self.vocab_size // SLICE)

    def pieces(self) -> dict[str, int]:
        """Bytes by name: two buffers for rounds in turn, and the result."""
        rows = self.max_rows
        second = -(-self.slices * self.kept // SLICE)
        return {
            "candidates 0": 8 * rows * self.slices * self.kept,
            "candidates 1": 8 * rows * second * self.kept,
            "candidate ids": 4 * rows * self.kept,
            "candidate logits": 4 * rows * self.kept,
        }

    @property
    def size_bytes(self) -> int:
        return sum(map(aligned, self.pieces().values()))


class CandidateFinder:
    """Loads the kernels and finds candidates."""

    def __init__(self, device: Device, room: CandidateRoom, places: dict[str, Region]) -> None:
        self._device, self._room, self._places = device, room, places
        self._kernels = device.load(_SOURCE, (), _KERNELS)
        shape = (room.max_rows, room.kept)
        self._ids, self._logits = device.host_array(shape, np.int32), device.host_array(shape, np.float32)

    def find(self, logits: Region, stride: int, rows: int, stream: Stream) -> Candidates:
        """Of the first `rows` rows; valid until the next call.  Waits for the stream."""
        room, kept = self._room, np.int32(self._room.kept)
        found, other = self._places["candidates 0"], self._places["candidates 1"]
        slices = room.slices
        arguments = (logits.pointer, np.int32(stride), np.int32(room.vocab_size), kept, found.pointer)
        self._launch("top_of_logits", (slices, rows), arguments, stream)
        while slices > 1:
            count = slices * room.kept
            slices = -(-count // SLICE)
            given = (found.pointer, np.int32(count), kept, other.pointer)
            self._launch("top_of_candidates", (slices, rows), given, stream)
            found, other = other, found
        ids, values = self._places["candidate ids"], self._places["candidate logits"]
        self._launch("split_candidates", (1, rows), (found.pointer, kept, ids.pointer, values.pointer), stream)
        self._device.download(self._ids[:rows], ids, stream)
        self._device.download(self._logits[:rows], values, stream)
        stream.wait()
        return Candidates(ids=self._ids[:rows], logits=self._logits[:rows])

    def _launch(self, name: str, grid: tuple[int, ...], arguments: tuple[np.generic, ...], stream: Stream) -> None:
        self._device.launch(self._kernels[name], grid=grid, block=(THREADS,), arguments=arguments, stream=stream)
