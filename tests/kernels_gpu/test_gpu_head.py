"""The best candidates of a row of logits, found on the emulated card."""

from __future__ import annotations

import numpy as np
import pytest
from gpu_bench import PLACES, Place, bench

from kernels_gpu.candidates import CandidateFinder, CandidateRoom


@pytest.mark.parametrize("place", PLACES)
def test_the_best_candidates_are_found_slice_by_slice(place: Place) -> None:
    rows, count, kept = 2, 30_000, 40
    logits = np.random.default_rng(1).standard_normal((rows, count + 4)).astype(np.float32)
    logits[:, :count] = np.round(logits[:, :count], 1)  # many equal ones
    logits[:, count:] = 100.0  # beyond the vocabulary
    logits[1, 7] = 5.0
    stand = bench(place)
    room = CandidateRoom(kept=kept, max_rows=rows, vocab_size=count)
    finder = CandidateFinder(stand.device, room, {name: stand.empty(size) for name, size in room.pieces().items()})
    found = finder.find(stand.put(logits), count + 4, rows, stand.stream)
    expected = np.argsort(-logits[:, :count], axis=1, kind="stable")[:, :kept]
    np.testing.assert_array_equal(found.ids, expected)
    np.testing.assert_array_equal(found.logits, np.take_along_axis(logits, expected, axis=1))
    assert expected[1, 0] == 7
