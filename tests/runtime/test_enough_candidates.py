"""What is chosen among a row's best tokens alone is what is chosen among all of them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from runtime.candidates import RowPart, row_part
from runtime.enough_candidates import enough_candidates
from runtime.errors import NumericError
from runtime.sampling import Sampler
from runtime.sampling_options import DEFAULT_CHAIN, SamplingOptions

SIZE = 300
MASKLESS = SamplingOptions(top_k=20)


def make_row(seed: int, decimals: int) -> np.ndarray:
    """Logits, many of them equal when rounded to few decimals, some impossible."""
    rng = np.random.default_rng(seed)
    row = np.round(rng.standard_normal(SIZE) * 4, decimals).astype(np.float32)
    row[rng.integers(0, SIZE, 20)] = -np.inf
    row[rng.integers(0, SIZE, 5)] = -0.0
    return row


def best_of(row: np.ndarray, count: int) -> RowPart:
    """As a device finds them: sorted by logit, equal ones by id."""
    ids = np.argsort(-row, kind="stable")[:count].astype(np.int32)
    return row_part(ids, row[ids])


LAST = ("typical_p", "top_p", "min_p", "xtc", "temperature", "top_n_sigma", "dry")
chains = st.permutations(DEFAULT_CHAIN) | st.permutations(LAST).map(lambda last: ("penalties", "top_k", *last))
options = st.builds(
    SamplingOptions,
    temperature=st.just(0.0) | st.floats(0.05, 3),
    dynamic_range=st.just(0.0) | st.floats(0, 1),
    top_k=st.integers(1, 40),
    top_p=st.just(1.0) | st.floats(0.1, 1),
    min_p=st.just(0.0) | st.floats(0, 0.5),
    typical_p=st.just(1.0) | st.floats(0.1, 1),
    top_n_sigma=st.just(0.0) | st.floats(0.1, 3),
    xtc_probability=st.just(0.0) | st.just(1.0),
    repeat_penalty=st.just(1.0) | st.floats(1, 3),
    presence_penalty=st.just(0.0) | st.floats(0, 5),
    frequency_penalty=st.just(0.0) | st.floats(0, 2),
    repeat_window=st.integers(0, 30),
    dry_multiplier=st.just(0.0) | st.just(1.0),
    logit_bias=st.lists(
        st.tuples(st.integers(0, SIZE - 1), st.sampled_from([-np.inf, -4.0, -1.0, 0.0])), max_size=4
    ).map(tuple),
    samplers=chains.map(tuple),
)


@given(options, st.integers(0, 1000), st.integers(0, 2), st.integers(0, 9), st.data())
def test_the_best_alone_give_the_same_token(
    chosen: SamplingOptions, seed: int, decimals: int, more: int, data: st.DataObject
) -> None:
    row = make_row(seed, decimals)
    likely = np.argsort(-row)[:40].tolist()
    history = data.draw(st.lists(st.sampled_from(likely) | st.integers(0, SIZE - 1), min_size=1, max_size=40))
    sampler = Sampler(chosen, seed=seed)
    enough = sampler.enough_candidates
    assume(enough is not None)
    assert enough is not None
    part = best_of(row, enough + more)
    expected = sampler.sample(row.copy(), history)
    assert sampler.sample(part, history) == expected
    if not chosen.is_greedy:
        whole = sampler.distribution(row.copy(), history)
        found = sampler.distribution(best_of(row, enough), history)
        np.testing.assert_array_equal(found.candidates.ids, whole.candidates.ids)
        np.testing.assert_array_equal(found.weights, whole.weights)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, 20),
        ({"temperature": 0.0}, 1),
        ({"temperature": 0.0, "top_k": 0}, 1),
        ({"temperature": 0.0, "repeat_penalty": 1.1, "repeat_window": 30}, 31),
        ({"presence_penalty": 1.0}, 20 + 64),
        ({"logit_bias": ((3, -1.0), (9, float("-inf")))}, 22),
        ({"samplers": ("top_k", "penalties", "xtc", "temperature"), "repeat_penalty": 0.5, "xtc_probability": 0.5}, 20),
        ({"top_k": 0}, None),
        ({"logit_bias": ((3, 1.0),)}, None),
        ({"repeat_penalty": 0.9}, None),
        ({"frequency_penalty": -0.1}, None),
        ({"dry_multiplier": 0.8}, None),
        ({"dry_multiplier": 0.8, "temperature": 0.0}, None),
        ({"top_n_sigma": 1.0}, None),
        ({"mirostat": 2}, None),
        ({"samplers": ("min_p", "top_k")}, None),
        ({"samplers": ("temperature", "top_k")}, None),
        ({"samplers": ("temperature",)}, None),
        ({"samplers": ()}, None),
    ],
)
def test_which_chains_need_how_many(changes: dict[str, object], expected: int | None) -> None:
    assert enough_candidates(replace(MASKLESS, **changes)) == expected  # pyright: ignore[reportArgumentType]


def test_a_mask_needs_the_whole_row() -> None:
    class Nothing:
        def apply(self, row: np.ndarray, history: object) -> None:
            pass

    assert Sampler(MASKLESS, seed=0, masks=[Nothing()]).enough_candidates is None


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("fault", [np.nan, np.inf])
def test_logits_that_are_no_numbers_are_noticed(temperature: float, fault: float) -> None:
    sampler = Sampler(replace(MASKLESS, temperature=temperature), seed=0)
    with pytest.raises(NumericError, match="logits hold"):
        sampler.sample(row_part(np.array([5, 7], np.int32), np.array([fault, 1], np.float32)), [1])
