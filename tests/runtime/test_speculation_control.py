"""What is decided about guesses, with a clock that only passes move: how long drafts are, when they stop and go on."""

from __future__ import annotations

import numpy as np
import pytest
from drafts import ChangedBinding, Pair, now_and_then, perfect, second_best, sure_and_wrong, useless, usual_ms
from fake_device import plain_ids
from hypothesis import given
from hypothesis import strategies as st

from runtime.devices.binding import Batch
from runtime.errors import OptionError
from runtime.generation import Completion
from runtime.options import EngineOptions
from runtime.speculation.acceptance import Acceptance
from runtime.speculation.options import SpeculationOptions, SpeculationReport
from runtime.speculation.pass_costs import Pace, PassCosts
from runtime.speculation.track import (
    FIRST_FREE_PAUSE_TOKENS,
    FIRST_PAUSE_TOKENS,
    LONGEST_PAUSE_TOKENS,
    OLD_TOKENS,
    TRIAL_ROUNDS,
    Track,
)

PLAIN_MS = usual_ms(1)


def dear_ms(num_tokens: int) -> float:
    """A draft model at two fifths of the model's cost."""
    return 0.4 * usual_ms(num_tokens)


def report_of(completion: Completion) -> SpeculationReport:
    assert completion.speculation is not None
    return completion.speculation


def elapsed_ms(pair: Pair, num_tokens: int, **fields: object) -> tuple[Completion, float]:
    """An answer of that many tokens to a short prompt, and the milliseconds that its passes took."""
    before_s = pair.clock.now_s
    result = pair.ask([1, 2, 3], max_tokens=num_tokens, **fields).result
    assert list(result.ids) == plain_ids([1, 2, 3], num_tokens)
    return result, (pair.clock.now_s - before_s) * 1e3


@pytest.mark.parametrize("change", [useless, sure_and_wrong])
@pytest.mark.parametrize("draft_max", [1, 4, 16])
def test_a_bad_draft_is_off_within_32_tokens_and_costs_three_percent(change, draft_max: int) -> None:
    with Pair(change=change, uses_text=True, draft_max=draft_max, draft_cost=dear_ms) as pair:
        _, without_ms = elapsed_ms(pair, 128, speculate=False)
    with Pair(change=change, uses_text=True, draft_max=draft_max, draft_cost=dear_ms) as pair:
        first, _ = elapsed_ms(pair, 32)
        assert report_of(first).state == "off"
    with Pair(change=change, uses_text=True, draft_max=draft_max, draft_cost=dear_ms) as pair:
        whole, with_ms = elapsed_ms(pair, 128)
        reason = report_of(whole).reason
        assert reason is not None and "tokens/s" in reason and "tried again after 256 tokens" in reason
        assert with_ms <= 1.03 * without_ms


def test_a_draft_that_costs_as_much_as_the_model_is_switched_off_with_the_reason() -> None:
    with Pair(change=perfect, draft_cost=usual_ms) as pair:
        result, _ = elapsed_ms(pair, 60)
        report = report_of(result)
        assert report.state == "off"
        assert "draft model" in (report.reason or "") and "without" in (report.reason or "")


def test_a_good_draft_pays() -> None:
    with Pair(change=perfect, draft_max=16) as pair:
        result, spent_ms = elapsed_ms(pair, 200)
        report = report_of(result)
        assert report.state == "on" and report.reason is None
        assert spent_ms < 200 * PLAIN_MS / 2.5
        assert report.verify_ms < spent_ms


def test_drafts_are_longer_where_they_are_right_and_cheap() -> None:
    def mean_length(change, draft_cost) -> float:
        with Pair(change=change, draft_cost=draft_cost, draft_max=16) as pair:
            report = report_of(elapsed_ms(pair, 300)[0])
            return report.drafted / max(1, report.rounds)

    cheap = mean_length(perfect, lambda _: 0.2)
    assert cheap >= 6
    assert mean_length(now_and_then, lambda _: 0.2) < cheap / 1.5
    assert mean_length(perfect, dear_ms) < cheap


