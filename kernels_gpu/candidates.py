"""The best candidates of rows of logits, found on the card, so that a few numbers come back and not the vocabulary.

Owns the rounds of slicing and sorting (head.cu) as launches, and the room that they take.  Does not know sampling.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from kernels_gpu.device import Region
from kernels_gpu.launches import Argument, Best, Launch, Module, launch
from kernels_gpu.layout import aligned

SLICE = 1024  # candidates that one block sorts
MAX_KEPT = 256
THREADS = 512
MODULE = Module(source="head.cu", defines=(), kernels=("top_of_logits", "top_of_candidates", "split_candidates"))
IDS, LOGITS = "candidate ids", "candidate logits"


@dataclass(frozen=True, kw_only=True)
class Candidates:
    """ids int32 and logits float32, both [rows, kept], the best first; among equals the smaller id first.

    Where a row holds something that is no number, that comes first.
    """

    ids: np.ndarray
    logits: np.ndarray


@dataclass(frozen=True, kw_only=True)
class CandidateRoom:
    """How many are kept at most, of how many rows, and the memory for it."""

    most: int
    max_rows: int
    vocab_size: int

    def __post_init__(self) -> None:
        assert 0 < self.most <= min(MAX_KEPT, self.vocab_size), "a number of candidates that can't be kept"

    def pieces(self) -> dict[str, int]:
        """Bytes by name: two buffers for rounds in turn, and the result."""
        rows, first = self.max_rows, -(-self.vocab_size // SLICE) * self.most
        return {
            "candidates 0": 8 * rows * first,
            "candidates 1": 8 * rows * -(-first // SLICE) * self.most,
            IDS: 4 * rows * self.most,
            LOGITS: 4 * rows * self.most,
        }

    @property
    def size_bytes(self) -> int:
        return sum(map(aligned, self.pieces().values()))


def launches(logits: Region, stride: int, rows: int, best: Best, places: Mapping[str, Region]) -> Iterator[Launch]:
    """Finds the best of the first `rows` rows, each `stride` floats; they lie at IDS and LOGITS then, [rows, kept].

    places: the room's pieces, by name.
    """

    def step(name: str, slices: int, *arguments: Argument) -> Launch:
        return launch(MODULE, name, (slices, rows), THREADS, *arguments)

    found, other = places["candidates 0"], places["candidates 1"]
    slices = -(-best.columns // SLICE)
    yield step("top_of_logits", slices, logits, stride, best.columns, best.kept, found)
    while slices > 1:
        count = slices * best.kept
        slices = -(-count // SLICE)
        yield step("top_of_candidates", slices, found, count, best.kept, other)
        found, other = other, found
    yield step("split_candidates", 1, found, best.kept, places[IDS], places[LOGITS])
