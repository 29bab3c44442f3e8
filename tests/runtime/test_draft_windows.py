"""How much of a long prompt a draft model reads: the end, as long as it has not paid, and all once that pays."""

from __future__ import annotations

import numpy as np
import pytest
from drafts import ChangedBinding, Pair, useless, usual_ms
from fake_device import plain_ids

from runtime.devices.binding import Batch
from runtime.speculation.track import TRIAL_SHARE, TRIAL_WINDOW, Track

PROMPT = [index * 7 % 390 for index in range(1000)]


class Echo(ChangedBinding):
    """Says the last token's successor, whatever came before: an end of the text is all that one needs."""

    def run(self, batch: Batch) -> np.ndarray:
        rows = super().run(batch)
        for row, index in zip(rows, batch.outputs, strict=True):
            row[:] = 0
            row[(int(batch.token_ids[index]) * 5 + 1) % 389] = 9
        return rows


def echo_ids(last: int, count: int) -> list[int]:
    ids = []
    for _ in range(count):
        last = (last * 5 + 1) % 389
        ids.append(last)
    return ids


def reading_ms(num_tokens: int) -> float:
    """A pass of the model, which reads a token of a prompt in a fifth of the time of a pass."""
    return usual_ms(num_tokens) if num_tokens <= 8 else max(usual_ms(8), 2.0 * num_tokens)


def drafting_ms(num_tokens: int) -> float:
    """A draft model at two fifths of the model's cost; it rounds faster, so that it reads in a fifth of the time."""
    return (0.4 if num_tokens <= 8 else 0.22) * reading_ms(num_tokens)


def test_a_bad_draft_and_a_long_prompt_cost_three_percent() -> None:
    times_ms: list[float] = []
    for speculate in (False, True):
        with Pair(
            change=useless, cost=reading_ms, draft_cost=drafting_ms, context_size=2048, max_batch_tokens=64
        ) as pair:
            result = pair.ask(PROMPT, max_tokens=64, speculate=speculate).result
            assert list(result.ids) == plain_ids(PROMPT, 64)
            times_ms.append(pair.clock.now_s)
            assert not speculate or (result.speculation is not None and result.speculation.state == "off")
            assert pair.draft.num_tokens < 200
    assert times_ms[1] <= 1.03 * times_ms[0]


@pytest.mark.parametrize("guesses_meanwhile", [False, True])
def test_a_good_draft_begins_with_the_end_and_then_reads_all(guesses_meanwhile: bool) -> None:
    with Pair(
        target=Echo,
        draft=Echo,
        cost=reading_ms,
        draft_cost=lambda count: 0.05 * count,
        guesses_meanwhile=guesses_meanwhile,
        context_size=2048,
        max_batch_tokens=64,
    ) as pair:
        result = pair.ask(PROMPT, max_tokens=200).result
        assert list(result.ids) == echo_ids(PROMPT[-1], 200)
        report = result.speculation
        assert report is not None and report.accepted > 100
        assert pair.draft.num_tokens > 1000 + TRIAL_WINDOW
        again = pair.ask(PROMPT, max_tokens=50).result
        assert list(again.ids) == echo_ids(PROMPT[-1], 50)
    pair.check_books()


def test_the_window_follows_what_it_paid() -> None:
    track = Track("guesses", (0.5,), None)
    assert track.window(TRIAL_WINDOW, 10) is None
    assert track.window(1000, 500) == TRIAL_WINDOW
    assert track.window(8000, 500) == 8000 // TRIAL_SHARE
    for _ in range(4):
        track.judge(tokens=4, round_ms=10.0, plain_ms=10.0, tokens_out=0)
    assert track.window(1000, 500) is None
    assert track.window(8000, 499) == 8000 // TRIAL_SHARE, "the answer is too short for so long a text"