def test_drafts_end_where_a_pass_has_no_room_left() -> None:
    """Sixteen tokens for the price of eight are sixteen; four at one price and five at another are four."""

    def steps_ms(num_tokens: int) -> float:
        return 10.0 if num_tokens <= 4 else 40.0

    with Pair(change=perfect, draft_max=16, cost=steps_ms) as pair:
        report = report_of(elapsed_ms(pair, 200)[0])
    assert report.drafted_by_position[2] > 10 * sum(report.drafted_by_position[3:])


def test_it_is_tried_again_after_a_pause_and_kept_if_it_pays_then() -> None:
    with Pair(change=useless, draft_cost=dear_ms) as pair:
        first = report_of(elapsed_ms(pair, 40)[0])
        assert first.state == "off"
        pair.draft.change = perfect
        pair.draft.cost = lambda _: 0.5
        num_runs = pair.draft.num_runs
        quiet = report_of(elapsed_ms(pair, FIRST_PAUSE_TOKENS - 60)[0])
        assert (quiet.drafted, pair.draft.num_runs) == (0, num_runs)
        again = report_of(elapsed_ms(pair, 300)[0])
        assert again.state == "on"
        assert again.accepted > 50


def test_answers_without_guesses_do_not_shorten_a_pause() -> None:
    with Pair(change=useless, draft_cost=dear_ms) as pair:
        assert report_of(elapsed_ms(pair, 40)[0]).state == "off"
        elapsed_ms(pair, FIRST_PAUSE_TOKENS + 40, speculate=False)
        num_runs = pair.draft.num_runs
        elapsed_ms(pair, 40)
        assert pair.draft.num_runs == num_runs


def test_pauses_grow_and_begin_anew_after_success() -> None:
    track = Track("guesses", (0.5,), PassCosts(Pace()))
    tokens_out, pauses = 0, []
    for _ in range(7):
        assert track.is_on(tokens_out)
        while not track.is_paused:
            track.judge(tokens=1, round_ms=20.0, plain_ms=10.0, tokens_out=tokens_out)
        start = tokens_out
        while not track.is_on(tokens_out):
            tokens_out += 32
        pauses.append(tokens_out - start)
    assert pauses == [min(FIRST_PAUSE_TOKENS * 2**index, LONGEST_PAUSE_TOKENS) for index in range(7)]
    for _ in range(10):
        track.judge(tokens=3, round_ms=15.0, plain_ms=10.0, tokens_out=tokens_out)
    while not track.is_paused:
        track.judge(tokens=1, round_ms=20.0, plain_ms=10.0, tokens_out=tokens_out)
    assert not track.is_on(tokens_out + FIRST_PAUSE_TOKENS - 1)
    assert track.is_on(tokens_out + FIRST_PAUSE_TOKENS)


def test_guesses_that_take_no_time_are_tried_again_sooner() -> None:
    track = Track("guesses", (0.5,), None)
    while not track.is_paused:
        track.judge(tokens=1, round_ms=20.0, plain_ms=10.0, tokens_out=0)
    assert not track.is_on(FIRST_FREE_PAUSE_TOKENS - 1)
    assert track.is_on(FIRST_FREE_PAUSE_TOKENS)


def test_the_first_drafts_are_short_until_it_is_known_what_long_ones_cost() -> None:
    lengths: list[int] = []

    class Watched(ChangedBinding):
        def run(self, batch: Batch) -> np.ndarray:
            lengths.append(len(batch.token_ids))
            return super().run(batch)

    with Pair(change=perfect, draft_max=16, draft_cost=lambda _: 0.1, cost=lambda _: 10.0, target=Watched) as pair:
        elapsed_ms(pair, 200)
    assert max(lengths) == 17
    known = 2
    for length in lengths[1:]:
        assert length <= 2 * known
        known = max(known, length)


def test_a_slow_moment_of_the_machine_stops_nothing() -> None:
    class Hiccups(ChangedBinding):
        def run(self, batch: Batch) -> np.ndarray:
            if self.num_runs % 17 == 9:
                self.clock.now_s += 0.5
            return super().run(batch)

    with Pair(change=perfect, target=Hiccups) as pair:
        assert report_of(elapsed_ms(pair, 300)[0]).state == "on"


