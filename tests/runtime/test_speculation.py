"""Speculation on fake devices: whatever is guessed, what is said is what plain decoding says."""

from __future__ import annotations

import numpy as np
import pytest
from drafts import DRAFTS, ChangedBinding, Pair, now_and_then, perfect, second_best, useless
from fake_device import VOCAB_SIZE, plain_ids
from hypothesis import given, settings
from hypothesis import strategies as st

from runtime.devices.binding import PAGE_SIZE, Batch
from runtime.generation import Completion
from runtime.sampling import SamplingOptions
from runtime.speculation import track
from runtime.speculation.options import SpeculationReport

PATIENCE_S = 30


def report_of(completion: Completion) -> SpeculationReport:
    assert completion.speculation is not None
    return completion.speculation


def check_report(completion: Completion) -> None:
    """What holds for every report."""
    report = report_of(completion)
    assert report.accepted <= report.drafted
    assert report.accepted == sum(report.accepted_by_position)
    assert report.drafted == sum(report.drafted_by_position)
    assert len(completion.ids) == report.accepted + report.rounds + report.plain_tokens
    pairs = list(zip(report.accepted_by_position, report.drafted_by_position, strict=True))
    assert all(kept <= tried for kept, tried in pairs)
    assert list(report.acceptance_by_position) == [kept / tried for kept, tried in pairs]
    assert list(report.drafted_by_position) == sorted(report.drafted_by_position, reverse=True)
    assert list(report.accepted_by_position) == sorted(report.accepted_by_position, reverse=True)
    if report.rounds:
        assert report.tokens_per_round == (report.accepted + report.rounds) / report.rounds


