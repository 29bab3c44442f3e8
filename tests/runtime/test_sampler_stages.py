"""The stages of the sampler: each against its formula, the order as the caller gave it, and what never happens."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.errors import NoTokenLeftError, OptionError
from runtime.random_numbers import uniform
from runtime.repetition import phrase_penalties
from runtime.sampler_stages import describe_chain, dynamic_temperature, stages_in_force
from runtime.sampling import Sampler, SamplingOptions, keep
from runtime.sampling_options import DEFAULT_CHAIN, read_chain

OPEN = SamplingOptions(temperature=1, top_k=0, top_p=1, min_p=0)


def row_of(*probabilities: float) -> np.ndarray:
    return np.log(np.array(probabilities)).astype(np.float32)


def kept_ids(row: np.ndarray, **values: object) -> list[int]:
    return sorted(keep(row, replace(OPEN, **values)).ids.tolist())  # pyright: ignore[reportArgumentType]


rows = st.builds(
    lambda seed, size, width: (np.random.default_rng(seed).standard_normal(size) * width).astype(np.float32),
    st.integers(0, 1000),
    st.sampled_from([3, 40, 700, 9000]),
    st.floats(0.01, 20),
)
chains = st.lists(st.sampled_from(DEFAULT_CHAIN), unique=True).map(tuple)
all_options = st.builds(
    SamplingOptions,
    temperature=st.floats(0, 5),
    dynamic_range=st.sampled_from([0.0, 0.5, 3.0]),
    dynamic_exponent=st.floats(0, 3),
    top_k=st.sampled_from([0, 1, 5, 1000]),
    top_p=st.floats(0, 1),
    min_p=st.floats(0, 1),
    typical_p=st.floats(0, 1),
    top_n_sigma=st.floats(0, 4),
    xtc_probability=st.sampled_from([0.0, 0.5, 1.0]),
    xtc_threshold=st.floats(0, 0.6),
    mirostat=st.sampled_from([0, 2]),
    mirostat_tau=st.floats(0, 8),
    repeat_penalty=st.floats(0.5, 2),
    dry_multiplier=st.sampled_from([0.0, 0.8]),
    samplers=chains,
)


@given(all_options, rows, st.lists(st.integers(0, 2), min_size=1, max_size=30))
def test_no_order_of_stages_leaves_nothing_or_takes_what_was_forbidden(
    options: SamplingOptions, row: np.ndarray, history: list[int]
) -> None:
    forbidden = int(row.argmax())
    options = replace(options, logit_bias=((forbidden, -math.inf),))
    token_id = Sampler(options, seed=3).sample(row, history)
    assert 0 <= token_id < len(row) and token_id != forbidden


@given(all_options, rows, st.lists(st.integers(0, 2), min_size=1, max_size=30))
def test_a_choice_depends_on_seed_position_and_history_alone(
    options: SamplingOptions, row: np.ndarray, history: list[int]
) -> None:
    used = Sampler(options, seed=3)
    others = np.roll(row, 1)
    for length in range(1, 4):
        used.sample(others.copy(), history * length)
    expected = Sampler(options, seed=3).sample(row.copy(), history)
    used = Sampler(options, seed=3) if options.mirostat else used  # which learns from what came before
    assert used.sample(row.copy(), history) == expected


def test_top_n_sigma_keeps_what_is_near_the_best() -> None:
    row = np.array([10.0, 9.0, 0.0, 0.0, 0.0, 0.0], dtype=np.float32)
    spread = float(row.std())
    assert kept_ids(row, top_n_sigma=1.1 / spread) == [0, 1]
    assert kept_ids(row, top_n_sigma=0.9 / spread) == [0]


def test_typical_keeps_what_surprises_as_much_as_expected() -> None:
    row = row_of(0.5, 0.15, 0.15, 0.1, 0.1)
    surprises = -np.log([0.5, 0.15, 0.15, 0.1, 0.1])
    entropy = float((np.exp(-surprises) * surprises).sum())
    assert [int(place) for place in np.argsort(abs(surprises - entropy), kind="stable")][:2] == [1, 2]
    assert kept_ids(row, typical_p=0.25) == [1, 2]
    assert kept_ids(row, typical_p=0.1) == [1]


def test_xtc_leaves_the_least_of_the_likely_ones() -> None:
    row = row_of(0.4, 0.3, 0.2, 0.1)
    assert kept_ids(row, xtc_probability=1.0, xtc_threshold=0.15) == [2, 3]
    assert kept_ids(row, xtc_probability=1.0, xtc_threshold=0.35) == [0, 1, 2, 3], "one alone stays"
    assert kept_ids(row, xtc_probability=1.0, xtc_threshold=0.51) == [0, 1, 2, 3]


def test_xtc_comes_as_often_as_it_should() -> None:
    options = replace(OPEN, xtc_probability=0.3, xtc_threshold=0.15)
    sampler = Sampler(options, seed=5)
    hits = [len(sampler.distribution(row_of(0.5, 0.3, 0.2), [0] * length).weights) == 1 for length in range(1000)]
    assert hits == [uniform(seed=5, position=length, draw=1) < 0.3 for length in range(1000)]
    assert 250 < sum(hits) < 350


def test_dynamic_temperature_follows_the_entropy() -> None:
    options = replace(OPEN, temperature=1.0, dynamic_range=0.5)
    sure, unsure = keep(row_of(0.97, 0.01, 0.01, 0.01), OPEN), keep(row_of(0.25, 0.25, 0.25, 0.25), OPEN)
    assert dynamic_temperature(unsure, options) == pytest.approx(1.5)
    entropy = -(0.97 * math.log(0.97) + 0.03 * math.log(0.01)) / math.log(4)
    assert dynamic_temperature(sure, options) == pytest.approx(0.5 + entropy, abs=1e-6)
    assert dynamic_temperature(sure, replace(options, dynamic_exponent=2)) == pytest.approx(0.5 + entropy**2, abs=1e-6)


def test_the_order_of_stages_is_the_callers() -> None:
    row = row_of(0.4, 0.3, 0.2, 0.1)
    hot = {"temperature": 5.0, "top_p": 0.45}
    assert kept_ids(row, **hot, samplers=("top_p", "temperature")) == [0, 1]
    assert kept_ids(row, **hot, samplers=("temperature", "top_p")) == [0, 1], "flatter: two of four are needed still"
    assert kept_ids(row, temperature=0.2, top_p=0.7, samplers=("temperature", "top_p")) == [0]
    assert kept_ids(row, temperature=0.2, top_p=0.7, samplers=("top_p", "temperature")) == [0, 1]
    assert kept_ids(row, top_p=0.1, samplers=("temperature",)) == [0, 1, 2, 3], "what is not named does nothing"


@given(rows)
def test_penalties_after_a_selection_do_what_they_do_before_it(row: np.ndarray) -> None:
    row = row[:700]
    values = {"repeat_penalty": 1.7, "presence_penalty": 0.3, "top_k": 1_000_000}
    history = [0, 1, 1, 2]
    found = [
        Sampler(replace(OPEN, **values, samplers=samplers), seed=0).distribution(row.copy(), history)
        for samplers in (("penalties", "top_k"), ("top_k", "penalties"))
    ]
    weights = [dict(zip(part.candidates.ids.tolist(), part.weights.tolist(), strict=True)) for part in found]
    assert weights[0].keys() == weights[1].keys()
    assert list(weights[0].values()) == pytest.approx([weights[1][key] for key in weights[0]], rel=1e-5)


def slow_phrases(history: list[int], options: SamplingOptions, breakers: set[int]) -> dict[int, float]:
    """DRY by its definition."""
    penalties: dict[int, float] = {}
    for end in range(len(history) - 1):
        length = 0
        while length <= end and history[end - length] == history[-1 - length]:
            if history[-1 - length] in breakers or len(history) - 1 - length <= 0:
                break
            length += 1
        if length >= options.dry_allowed_length:
            amount = options.dry_multiplier * options.dry_base ** (length - options.dry_allowed_length)
            next_id = history[end + 1]
            penalties[next_id] = max(penalties.get(next_id, 0.0), amount)
    return penalties


@given(st.lists(st.integers(0, 3), min_size=1, max_size=40), st.integers(1, 4), st.booleans())
def test_dry_is_what_its_definition_says(history: list[int], allowed: int, has_breaker: bool) -> None:
    options = replace(OPEN, dry_multiplier=0.8, dry_base=1.5, dry_allowed_length=allowed, dry_breakers=("\x03",))
    if not has_breaker:
        options = replace(options, dry_breakers=())
    ids, amounts = phrase_penalties(history, options, lambda token_id: bytes([token_id]))
    expected = slow_phrases(history, options, {3} if has_breaker else set())
    assert dict(zip(ids.tolist(), amounts.tolist(), strict=True)) == pytest.approx(expected)


def test_dry_sees_breakers_that_lie_across_tokens_and_no_further_than_its_window() -> None:
    pieces = [b"a", b"b", b"#", b"##x"]
    history = [0, 1, 2, 3, 0, 1, 2, 3, 0, 1]
    options = replace(OPEN, dry_multiplier=1.0, dry_base=2.0, dry_allowed_length=2, dry_breakers=("###",))
    ids, amounts = phrase_penalties(history, options, pieces.__getitem__)
    assert (ids.tolist(), amounts.tolist()) == ([2], [1.0])
    ids, amounts = phrase_penalties(history, replace(options, dry_breakers=()), pieces.__getitem__)
    assert (ids.tolist(), amounts.tolist()) == ([2], [16.0])
    ids, _ = phrase_penalties(history, replace(options, dry_window=3), pieces.__getitem__)
    assert not len(ids)


def test_dry_penalties_stay_finite() -> None:
    options = replace(OPEN, dry_multiplier=100.0, dry_base=100.0, dry_breakers=())
    ids, amounts = phrase_penalties([1] * 3000, options, lambda _: b"")
    assert ids.tolist() == [1] and np.isfinite(amounts).all()


def test_mirostat_holds_the_surprise_it_aims_at() -> None:
    options = replace(OPEN, mirostat=2, mirostat_tau=3.0, mirostat_eta=0.1)
    sampler = Sampler(options, seed=1)
    rng = np.random.default_rng(3)
    bits: list[float] = []
    history = [0]
    for _ in range(1500):
        row = (rng.standard_normal(400) * 2.5).astype(np.float32)
        found = sampler.distribution(row.copy(), history)
        token_id = sampler.sample(row, history)
        shares = found.weights / found.weights.sum()
        bits.append(-math.log2(shares[found.candidates.ids.tolist().index(token_id)]))
        history.append(token_id)
    assert np.mean(bits[300:]) == pytest.approx(3.0, abs=0.15)


def test_mirostat_goes_on_as_if_a_rolled_back_answer_had_not_been() -> None:
    options = replace(OPEN, mirostat=2, mirostat_tau=2.0)
    table = np.random.default_rng(1).standard_normal((64, 50)).astype(np.float32) * 4

    def run(sampler: Sampler, history: list[int], count: int) -> list[int]:
        for _ in range(count):
            history = [*history, sampler.sample(table[len(history)].copy(), history)]
        return history

    plain = run(Sampler(options, seed=9), [0], 20)
    rolled = Sampler(options, seed=9)
    first = run(rolled, [0], 8)
    run(rolled, [*first[:5], 49, 48], 9)
    assert run(rolled, first[:5], 16) == plain


def test_the_chain_in_force_is_told() -> None:
    assert describe_chain(SamplingOptions()) == "top_k 40, top_p 0.95, min_p 0.05, temperature 0.8, draw"
    assert describe_chain(SamplingOptions(temperature=0, repeat_penalty=1.1)) == (
        "penalties (repeat 1.1, presence 0, frequency 0, last 64 tokens), best token"
    )
    options = SamplingOptions(mirostat=2, dry_multiplier=0.8, dynamic_range=0.5, logit_bias=((3, 1.0),))
    assert stages_in_force(options) == ("dry", "temperature")
    assert describe_chain(options) == (
        "logit_bias of 1 tokens, dry 0.8 (base 1.75, from 2 on), temperature 0.3 to 1.3 (exponent 1), "
        "mirostat 2 (entropy 5, rate 0.1)"
    )


def test_a_chain_is_read_as_people_write_it() -> None:
    assert read_chain("temperature;top-k; TYP_P,min_p;") == ("temperature", "top_k", "typical_p", "min_p")
    for text in ("top_k;top_k", "top_k;tailfree"):
        with pytest.raises(OptionError, match="--samplers"):
            read_chain(text)


def test_biases_forbid_and_favour() -> None:
    options = replace(OPEN, temperature=0, logit_bias=((1, 50.0), (0, -math.inf)))
    assert Sampler(options, seed=0).sample(row_of(0.7, 0.1, 0.2), [0]) == 1
    forbidden = replace(OPEN, logit_bias=tuple((token_id, -math.inf) for token_id in range(3)))
    for temperature in (0.0, 1.0):
        with pytest.raises(NoTokenLeftError, match="position 2"):
            Sampler(replace(forbidden, temperature=temperature), seed=0).sample(row_of(0.7, 0.1, 0.2), [0, 1])


@pytest.mark.parametrize(
    ("values", "flag"),
    [
        ({"typical_p": 1.5}, "--typical-p"),
        ({"top_n_sigma": -1}, "--top-n-sigma"),
        ({"xtc_probability": math.nan}, "--xtc-probability"),
        ({"dynamic_range": -0.1}, "--dynatemp-range"),
        ({"mirostat": 1}, "--mirostat"),
        ({"mirostat": True}, "--mirostat"),
        ({"mirostat_eta": 2}, "--mirostat-lr"),
        ({"dry_base": 0.5}, "--dry-base"),
        ({"dry_allowed_length": 0}, "--dry-allowed-length"),
        ({"dry_window": -1}, "--dry-penalty-last-n"),
        ({"dry_breakers": ("",)}, "--dry-sequence-breaker"),
        ({"banned_strings": "text"}, "--banned-string"),
        ({"logit_bias": ((-1, 0.5),)}, "--logit-bias"),
        ({"logit_bias": ((1, math.inf),)}, "--logit-bias"),
        ({"logit_bias": ((1, math.nan),)}, "--logit-bias"),
        ({"samplers": ("top_k", "top_k")}, "--samplers"),
    ],
)
def test_values_that_make_no_sense_name_their_flag(values: dict[str, object], flag: str) -> None:
    with pytest.raises(OptionError) as caught:
        SamplingOptions(**values)  # pyright: ignore[reportArgumentType]
    assert caught.value.flag == flag
