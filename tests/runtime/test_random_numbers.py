"""The counter-based generator against NumPy's, and what depends on what."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from runtime.random_numbers import MAX_SEED, exponentials, new_seed, philox, uniform

words = st.integers(min_value=0, max_value=2**64 - 1)


@given(st.tuples(words, words, words, words), st.tuples(words, words))
def test_equals_numpys_philox(counter: tuple[int, int, int, int], key: tuple[int, int]) -> None:
    whole = sum(word << (64 * index) for index, word in enumerate(counter))
    before = (whole - 1) % 2**256  # NumPy counts before it draws
    generator = np.random.Philox(counter=before, key=key[0] | key[1] << 64)
    assert philox(counter, key) == tuple(int(word) for word in generator.random_raw(4))


@given(words, st.integers(min_value=0, max_value=2**24), st.integers(min_value=0, max_value=64))
def test_numbers_lie_in_the_unit_interval_and_repeat(seed: int, position: int, draw: int) -> None:
    number = uniform(seed=seed, position=position, draw=draw)
    assert 0 <= number < 1
    assert number == uniform(seed=seed, position=position, draw=draw)


def test_numbers_are_spread_evenly_over_positions_seeds_and_draws() -> None:
    numbers = np.array(
        [
            uniform(seed=seed, position=position, draw=draw)
            for seed in range(20)
            for position in range(50)
            for draw in range(2)
        ]
    )
    assert len(set(numbers.tolist())) == 2000
    counts, _ = np.histogram(numbers, bins=10, range=(0, 1))
    assert ((counts - 200) ** 2 / 200).sum() < 27.9  # chi-square, 9 degrees of freedom, one in a thousand


def test_seeds_nobody_chose_differ() -> None:
    seeds = {new_seed() for _ in range(20)}
    assert len(seeds) > 1
    assert all(0 <= seed <= MAX_SEED for seed in seeds)


@given(words, st.integers(min_value=0, max_value=2**24), st.lists(st.integers(0, 400_000), min_size=1, unique=True))
def test_a_tokens_number_does_not_depend_on_which_others_are_asked_for(
    seed: int, position: int, ids: list[int]
) -> None:
    together = exponentials(np.array(ids), seed=seed, position=position)
    assert (together > 0).all() and np.isfinite(together).all()
    alone = [float(exponentials(np.array([token_id]), seed=seed, position=position)[0]) for token_id in ids]
    assert together.tolist() == alone


def test_waiting_times_are_exponential_over_ids_positions_and_seeds() -> None:
    for numbers in (
        exponentials(np.arange(20_000), seed=1, position=5),
        np.concatenate([exponentials(np.array([7]), seed=1, position=place) for place in range(20_000)]),
        np.concatenate([exponentials(np.array([7]), seed=seed, position=5) for seed in range(20_000)]),
    ):
        counts, _ = np.histogram(np.exp(-numbers), bins=20, range=(0, 1))
        assert ((counts - 1000) ** 2 / 1000).sum() < 43.9  # chi-square, 19 degrees of freedom, one in a thousand
        pairs, _, _ = np.histogram2d(np.exp(-numbers[::2]), np.exp(-numbers[1::2]), bins=5, range=((0, 1), (0, 1)))
        assert ((pairs - 400) ** 2 / 400).sum() < 51.2  # 24 degrees of freedom
