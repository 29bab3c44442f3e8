"""The best candidates of a row of logits, found on the emulated card."""

from __future__ import annotations

import numpy as np
import pytest
from emulated_device import ORDERS, Order
from gpu_bench import bench


@pytest.mark.parametrize("order", ORDERS)
def test_the_best_candidates_are_found_slice_by_slice(order: Order) -> None:
    rows, count, kept = 2, 2500, 40
    logits = np.random.default_rng(1).standard_normal((rows, count + 4)).astype(np.float32)
    logits[:, :count] = np.round(logits[:, :count], 1)  # many equal ones
    logits[:, count:] = 100.0  # beyond the vocabulary
    logits[1, 7] = 5.0
    stand = bench(order)
    slices = -(-count // 1024)
    first = stand.empty(rows * slices * kept * 8)
    stand.run(
        "head.cu", "top_of_logits", stand.put(logits), count + 4, count, kept, first, grid=(slices, rows), block=512
    )
    second = stand.empty(rows * kept * 8)
    stand.run("head.cu", "top_of_candidates", first, slices * kept, kept, second, grid=(1, rows), block=512)
    ids, values = stand.empty(rows * kept * 4), stand.empty(rows * kept * 4)
    stand.run("head.cu", "split_candidates", second, kept, ids, values, grid=(1, rows), block=512)
    expected = np.argsort(-logits[:, :count], axis=1, kind="stable")[:, :kept]
    np.testing.assert_array_equal(stand.get(ids, (rows, kept), np.int32), expected)
    np.testing.assert_array_equal(stand.get(values, (rows, kept)), np.take_along_axis(logits, expected, axis=1))
    assert expected[1, 0] == 7
