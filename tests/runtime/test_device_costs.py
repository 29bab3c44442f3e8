"""Roofline sums: what a run moves and multiplies, and the least time that limits allow."""

from __future__ import annotations

import pytest
from bench_rows import COSTS

from runtime.devices.costs import LayerCost, MachineLimits, RowCost, RunCost, StepCosts, run_cost


def test_one_token_reads_all_weights_and_its_past() -> None:
    cost = run_cost(COSTS, [7], count=1, num_outputs=1)
    # 8 positions are seen (its own too), and its own is written.
    assert cost == RunCost(moved_bytes=1000 + 100 + 10 + (8 + 1) * 4, byte_multiply_adds=550, float_multiply_adds=16)
    assert cost.multiply_adds == 566


def test_a_chunk_reads_weights_once_and_no_head_without_outputs() -> None:
    cost = run_cost(COSTS, [4], count=3, num_outputs=0)
    assert cost.moved_bytes == 1000 + 3 * 10 + (7 + 3) * 4
    assert cost.byte_multiply_adds == 3 * 500
    assert cost.float_multiply_adds == (5 + 6 + 7) * 2


def test_sequences_share_weights_but_not_the_past() -> None:
    one, four = (run_cost(COSTS, [9] * count, count=1, num_outputs=count) for count in (1, 4))
    own = 10 + 11 * 4
    assert four.moved_bytes == one.moved_bytes + 3 * own
    assert four.multiply_adds == 4 * one.multiply_adds


@pytest.mark.parametrize(
    ("start", "count", "seen", "pairs"),
    [(0, 1, 1, 1), (3, 1, 4, 4), (10, 1, 4, 4), (2, 4, 6, 3 + 4 + 4 + 4), (10, 3, 6, 12), (0, 3, 3, 6)],
)
def test_a_window_ends_the_past(start: int, count: int, seen: int, pairs: int) -> None:
    nothing = RowCost(weight_bytes=0, byte_multiply_adds=0, float_multiply_adds=0)
    layer = LayerCost(position_bytes=1, multiply_adds_per_position=1, window=4)
    costs = StepCosts(tokens=nothing, outputs=nothing, embedding_bytes=0, layers=(layer,))
    cost = run_cost(costs, [start], count=count, num_outputs=0)
    # What is seen, counted position by position.
    positions = {p for token in range(start, start + count) for p in range(max(0, token - 3), token + 1)}
    assert len(positions) == seen
    assert (cost.moved_bytes, cost.float_multiply_adds) == (seen + count, pairs)


def test_the_slower_of_moving_and_multiplying_is_the_limit() -> None:
    limits = MachineLimits(read_bytes_per_s=10, byte_multiply_adds_per_s=100, float_multiply_adds_per_s=20)
    cost = RunCost(moved_bytes=30, byte_multiply_adds=100, float_multiply_adds=10)
    assert cost.least_s(limits) == (3.0, "memory")
    assert cost.plus(RunCost(byte_multiply_adds=200)).least_s(limits) == (3.5, "multiplier")
