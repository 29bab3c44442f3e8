"""Guessing while a device elsewhere checks the last draft: nothing changes but the time, and what held is kept."""

from __future__ import annotations

import numpy as np
import pytest
from drafts import DRAFTS, GREEDY, ChangedBinding, MeanwhileBinding, Pair, now_and_then, perfect, useless
from fake_device import plain_ids

from runtime.devices.binding import Batch
from runtime.generation import Completion
from runtime.sampling import SamplingOptions
from runtime.speculation.options import SpeculationReport

PROMPT = [1, 2, 3]


def latent_ms(num_tokens: int) -> float:
    """A card behind a bus: a pass takes the same for a few tokens."""
    return 20.0 + 0.2 * num_tokens


def draft_ms(num_tokens: int) -> float:
    """A draft model on the processor."""
    return 4.0


def report_of(completion: Completion) -> SpeculationReport:
    assert completion.speculation is not None
    return completion.speculation


def answer(pair: Pair, count: int, **fields: object) -> tuple[Completion, float]:
    """An answer, and the milliseconds that the clock says."""
    before_s = pair.clock.now_s
    result = pair.ask(PROMPT, max_tokens=count, **fields).result
    return result, (pair.clock.now_s - before_s) * 1e3


@pytest.mark.parametrize("name", DRAFTS)
@pytest.mark.parametrize("sampling", [GREEDY, SamplingOptions(temperature=1.2, seed=3)])
@pytest.mark.parametrize("draft_max", [1, 5])
def test_no_token_changes(name: str, sampling: SamplingOptions, draft_max: int) -> None:
    with Pair(change=None) as plain:
        expected = plain.ask(PROMPT, max_tokens=80, sampling=sampling).result.ids
    with Pair(change=DRAFTS[name], draft_max=draft_max, draft_min=draft_max, guesses_meanwhile=True) as pair:
        for _ in range(2):
            result = pair.ask(PROMPT, max_tokens=80, sampling=sampling).result
            assert result.ids == expected
            report = report_of(result)
            assert report.accepted + report.rounds + report.plain_tokens == 80
    pair.check_books()


def test_several_answers_at_once_with_guesses_from_the_text() -> None:
    prompts = [[number, 7, 8, 9, 7, 8] for number in range(5)]
    with Pair(change=now_and_then, uses_text=True, guesses_meanwhile=True, max_sequences=3) as pair:
        generations = [pair.ask(prompt, max_tokens=60) for prompt in prompts]
        for prompt, generation in zip(prompts, generations, strict=True):
            assert list(generation.result.ids) == plain_ids(prompt, 60)
    pair.check_books()


def test_the_time_of_the_draft_model_is_hidden_behind_the_device() -> None:
    times_ms: dict[bool, float] = {}
    for meanwhile in (False, True):
        with Pair(
            change=perfect, target=MeanwhileBinding, cost=latent_ms, draft_cost=draft_ms, guesses_meanwhile=meanwhile
        ) as pair:
            result, times_ms[meanwhile] = answer(pair, 120)
            assert list(result.ids) == plain_ids(PROMPT, 120)
            report = report_of(result)
            if meanwhile:
                assert report.wait_ms < 0.5 * report.draft_ms
            else:
                assert report.wait_ms == pytest.approx(report.draft_ms)
    assert times_ms[True] < 0.8 * times_ms[False]


def test_a_useless_draft_is_switched_off_all_the_same() -> None:
    with Pair(
        change=useless, target=MeanwhileBinding, cost=latent_ms, draft_cost=draft_ms, guesses_meanwhile=True
    ) as pair:
        result, _ = answer(pair, 64)
        assert list(result.ids) == plain_ids(PROMPT, 64)
        report = report_of(result)
        assert report.state == "off" and report.reason is not None
        num_runs = pair.draft.num_runs
        assert list(answer(pair, 64)[0].ids) == plain_ids(PROMPT, 64)
        assert pair.draft.num_runs == num_runs, "while it is off, it uses no core"


def test_a_cancel_stops_both(monkeypatch: pytest.MonkeyPatch) -> None:
    with Pair(change=perfect, guesses_meanwhile=True) as pair:
        pair.target.hold_at_run(6)
        generation = pair.ask(PROMPT, max_tokens=400)
        assert pair.target.entered.wait(10)
        generation.cancel()
        result = generation.result
        assert result.finish_reason == "cancelled"
        assert list(result.ids) == plain_ids(PROMPT, len(result.ids))
        pair.target.release()
        assert list(pair.ask([5, 6], max_tokens=30).result.ids) == plain_ids([5, 6], 30)
    pair.check_books()


def test_a_draft_model_that_fails_meanwhile_costs_nothing_but_itself() -> None:
    class Failing(ChangedBinding):
        def run(self, batch: Batch) -> np.ndarray:
            if self.num_runs >= 12:
                raise RuntimeError("out of order")
            return super().run(batch)

    with Pair(change=perfect, draft=Failing, guesses_meanwhile=True) as pair:
        result = pair.ask(PROMPT, max_tokens=80).result
        assert list(result.ids) == plain_ids(PROMPT, 80)
        report = report_of(result)
        assert report.state == "off" and "out of order" in (report.reason or "")


def test_guesses_that_were_not_checked_are_used_in_the_next_round() -> None:
    """On one device alone: what the controller cut off a draft was guessed already."""
    with Pair(change=perfect, cost=lambda count: 10.0 if count <= 4 else 40.0, draft_cost=lambda _: 0.1) as pair:
        result = pair.ask(PROMPT, max_tokens=100).result
        assert list(result.ids) == plain_ids(PROMPT, 100)
        assert pair.draft.num_tokens <= 100 + len(PROMPT) + report_of(result).rounds