def test_a_busy_machine_seldom_stops_what_pays() -> None:
    """Passes take a tenth more or less, and some three times as long; the draft is wrong once in ten times."""

    def num_plain(seed: int) -> int:
        random = np.random.default_rng(seed)

        def noisy(cost):
            return lambda count: cost(count) * random.lognormal(0, 0.1) * (3 if random.random() < 0.05 else 1)

        def mostly(row: np.ndarray, position: int) -> np.ndarray:
            return row if np.random.default_rng(131 * position + seed).random() > 0.1 else second_best(row, position)

        with Pair(change=mostly, cost=noisy(usual_ms), draft_cost=noisy(lambda _: 3.5)) as pair:
            return report_of(elapsed_ms(pair, 300)[0]).plain_tokens

    assert sum(num_plain(seed) > 30 for seed in range(16)) <= 1, "a bad beginning may stop one of many"


def test_what_was_seen_long_ago_is_tried_anew() -> None:
    track = Track("guesses", (0.5,), PassCosts(Pace()))
    for _ in range(TRIAL_ROUNDS):
        track.acceptance.record(0, is_right=False)
        track.judge(tokens=1, round_ms=14.0, plain_ms=10.0, tokens_out=10)
    low = track.acceptance.mean
    assert track.is_on(10 + OLD_TOKENS) and not track.is_on_trial
    assert track.is_on(11 + OLD_TOKENS) and track.is_on_trial
    assert track.acceptance.mean > low


def test_one_slow_pass_is_not_taken_for_what_they_all_take() -> None:
    costs = PassCosts(Pace())
    for _ in range(4):
        costs.record_plain(1, 10.0)
    usual = costs.ms(4)
    costs.record(4, 10 * usual)
    assert costs.ms(4) <= 1.3 * usual
    for _ in range(3):
        costs.record(4, 3 * usual)
    assert costs.ms(4) == pytest.approx(3 * usual)


def test_a_machine_that_slows_down_as_a_whole_stops_nothing() -> None:
    with Pair(change=perfect) as pair:
        elapsed_ms(pair, 60)
        pair.target.cost = lambda count: 5 * usual_ms(count)
        pair.draft.cost = lambda count: 5 * (0.4 + 0.1 * count)
        report = report_of(elapsed_ms(pair, 200)[0])
        assert report.state == "on"
        assert report.tokens_per_round is not None and report.tokens_per_round > 3


def test_text_without_repetition_costs_no_more_than_three_percent() -> None:
    with Pair(change=None, uses_text=True) as pair:
        _, with_ms = elapsed_ms(pair, 400)
    assert with_ms <= 1.03 * 401 * PLAIN_MS


def test_both_may_guess_in_turn() -> None:
    class Refrain(ChangedBinding):
        """A model of its own, but every other hundred tokens it repeats what stands at the beginning."""

        def run(self, batch: Batch) -> np.ndarray:
            rows = super().run(batch)
            for row, index in zip(rows, batch.outputs, strict=True):
                position = int(batch.positions[index]) + 1
                if position // 100 % 2 == 1:
                    row[:] = 0
                    row[300 + position % 20] = 9
            return rows

    with Pair(change=perfect, uses_text=True, draft_max=8, target=Refrain) as pair:
        plain = pair.ask([1, 2, 3], max_tokens=400, speculate=False, reuse_prefix=False).result
        num_runs = pair.draft.num_runs
        result = pair.ask([1, 2, 3], max_tokens=400, reuse_prefix=False).result
        assert result.ids == plain.ids
        report = report_of(result)
        assert report.rounds + report.plain_tokens < 200
        assert 20 < pair.draft.num_runs - num_runs < 300


def test_a_draft_shorter_than_asked_is_not_checked() -> None:
    with Pair(change=perfect, draft_max=6, draft_min=6) as pair:
        report = report_of(elapsed_ms(pair, 100)[0])
        assert set(report.drafted_by_position) == {report.rounds}


