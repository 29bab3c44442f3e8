"""Spreads and ratio intervals: right on data whose truth is known."""

from __future__ import annotations

from itertools import combinations
from math import comb

import numpy as np
import pytest

from runtime.benchmark.statistics import interval_rank, ratio_interval, spread_of


def test_a_spread_says_middle_ends_and_deviation() -> None:
    spread = spread_of([4.0, 1.0, 2.0, 10.0, 3.0])
    assert (spread.median, spread.least, spread.most, spread.deviation) == (3.0, 1.0, 10.0, 1.0)
    assert spread_of([7.0]).deviation == 0


@pytest.mark.parametrize(("first", "second"), [(4, 4), (5, 5), (3, 5), (2, 8), (6, 4)])
def test_the_rank_is_that_of_counting_every_order(first: int, second: int) -> None:
    """U of every way to place the first side's ranks, against the rank's definition."""
    counts: dict[int, int] = {}
    for places in combinations(range(first + second), first):
        u = sum(places) - first * (first - 1) // 2
        counts[u] = counts.get(u, 0) + 1
    total = comb(first + second, first)
    assert sum(counts.values()) == total
    rank = interval_rank(first, second)
    below = sum(counts.get(u, 0) for u in range(rank))
    assert below / total <= 0.025 < (below + counts.get(rank, 0)) / total


@pytest.mark.parametrize(("first", "second"), [(1, 1), (3, 3), (1, 20), (3, 4), (2, 7)])
def test_so_few_samples_that_nothing_can_be_said(first: int, second: int) -> None:
    assert ratio_interval([100.0] * first, [200.0] * second) is None


def test_four_against_four_are_enough() -> None:
    interval = ratio_interval([100.0, 101.0, 102.0, 103.0], [200.0, 201.0, 202.0, 203.0])
    assert interval is not None
    assert interval.low == pytest.approx(200 / 103) and interval.high == pytest.approx(203 / 100)
    assert interval.low < interval.ratio < interval.high


def test_sides_change_places() -> None:
    first, second = [100.0, 104.0, 99.0, 101.0, 103.0], [108.0, 102.0, 111.0, 107.0, 105.0]
    there, back = ratio_interval(first, second), ratio_interval(second, first)
    assert there is not None and back is not None
    assert there.low == pytest.approx(1 / back.high) and there.high == pytest.approx(1 / back.low)


def test_ties_make_no_difference_out_of_nothing() -> None:
    interval = ratio_interval([100.0] * 5, [100.0] * 5)
    assert interval is not None and (interval.low, interval.ratio, interval.high) == (1.0, 1.0, 1.0)


@pytest.mark.parametrize("noise", ["normal", "skewed"])
def test_the_interval_holds_the_truth_as_often_as_it_says(noise: str) -> None:
    random = np.random.default_rng(5)

    def sample(level: float) -> list[float]:
        draws = random.normal(size=6) if noise == "normal" else random.exponential(size=6)
        return (level * np.exp(0.05 * draws)).tolist()

    for ratio in (1.0, 1.2):
        hits = 0
        for _ in range(1000):
            interval = ratio_interval(sample(100), sample(100 * ratio))
            assert interval is not None
            hits += interval.low <= ratio <= interval.high
        assert 0.94 <= hits / 1000 <= 0.995


def test_more_samples_than_are_used_do_no_harm() -> None:
    random = np.random.default_rng(6)
    first, second = random.uniform(90, 110, 500).tolist(), random.uniform(180, 220, 500).tolist()
    interval = ratio_interval(first, second)
    assert interval is not None and 1.9 < interval.low < 2 < interval.high < 2.1
