"""The best candidates of a row of logits, found on the emulated card."""

from __future__ import annotations

import numpy as np
import pytest
from gpu_bench import PLACES, SOURCES, Array, Place, bench

from kernels_gpu.candidates import IDS, LOGITS, CandidateRoom, launches
from kernels_gpu.launches import Best


def find(logits: Array, count: int, kept: int, place: Place) -> tuple[Array, Array]:
    """(ids, logits) [rows, kept] of rows whose first `count` numbers are tokens'."""
    rows, stride = logits.shape
    stand = bench(place)
    room = CandidateRoom(most=kept, max_rows=rows, vocab_size=count)
    places = {name: stand.empty(size) for name, size in room.pieces().items()}
    for launch in launches(stand.put(logits), stride, rows, Best(kept=kept, columns=count), places):
        kernel = stand.device.load(SOURCES / launch.module.source, launch.module.defines, [launch.kernel])[
            launch.kernel
        ]
        stand.device.launch(
            kernel, grid=launch.grid, block=(launch.block,), arguments=launch.arguments, stream=stand.stream
        )
    return stand.get(places[IDS], (rows, kept), np.int32), stand.get(places[LOGITS], (rows, kept))


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("kept", [1, 40, 256])
def test_the_best_candidates_are_found_slice_by_slice(kept: int, place: Place) -> None:
    rows, count = 2, 10_000
    logits = np.random.default_rng(1).standard_normal((rows, count + 4)).astype(np.float32)
    logits[:, :count] = np.round(logits[:, :count], 1)  # many equal ones, zeros of both signs among them
    logits[:, count:] = 100.0  # beyond the vocabulary
    logits[0, :8000] = -np.inf
    logits[1, 7] = 5.0
    ids, values = find(logits, count, kept, place)
    expected = np.argsort(-logits[:, :count], axis=1, kind="stable")[:, :kept]
    np.testing.assert_array_equal(ids, expected)
    np.testing.assert_array_equal(values, np.take_along_axis(logits, expected, axis=1))
    assert expected[1, 0] == 7


@pytest.mark.parametrize("fault", [np.float32(np.nan), -np.float32(np.nan), np.float32(np.inf)])
def test_what_is_no_number_comes_first(fault: np.float32) -> None:
    logits = np.zeros((1, 3000), np.float32)
    logits[0, 2222] = fault
    for kept in (1, 3):
        ids, values = find(logits, 3000, kept, "ascending")
        assert ids[0, 0] == 2222
        assert not np.isfinite(values[0, 0])
