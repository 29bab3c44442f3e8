"""How much of a long prompt a draft model reads: what pays in the rest of the answer, or nothing."""

from __future__ import annotations

import numpy as np
import pytest
from drafts import ChangedBinding, Pair, useless, usual_ms
from fake_device import plain_ids

from runtime.devices.binding import Batch
from runtime.speculation.reading import ENDS, FREE_TOKENS, Need, Prospect, Reading, choose

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
def test_a_good_draft_reads_as_much_as_pays(guesses_meanwhile: bool) -> None:
    """Not known yet, it reads an end of 1,000 tokens; known for cheap, all of them; for few tokens, nothing."""
    with Pair(
        target=Echo,
        draft=Echo,
        cost=reading_ms,
        draft_cost=lambda count: 0.05 * count + 0.2,
        guesses_meanwhile=guesses_meanwhile,
        context_size=2048,
        max_batch_tokens=64,
    ) as pair:
        for max_tokens, least, most in ((10, 0, 0), (100, 64, 250), (100, 1000, 1200)):
            before = pair.draft.num_tokens
            result = pair.ask(PROMPT, max_tokens=max_tokens, reuse_prefix=False).result
            assert list(result.ids) == echo_ids(PROMPT[-1], max_tokens)
            assert result.speculation is not None
            assert result.speculation.accepted > 60 or max_tokens < 60
            assert least <= pair.draft.num_tokens - before <= most
    pair.check_books()


def test_a_text_that_guesses_itself_leaves_the_draft_model_unread() -> None:
    """The model repeats its prompt: guesses from the text are right, and reading 1,000 tokens would bring nothing."""

    class Repeat(ChangedBinding):
        def run(self, batch: Batch) -> np.ndarray:
            rows = super().run(batch)
            for row, index in zip(rows, batch.outputs, strict=True):
                row[:] = 0
                row[PROMPT[(int(batch.positions[index]) + 1) % len(PROMPT)]] = 9
            return rows

    with Pair(
        target=Repeat,
        draft=Repeat,
        uses_text=True,
        cost=reading_ms,
        draft_cost=drafting_ms,
        context_size=2048,
        max_batch_tokens=64,
    ) as pair:
        for _ in range(3):
            result = pair.ask(PROMPT, max_tokens=100, reuse_prefix=False).result
            assert list(result.ids) == PROMPT[:100]
            assert result.speculation is not None and result.speculation.draft_ms < 50
        assert pair.draft.num_tokens < 200


def prospect(**changed: float) -> Prospect:
    values = {"share": 1.0, "saved_ms": 5.0, "read_ms": 1.0, "num_given": 0, "num_wanted": 100, **changed}
    return Prospect(**values)  # pyright: ignore[reportArgumentType]


def test_what_is_read_follows_what_it_brings() -> None:
    def unread(window: int | None) -> int:
        return 1000 if window is None else window

    assert choose(1000, unread, prospect(num_wanted=9000, num_given=9000)) == Reading(window=None)
    assert choose(1000, unread, prospect(num_wanted=9000, num_given=9000, is_open=True)) == Reading(window=ENDS[0][0])
    assert choose(1000, unread, prospect(num_wanted=60)) == Reading(window=ENDS[1][0])
    assert choose(1000, unread, prospect(num_wanted=10)) is None
    assert choose(1000, unread, prospect(share=0.1)) is None, "most tokens come by other guesses, and must be read too"
    assert choose(1000, lambda window: FREE_TOKENS, prospect(num_wanted=1)) == Reading(window=None)
    assert choose(40, lambda window: 40, prospect()) == Reading(window=None), "no end is shorter"


def test_the_need_of_an_answer_begins_with_that_of_others_and_follows_its_own() -> None:
    before = Need()
    first = Need(before)
    for _ in range(50):
        first.count(4, is_wanted=False)
    assert first.share < 0.1
    second = Need(before)
    assert second.share == pytest.approx(before.share) and before.share < 0.2
    for _ in range(20):
        second.count(1, is_wanted=True)
    assert before.share < 0.5 < second.share
