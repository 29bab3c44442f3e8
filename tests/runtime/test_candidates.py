"""Selecting from a row of logits: against sorting the whole row."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime import candidates as select
from runtime.candidates import Candidates
from runtime.errors import NumericError

sizes = st.sampled_from([1, 2, 7, 300, 8192, 20_000, 49_153])


def make_row(size: int, seed: int, num_levels: int | None) -> np.ndarray:
    """Logits; with few levels, most are ties."""
    row = np.random.default_rng(seed).standard_normal(size) * 4
    if num_levels is not None:
        row = np.round(row * num_levels) / num_levels
    return row.astype(np.float32)


def ranked(row: np.ndarray) -> np.ndarray:
    """All ids, best first, ties by id."""
    return np.lexsort((np.arange(row.shape[0]), -row.astype(np.float64)))


def shares(row: np.ndarray) -> np.ndarray:
    """Probabilities in float64."""
    relative = np.exp(row.astype(np.float64) - float(row.max()))
    return relative / relative.sum()


@given(sizes, st.integers(0, 1000), st.sampled_from([None, 1, 2]), st.sampled_from([1, 2, 40, 200, 3000, 10**6]))
def test_the_largest_are_those_of_a_whole_sort(size: int, seed: int, num_levels: int | None, count: int) -> None:
    row = make_row(size, seed, num_levels)
    found = select.largest(row, count)
    expected = ranked(row)[:count]
    assert found.ids.tolist() == expected.tolist()
    assert found.logits.tolist() == row[expected].tolist()


def test_equal_logits_are_taken_by_id() -> None:
    assert select.largest(np.zeros(50_000, dtype=np.float32), 5).ids.tolist() == [0, 1, 2, 3, 4]
    row = np.zeros(50_000, dtype=np.float32)
    row[[17, 49_999]] = 1
    assert select.best_id(row) == 17
    assert select.largest(row, 4).ids.tolist() == [17, 49_999, 0, 1]


@given(sizes, st.integers(0, 1000), st.floats(0.0, 1.0, exclude_max=True))
def test_a_nucleus_is_the_smallest_that_reaches_its_share(size: int, seed: int, top_p: float) -> None:
    row = make_row(size, seed, None)
    found = select.nucleus(row, top_p)
    sums = np.cumsum(shares(row)[ranked(row)])
    count = len(found.ids)
    assert found.ids.tolist() == ranked(row)[:count].tolist()
    assert sums[count - 1] >= top_p - 1e-6
    assert count == 1 or sums[count - 2] < top_p + 1e-6


def test_a_flat_row_keeps_its_share_in_a_nucleus() -> None:
    found = select.nucleus(np.zeros(10_000, dtype=np.float32), 0.25)
    assert found.ids.tolist() == list(range(2500))


@given(st.integers(0, 1000), st.floats(0.001, 1.0))
def test_min_p_keeps_what_is_probable_enough(seed: int, min_p: float) -> None:
    row = make_row(300, seed, None)
    kept = select.keep_min_p(select.largest(row, 300), min_p)
    relative = shares(row) / shares(row).max()
    assert (relative[kept.ids] >= min_p * (1 - 1e-6)).all()
    assert np.count_nonzero(relative >= min_p * (1 + 1e-6)) <= len(kept.ids)


@given(st.integers(0, 1000))
def test_the_winner_of_a_race_is_the_first_to_arrive(seed: int) -> None:
    kept = select.largest(make_row(300, seed, None), 20)
    relative = select.weights(kept, 1.0)
    arrivals = np.random.default_rng(seed).exponential(size=len(relative))
    winner = select.first_to_arrive(kept, relative, arrivals)
    place = kept.ids.tolist().index(winner)
    assert all(arrivals[place] / relative[place] <= arrivals / relative)


def test_what_weighs_nothing_is_never_drawn() -> None:
    kept = Candidates(ids=np.array([5, 6, 7]), logits=np.array([0.0, -math.inf, -math.inf]), is_sorted=True)
    assert select.first_to_arrive(kept, select.weights(kept, 1.0), np.array([1e9, 1e-9, 0.5])) == 5


@pytest.mark.parametrize("temperature", [1e-3, 1e-2, 100.0])
def test_weights_stay_finite_at_any_temperature(temperature: float) -> None:
    kept = select.largest(np.array([1e4, -1e4, 3.0], dtype=np.float32), 3)
    assert np.isfinite(select.weights(kept, temperature)).all()


@given(sizes, st.integers(0, 1000))
def test_logprobs_are_logarithms_of_probabilities(size: int, seed: int) -> None:
    row = make_row(size, seed, None)
    found = select.best_logprobs(row, 5, np.empty_like(row))
    assert [token_id for token_id, _ in found] == ranked(row)[:5].tolist()
    expected = np.log(shares(row)[ranked(row)[:5]])
    assert [logprob for _, logprob in found] == pytest.approx(expected.tolist(), abs=2e-6)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize("place", [0, 12_345, 49_152])
def test_logits_that_are_not_numbers_are_reported(bad: float, place: int) -> None:
    row = make_row(49_153, 1, None)
    row[place] = bad
    for choose in (
        select.best_id,
        lambda row: select.largest(row, 40),
        lambda row: select.nucleus(row, 0.9),
        lambda row: select.above(row, 3.0),
        select.all_of,
    ):
        with pytest.raises(NumericError, match="finite"):
            choose(row)


def test_a_row_of_minus_infinity_is_reported() -> None:
    with pytest.raises(NumericError, match="-inf"):
        select.largest(np.full(20_000, -math.inf, dtype=np.float32), 3)


def test_masked_tokens_are_no_trouble() -> None:
    row = np.full(20_000, -math.inf, dtype=np.float32)
    row[[3, 9]] = [1.0, 2.0]
    assert select.nucleus(row, 0.999).ids.tolist() == [9, 3]
    assert select.largest(row, 2).ids.tolist() == [9, 3]
    whole = select.all_of(row)
    assert select.first_to_arrive(whole, select.weights(whole, 0.8), np.where(row == 2, 1.0, 0.9)) == 9