@pytest.fixture
def stubborn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Guesses go on, however little they bring."""
    monkeypatch.setattr(track, "TRIAL_ROUNDS", 10**9)
    monkeypatch.setattr(track, "LOSS_TOKENS", 1e9)


@pytest.mark.usefixtures("stubborn")
@pytest.mark.parametrize("length", range(1, 17))
@pytest.mark.parametrize("name", DRAFTS)
def test_greedy_ids_are_those_of_plain_decoding(name: str, length: int) -> None:
    with Pair(change=DRAFTS[name], draft_max=length, draft_min=length) as pair:
        result = pair.ask([1, 2, 3], max_tokens=44).result
        assert list(result.ids) == plain_ids([1, 2, 3], 44)
        check_report(result)
        report = report_of(result)
        if name == "perfect":
            assert report.accepted >= report.drafted - length
            assert report.tokens_per_round is not None and report.tokens_per_round > length
        elif name != "now_and_then":
            assert report.rounds > 44 / (length + 1)
        if name in ("second_best", "sure_and_wrong"):
            assert report.accepted == 0
        pair.check_books()


@pytest.mark.usefixtures("stubborn")
@pytest.mark.parametrize("name", DRAFTS)
@pytest.mark.parametrize(
    "sampling",
    [
        SamplingOptions(seed=5),
        SamplingOptions(seed=5, temperature=1.5, top_k=0, top_p=1, min_p=0),
        SamplingOptions(seed=6, temperature=0.7, repeat_penalty=1.3, presence_penalty=0.5, frequency_penalty=0.2),
        SamplingOptions(seed=7, mirostat=2),
        SamplingOptions(temperature=0, repeat_penalty=2),
    ],
)
def test_a_seed_gives_the_same_ids_with_and_without_guesses(name: str, sampling: SamplingOptions) -> None:
    with Pair(change=DRAFTS[name], draft_max=5, draft_min=2, uses_text=True) as pair:
        plain = pair.ask([1, 2, 3], max_tokens=80, sampling=sampling, speculate=False).result
        guessed = pair.ask([1, 2, 3], max_tokens=80, sampling=sampling, logprobs=3).result
        assert plain.ids == guessed.ids
        assert report_of(plain).drafted == 0
        assert report_of(guessed).drafted > 0
        assert len(guessed.logprobs) == 80
        check_report(guessed)


@pytest.mark.usefixtures("stubborn")
def test_the_first_guessed_token_is_verified_like_the_rest() -> None:
    with Pair(change=second_best, draft_max=1, draft_min=1) as pair:
        result = pair.ask([1, 2, 3], max_tokens=20).result
    report = report_of(result)
    assert list(result.ids) == plain_ids([1, 2, 3], 20)
    assert (report.accepted, report.drafted_by_position) == (0, (report.drafted,))
    assert report.drafted == report.rounds >= 15


@pytest.mark.usefixtures("stubborn")
def test_rates_by_position_tell_where_a_draft_goes_wrong() -> None:
    with Pair(change=now_and_then, draft_max=6, draft_min=6) as pair:
        report = report_of(pair.ask([1, 2, 3], max_tokens=200).result)
    # A draft that is wrong at every third position never keeps three tokens.
    assert report.accepted > 0
    assert report.accepted_by_position[2:] == (0, 0, 0, 0)


def test_an_answer_ends_within_a_draft_as_without_one() -> None:
    ids = plain_ids([1, 2, 3], 40)
    for count in range(4, 20):
        if ids[count - 1] in ids[: count - 1]:
            continue
        with Pair(draft_max=8, draft_min=3, end_ids=frozenset({ids[count - 1]})) as pair:
            result = pair.ask([1, 2, 3]).result
            assert (list(result.ids), result.finish_reason) == (ids[:count], "stop")
            check_report(result)
            again = pair.ask([1, 2, 3, *ids], max_tokens=3, ignore_end=True).result
            assert list(again.ids) == plain_ids([1, 2, 3, *ids], 3)


def test_a_stop_text_within_a_draft_ends_the_answer_before_it() -> None:
    with Pair(draft_max=8, draft_min=4) as pair:
        whole = pair.ask([7, 7], max_tokens=30).result
        stop = whole.text[20:24]
        result = pair.ask([7, 7], max_tokens=30, stop=(stop,)).result
        assert result.text == whole.text[: whole.text.index(stop)]
        assert result.ids == whole.ids[: len(result.ids)]
        check_report(result)


@pytest.mark.parametrize("draft_max", [1, 7, 16])
def test_drafts_stay_within_the_window_and_the_tokens_that_are_wanted(draft_max: int) -> None:
    with Pair(draft_max=draft_max, uses_text=True, context_size=100) as pair:
        full = pair.ask([1, 2, 3], max_tokens=1000).result
        assert (len(full.ids), full.finish_reason) == (98, "context")
        assert list(full.ids) == plain_ids([1, 2, 3], 98)
        for max_tokens in range(1, 12):
            result = pair.ask([5, max_tokens], max_tokens=max_tokens).result
            assert list(result.ids) == plain_ids([5, max_tokens], max_tokens)
            check_report(result)
        assert pair.ask([5, 5], max_tokens=0).result.ids == ()


def test_a_rolled_back_draft_leaves_both_prefix_caches_right() -> None:
    with Pair(change=now_and_then, draft_max=7, draft_min=7) as pair:
        first = pair.ask(list(range(60)), max_tokens=90).result
        history = [*range(60), *first.ids]
        for prompt in (history, history[:100], [*history[:80], 3, 3], [*history, 9, 9, 9]):
            result = pair.ask(prompt, max_tokens=40).result
            assert list(result.ids) == plain_ids(prompt, 40)
            assert result.timings.reused_tokens > 0
            pair.check_books()


def test_a_draft_that_crosses_pages_of_a_prompt_is_not_remembered_as_the_prompt() -> None:
    prompt = [index % 7 for index in range(PAGE_SIZE - 2)]  # repeats, so that its end was there before
    with Pair(change=None, uses_text=True, draft_max=16, draft_min=16) as pair:
        for tail in range(3):
            pair.ask([*prompt, 300 + tail], max_tokens=6).wait(PATIENCE_S)
        for again in range(4):
            whole = [index % 7 for index in range(PAGE_SIZE - 2 + again)]
            assert list(pair.ask(whole, max_tokens=30).result.ids) == plain_ids(whole, 30)
            pair.check_books()


@pytest.mark.parametrize("change", [perfect, useless, now_and_then])
def test_sequences_that_share_steps_get_what_each_gets_alone(change) -> None:
    with Pair(change=change, uses_text=True, draft_max=5, draft_min=2, max_sequences=3, num_pages=20) as pair:
        prompts = [[index, index + 1] * (index + 1) for index in range(7)]
        generations = [pair.ask(prompt, max_tokens=30 + index) for index, prompt in enumerate(prompts)]
        for index, (prompt, generation) in enumerate(zip(prompts, generations, strict=True)):
            assert list(generation.result.ids) == plain_ids(prompt, 30 + index)
            check_report(generation.result)
        assert sum(report_of(generation.result).drafted for generation in generations) > 0
        pair.check_books()


def test_guesses_never_drive_another_sequence_out() -> None:
    with Pair(draft_max=16, draft_min=16, max_sequences=2, context_size=128, num_pages=3) as pair:
        generations = [pair.ask([index, 2], max_tokens=60) for index in range(2)]
        for index, generation in enumerate(generations):
            assert list(generation.result.ids) == plain_ids([index, 2], 60)


@pytest.mark.usefixtures("stubborn")
@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 150), st.integers(1, 70), st.integers(-1, 30)), min_size=1, max_size=6),
    st.sampled_from(sorted(DRAFTS)),
    st.integers(1, 16),
    st.integers(1, 3),
    st.booleans(),
)
def test_any_mix_of_prompts_drafts_and_cancelled_answers_is_right(
    plan: list[tuple[int, int, int]], name: str, draft_max: int, max_sequences: int, uses_text: bool
) -> None:
    with Pair(
        change=DRAFTS[name],
        uses_text=uses_text,
        draft_max=draft_max,
        draft_min=min(2, draft_max),
        max_sequences=max_sequences,
        context_size=256,
        num_pages=4 + max_sequences,
    ) as pair:
        prompts = [[index % 11 for index in range(length)] for length, _, _ in plan]
        generations = [
            pair.ask(prompt, max_tokens=max_tokens) for prompt, (_, max_tokens, _) in zip(prompts, plan, strict=True)
        ]
        for generation, (_, _, cancel_after) in zip(generations, plan, strict=True):
            for index, _ in enumerate(generation):
                if index == cancel_after:
                    generation.cancel()
        for prompt, generation, (_, max_tokens, cancel_after) in zip(prompts, generations, plan, strict=True):
            result = generation.result
            assert list(result.ids) == plain_ids(prompt, len(result.ids))
            assert len(result.ids) == max_tokens or result.finish_reason == "cancelled" and cancel_after >= 0
            check_report(result)
        pair.check_books()


def test_cancel_stops_a_pass_that_checks_a_draft() -> None:
    with Pair(draft_max=8, draft_min=8) as pair:
        pair.target.hold_at_run(5)  # the prompt, two plain passes, and drafts from then on
        generation = pair.ask([1, 2, 3], max_tokens=100)
        assert pair.target.entered.wait(PATIENCE_S)
        generation.cancel()
        result = generation.result
        assert result.finish_reason == "cancelled"
        assert report_of(result).rounds == 2
        assert list(result.ids) == plain_ids([1, 2, 3], len(result.ids))
        pair.target.release()
        assert list(pair.ask([1, 2, 3], max_tokens=50).result.ids) == plain_ids([1, 2, 3], 50)
        pair.check_books()


def test_cancel_stops_the_draft_model_too() -> None:
    with Pair(draft_max=8, draft_min=8) as pair:
        pair.draft.hold_at_run(3)
        generation = pair.ask([1, 2, 3], max_tokens=100)
        assert pair.draft.entered.wait(PATIENCE_S)
        generation.cancel()  # held for ever: only the draft model's own cancel() ends its run
        assert generation.result.finish_reason == "cancelled"
        pair.draft.release()
        assert list(pair.ask([4, 5], max_tokens=30).result.ids) == plain_ids([4, 5], 30)
        pair.check_books()


def test_cancel_of_one_does_not_touch_the_drafts_of_others() -> None:
    with Pair(draft_max=6, draft_min=6, max_sequences=2, num_pages=16) as pair:
        pair.draft.hold_at_run(4)
        kept, dropped = pair.ask([1, 2], max_tokens=60), pair.ask([3, 4], max_tokens=60)
        assert pair.draft.entered.wait(PATIENCE_S)
        dropped.cancel()
        pair.draft.release()
        assert list(kept.result.ids) == plain_ids([1, 2], 60)
        assert dropped.result.finish_reason == "cancelled"


def test_closing_in_the_middle_of_a_draft_closes_both_devices() -> None:
    with Pair(draft_max=8, draft_min=8) as pair:
        pair.draft.hold_at_run(3)
        generation = pair.ask([1, 2, 3], max_tokens=100)
        assert pair.draft.entered.wait(PATIENCE_S)
        pair.loop.close()
        assert pair.target.is_closed and pair.draft.is_closed
        assert generation.result.finish_reason == "cancelled"


def test_a_draft_model_that_fails_costs_no_answer() -> None:
    with Pair(draft_max=4, draft_min=4) as pair:
        pair.draft.fail_next = RuntimeError("the small device burns")
        result = pair.ask([1, 2, 3], max_tokens=40).result
        assert list(result.ids) == plain_ids([1, 2, 3], 40)
        assert report_of(result).state == "off"
        assert "burns" in (report_of(result).reason or "")


def test_a_draft_model_whose_logits_are_no_numbers_is_given_up() -> None:
    def broken(row: np.ndarray, position: int) -> np.ndarray:
        return np.full_like(row, np.nan)

    with Pair(change=broken) as pair:
        result = pair.ask([1, 2, 3], max_tokens=60).result
        assert list(result.ids) == plain_ids([1, 2, 3], 60)
        assert (report_of(result).drafted, report_of(result).state) == (0, "off")


def test_a_model_that_fails_while_it_checks_a_draft_fails_the_answer_alone() -> None:
    class Failing(ChangedBinding):
        def run(self, batch: Batch) -> np.ndarray:
            if len(batch.token_ids) > 4 and not self.num_tokens > 1000:
                self.num_tokens = 2000
                raise RuntimeError("burns")
            return super().run(batch)

    with Pair(draft_max=8, draft_min=8, target=Failing) as pair:
        with pytest.raises(RuntimeError, match="burns"):
            _ = pair.ask([1, 2, 3], max_tokens=40).result
        assert list(pair.ask([1, 2, 3], max_tokens=40).result.ids) == plain_ids([1, 2, 3], 40)
        pair.check_books()


@pytest.mark.parametrize("draft_vocab_size", [VOCAB_SIZE - 150, VOCAB_SIZE + 64])
def test_rows_of_another_width_only_lack_guesses(draft_vocab_size: int) -> None:
    with Pair(draft_vocab_size=draft_vocab_size, draft_max=4, draft_min=2) as pair:
        result = pair.ask([1, 2, 3], max_tokens=80).result
        assert list(result.ids) == plain_ids([1, 2, 3], 80)
        assert report_of(result).accepted > 0


def test_a_device_with_little_room_checks_a_part_of_a_draft() -> None:
    with Pair(draft_max=12, draft_min=12, max_outputs=3, max_batch_tokens=16) as pair:
        result = pair.ask([1, 2, 3], max_tokens=50).result
        assert list(result.ids) == plain_ids([1, 2, 3], 50)
        assert len(report_of(result).drafted_by_position) == 2
        check_report(result)


def test_a_long_prompt_does_not_hold_its_answer_up() -> None:
    prompt = [index % 90 for index in range(400)]
    with Pair(draft_max=4, draft_min=4) as pair:
        assert report_of(pair.ask([1, 2, 3], max_tokens=60).result).accepted > 0
        result = pair.ask(prompt, max_tokens=40).result
        assert list(result.ids) == plain_ids(prompt, 40)
        report = report_of(result)
        # The draft model reads 64 tokens between two tokens of the answer, which goes on meanwhile.
        assert report.plain_tokens >= 2 + 400 // 64
        assert report.accepted > 0


def test_text_that_repeats_is_guessed_without_a_model() -> None:
    class Echo(ChangedBinding):
        """Says the same twelve tokens over and over."""

        def run(self, batch: Batch) -> np.ndarray:
            rows = super().run(batch)
            for row, index in zip(rows, batch.outputs, strict=True):
                row[:] = 0
                row[100 + int(batch.positions[index] + 1) % 12] = 9
            return rows

    with Pair(change=None, uses_text=True, target=Echo) as pair:
        result = pair.ask([1, 2, 3], max_tokens=200).result
        assert list(result.ids) == [100 + (3 + index) % 12 for index in range(200)]
        report = report_of(result)
        assert report.draft_ms == 0
        assert report.rounds + report.plain_tokens < 60
        check_report(result)
