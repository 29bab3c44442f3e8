"""Distances of rows and their sums, against plain NumPy in float64 and longer."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from runtime.errors import NumericError
from runtime.evaluation.distances import RowMeter
from runtime.evaluation.summaries import divergence_of, perplexity_of

SIZE = 13
LOGITS = arrays(np.float32, (3, SIZE), elements=st.floats(-80, 80, width=32))
IDS = st.lists(st.integers(0, SIZE - 1), min_size=3, max_size=3)


def log_probabilities(rows: np.ndarray) -> np.ndarray:
    wide = rows.astype(np.longdouble)
    wide = wide - wide.max(axis=1, keepdims=True)
    return wide - np.log(np.exp(wide).sum(axis=1, keepdims=True))


@given(LOGITS, LOGITS, IDS)
def test_distances_are_those_of_the_definition(rows: np.ndarray, reference: np.ndarray, ids: list[int]) -> None:
    own, other = log_probabilities(rows), log_probabilities(reference)
    meter = RowMeter(SIZE)
    assert meter.surprises(rows, ids) == pytest.approx([-own[idx, ids[idx]] for idx in range(3)], rel=1e-12, abs=1e-12)
    found = meter.distances(rows, reference, ids)
    expected = (np.exp(other) * (other - own)).sum(axis=1)
    assert [distance.kl for distance in found] == pytest.approx(expected.tolist(), rel=1e-10, abs=1e-12)
    assert [distance.reference_nll for distance in found] == pytest.approx(
        [-other[idx, ids[idx]] for idx in range(3)], rel=1e-12, abs=1e-12
    )
    assert [distance.agrees for distance in found] == (rows.argmax(axis=1) == reference.argmax(axis=1)).tolist()


@given(LOGITS, st.floats(1e-5, 1e-3))
def test_small_distances_are_not_lost_in_rounding(rows: np.ndarray, step: float) -> None:
    near = rows + np.float32(step) * np.arange(SIZE, dtype=np.float32)
    own, other = log_probabilities(near), log_probabilities(rows)
    expected = (np.exp(other) * (other - own)).sum(axis=1)
    found = [distance.kl for distance in RowMeter(SIZE).distances(near, rows, [0, 0, 0])]
    assert found == pytest.approx(expected.tolist(), rel=1e-4, abs=1e-14)


def test_a_row_is_at_no_distance_from_itself_whatever_is_added_to_it() -> None:
    rows = np.random.default_rng(1).standard_normal((4, SIZE)).astype(np.float32)
    found = RowMeter(SIZE).distances(rows + np.float32(64.0), rows, [1, 2, 3, 4])
    assert max(distance.kl for distance in found) < 1e-10 and all(distance.agrees for distance in found)


def test_columns_beyond_the_vocabulary_do_not_count() -> None:
    rows = np.random.default_rng(2).standard_normal((2, SIZE + 3)).astype(np.float32)
    rows[:, SIZE:] = 500.0
    narrow = rows[:, :SIZE].copy()
    assert RowMeter(SIZE).surprises(rows, [0, 1]) == RowMeter(SIZE).surprises(narrow, [0, 1])
    assert RowMeter(SIZE).distances(rows, narrow, [0, 1])[0].kl == 0.0


@pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf])
def test_what_is_no_number_is_an_error(wrong: float) -> None:
    rows = np.zeros((1, SIZE), np.float32)
    rows[0, 4] = wrong
    with pytest.raises(NumericError, match="no finite number"):
        RowMeter(SIZE).surprises(rows, [0])


@given(st.lists(st.floats(0, 50), min_size=2, max_size=200))
def test_sums_are_those_of_the_definition(values: list[float]) -> None:
    wide = np.asarray(values, np.longdouble)
    found = perplexity_of(values)
    assert found.value == pytest.approx(float(np.exp(wide.mean())), rel=1e-12)
    error = float(np.sqrt(((wide - wide.mean()) ** 2).sum() / (len(values) - 1) / len(values)))
    assert found.standard_error == pytest.approx(found.value * error, rel=1e-9, abs=1e-9)
    agreements = [value < 1 for value in values]
    divergence = divergence_of(values, agreements)
    ordered = sorted(values)
    place = 0.99 * (len(values) - 1)
    low, high = ordered[math.floor(place)], ordered[math.ceil(place)]
    assert divergence.p99 == pytest.approx(low + (high - low) * (place - math.floor(place)), rel=1e-12, abs=1e-300)
    assert divergence.maximum == ordered[-1] == values[divergence.worst_position]
    assert divergence.top1_agreement == sum(agreements) / len(values)
    assert divergence.mean == pytest.approx(float(wide.mean()), rel=1e-12, abs=1e-300)


def test_one_token_has_no_error() -> None:
    found = perplexity_of([math.log(8)])
    assert found.value == pytest.approx(8) and found.standard_error is None and found.num_tokens == 1
