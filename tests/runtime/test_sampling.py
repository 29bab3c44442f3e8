"""The sampler chain: what it keeps, what it refuses, and that the same key gives the same token."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.errors import OptionError
from runtime.repetition import penalized, seen
from runtime.sampling import Sampler, SamplingOptions, keep


def penalize(row: np.ndarray, history: list[int], options: SamplingOptions) -> None:
    """The penalties alone, in place."""
    ids, counts = seen(history, options.repeat_window)
    row[ids] = penalized(row[ids], counts, options)


def make_row(seed: int, size: int = 500) -> np.ndarray:
    return (np.random.default_rng(seed).standard_normal(size) * 3).astype(np.float32)


options = st.builds(
    SamplingOptions,
    temperature=st.one_of(st.just(0.0), st.floats(0, 100)),
    top_k=st.one_of(st.integers(0, 5), st.integers(0, 2**31 - 1)),
    top_p=st.floats(0, 1),
    min_p=st.floats(0, 1),
    repeat_penalty=st.floats(0.01, 100),
    presence_penalty=st.floats(-100, 100),
    frequency_penalty=st.floats(-100, 100),
    repeat_window=st.integers(0, 100),
    seed=st.integers(0, 2**64 - 1),
)


@given(options, st.integers(0, 100), st.lists(st.integers(0, 499), min_size=1, max_size=100))
def test_no_chain_ever_empties_the_candidates(chosen: SamplingOptions, seed: int, history: list[int]) -> None:
    row = make_row(seed)
    assert len(keep(row, chosen).ids) >= 1
    token_id = Sampler(chosen, seed=chosen.seed or 0).sample(row, history)
    assert 0 <= token_id < 500


@given(options, st.integers(0, 100))
def test_the_best_token_is_always_kept(chosen: SamplingOptions, seed: int) -> None:
    row = make_row(seed)
    assert int(row.argmax()) in keep(row, chosen).ids


@given(st.integers(0, 1000), st.sampled_from([0.0, 1e-4, 1e-9]), st.integers(0, 100))
def test_temperatures_near_zero_are_argmax(seed: int, temperature: float, top_k: int) -> None:
    row = make_row(seed)
    sampler = Sampler(SamplingOptions(temperature=temperature, top_k=top_k), seed=seed)
    assert sampler.sample(row, [1, 2, 3]) == int(row.argmax())


def test_top_k_zero_keeps_all() -> None:
    assert len(keep(make_row(1), SamplingOptions(top_k=0, top_p=1, min_p=0)).ids) == 500
    assert len(keep(make_row(1), SamplingOptions(top_k=7, top_p=1, min_p=0)).ids) == 7


@given(st.integers(0, 1000), st.floats(0.0, 1.0), st.floats(0.0, 1.0))
def test_top_k_of_everything_equals_no_top_k(seed: int, top_p: float, min_p: float) -> None:
    row = make_row(seed, size=12_000)
    chosen = SamplingOptions(top_k=0, top_p=top_p, min_p=min_p)
    without = sorted(keep(row, chosen).ids.tolist())
    with_all = sorted(keep(row, replace(chosen, top_k=11_999)).ids.tolist())
    # A float32 sum of 12,000 terms and a float64 one may part at a border.
    assert len(set(without) ^ set(with_all)) <= 2


def test_each_stage_looks_at_what_the_one_before_kept() -> None:
    row = np.log(np.array([0.4, 0.3, 0.2, 0.1], dtype=np.float32))
    # Of the two best, the first alone has 4/7 of the probability.
    assert keep(row, SamplingOptions(top_k=2, top_p=0.55, min_p=0)).ids.tolist() == [0]
    assert keep(row, SamplingOptions(top_k=0, top_p=0.55, min_p=0)).ids.tolist() == [0, 1]
    assert keep(row, SamplingOptions(top_k=0, top_p=0.95, min_p=0.45)).ids.tolist() == [0, 1, 2]
    assert keep(row, SamplingOptions(top_k=0, top_p=1, min_p=0.7)).ids.tolist() == [0, 1]


def test_penalties_follow_their_formulas() -> None:
    row = np.array([2.0, -2.0, 1.0, 0.5], dtype=np.float32)
    penalize(row, [3, 0, 1, 1], SamplingOptions(repeat_penalty=2, presence_penalty=0.25, frequency_penalty=0.5))
    assert row.tolist() == [1 - 0.5 - 0.25, -4 - 1 - 0.25, 1.0, 0.25 - 0.5 - 0.25]


def test_penalties_look_no_further_back_than_their_window() -> None:
    row = np.array([2.0, 2.0, 2.0], dtype=np.float32)
    penalize(row, [0, 1, 2], SamplingOptions(repeat_penalty=2, repeat_window=2))
    assert row.tolist() == [2.0, 1.0, 1.0]


def test_a_penalty_changes_the_greedy_choice() -> None:
    row = np.array([2.0, 1.9], dtype=np.float32)
    sampler = Sampler(SamplingOptions(temperature=0, repeat_penalty=1.3), seed=0)
    assert sampler.sample(row, [0]) == 1


@given(options, st.integers(0, 50), st.lists(st.integers(0, 499), min_size=1, max_size=20))
def test_the_same_key_gives_the_same_token_whatever_was_drawn_before(
    chosen: SamplingOptions, seed: int, history: list[int]
) -> None:
    first = Sampler(chosen, seed=chosen.seed or 0).sample(make_row(seed), history)
    used = Sampler(chosen, seed=chosen.seed or 0)
    for length in range(1, 4):
        used.sample(make_row(seed + length), history * (length + 1))
    assert used.sample(make_row(seed), history) == first


def test_draws_follow_the_probabilities() -> None:
    shares = np.array([0.5, 0.25, 0.125, 0.125])
    row = np.log(shares).astype(np.float32)
    sampler = Sampler(SamplingOptions(temperature=1, top_k=0, top_p=1, min_p=0), seed=5)
    counts = np.bincount([sampler.sample(row, [0] * length) for length in range(1, 4001)], minlength=4)
    assert ((counts - 4000 * shares) ** 2 / (4000 * shares)).sum() < 16.3  # 3 degrees of freedom, one in a thousand


def test_temperature_flattens_and_sharpens() -> None:
    row = np.array([1.0, 0.0], dtype=np.float32)

    def share(temperature: float) -> float:
        sampler = Sampler(SamplingOptions(temperature=temperature, top_k=0, top_p=1, min_p=0), seed=1)
        return sum(sampler.sample(row, [0] * length) == 0 for length in range(1, 3001)) / 3000

    for temperature in (0.5, 2.0):
        assert share(temperature) == pytest.approx(1 / (1 + math.exp(-1 / temperature)), abs=0.03)


BAD_NUMBERS = [math.nan, math.inf, -math.inf, "1", None, True]


@pytest.mark.parametrize(
    ("name", "flag", "values"),
    [
        ("temperature", "--temp", [-0.1, 1e6, *BAD_NUMBERS]),
        ("top_k", "--top-k", [-1, 2**40, 1.5, *BAD_NUMBERS]),
        ("top_p", "--top-p", [-0.1, 1.1, *BAD_NUMBERS]),
        ("min_p", "--min-p", [-0.1, 1.1, *BAD_NUMBERS]),
        ("repeat_penalty", "--repeat-penalty", [0, -1.0, 1e-40, 1e9, *BAD_NUMBERS]),
        ("presence_penalty", "--presence-penalty", [-1e9, 1e9, *BAD_NUMBERS]),
        ("frequency_penalty", "--frequency-penalty", [-1e9, 1e9, *BAD_NUMBERS]),
        ("repeat_window", "--repeat-last-n", [-1, 0.5, *BAD_NUMBERS]),
        ("seed", "--seed", [-1, 2**64, 0.5, math.nan, "1", True]),
    ],
)
def test_values_that_make_no_sense_are_refused_by_name(name: str, flag: str, values: list[object]) -> None:
    for value in values:
        with pytest.raises(OptionError) as caught:
            SamplingOptions(**{name: value})  # pyright: ignore[reportArgumentType]
        error = caught.value
        assert (error.option, error.flag) == (name, flag)
        assert error.value is value
        assert name in str(error) and flag in str(error) and ascii(value)[:40] in str(error)
        assert "number" in error.expected and error.expected in str(error)