@given(st.lists(st.tuples(st.integers(0, 2), st.booleans()), max_size=60))
def test_chances_are_chances_and_follow_what_was_seen(judged: list[tuple[int, bool]]) -> None:
    acceptance = Acceptance((0.2, 0.5, 0.9))
    for grade, is_right in judged:
        before = acceptance.chance(grade), acceptance.mean
        acceptance.record(grade, is_right=is_right)
        after = acceptance.chance(grade), acceptance.mean
        assert all(0 < chance < 1 for chance in (*after, *map(acceptance.chance, range(3))))
        if is_right:
            assert after[1] >= before[1] - 0.02
        else:
            assert after[0] <= before[0] and after[1] <= before[1] + 0.02


def test_one_grades_failures_make_the_others_less_sure() -> None:
    acceptance = Acceptance((0.2, 0.5, 0.9))
    before = acceptance.chance(1)
    for _ in range(6):
        acceptance.record(2, is_right=False)
    assert acceptance.chance(1) < before / 2


def test_costs_are_measured_where_they_can_be_and_guessed_elsewhere() -> None:
    costs = PassCosts(Pace())
    for _ in range(4):
        costs.record_plain(1, 10.0)
    assert costs.ms(1) == pytest.approx(10.0)
    assert 10.0 < costs.ms(4) < costs.ms(8) < costs.ms(16) < costs.ms(64)
    for elapsed in (30.0, 31.0, 900.0, 32.0, 31.0):
        costs.record(4, elapsed)
    assert costs.ms(4) == pytest.approx(31.0)
    assert costs.ms(3) == pytest.approx(31.0)  # as far as it is known, they are computed together
    assert costs.added_ms(1, 3) == pytest.approx(21.0)
    assert costs.added_ms(3, 1) > 0
    for _ in range(5):
        costs.record_plain(1, 20.0)  # the machine has become slower: all the rest is, too
    assert costs.ms(4) == pytest.approx(62.0)


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"mode": "fast"}, "--spec"),
        ({"draft_max": 0}, "--draft-max"),
        ({"draft_max": 65}, "--draft-max"),
        ({"draft_min": -1}, "--draft-min"),
        ({"draft_max": 4, "draft_min": 5}, "--draft-min"),
        ({"draft_max": 1.5}, "--draft-max"),
    ],
)
def test_options_that_make_no_sense_are_refused_by_name(fields: dict[str, object], named: str) -> None:
    with pytest.raises(OptionError, match=named):
        SpeculationOptions(**fields)  # pyright: ignore[reportArgumentType]


def test_nothing_is_guessed_unless_it_was_asked_for() -> None:
    assert EngineOptions().speculation.is_off
    assert not SpeculationOptions(mode="auto").is_off
    with pytest.raises(OptionError, match="--draft-model"):
        SpeculationOptions(mode="draft").require_model()


def test_luck_at_first_does_not_make_everything_later_look_too_slow() -> None:
    def lucky_first(row: np.ndarray, position: int) -> np.ndarray:
        return row if position < 40 else now_and_then(row, position)

    def crowded_ms(num_tokens: int) -> float:
        return 10.0 if num_tokens == 1 else 16.0

    with Pair(change=lucky_first, cost=crowded_ms, draft_cost=lambda _: 1.0, draft_max=16) as pair:
        report = report_of(elapsed_ms(pair, 400)[0])
    assert report.state == "on"
    assert report.plain_tokens < 40


def test_one_long_draft_that_was_wrong_stops_nothing_that_pays() -> None:
    track = Track("guesses", (0.5,), None)
    for _ in range(10):
        track.judge(tokens=7, round_ms=40.0, plain_ms=10.0, tokens_out=0)
    for _ in range(2):
        track.judge(tokens=1, round_ms=64.0, plain_ms=10.0, tokens_out=0)
        assert track.is_on(0)
    for _ in range(3):
        track.judge(tokens=1, round_ms=64.0, plain_ms=10.0, tokens_out=0)
    assert track.is_paused and "came, without 100.0" in (track.reason or "")
