"""Sequences of models that keep states: whatever happens, a run goes on from the state of its own text and place.

The fake device's states are the texts that led to them, and each run checks its own (tests/support/fake_device.py).
"""

from __future__ import annotations

import numpy as np
from fake_device import VOCAB_SIZE, FakeBinding, make_limits, plain_ids
from hypothesis import given, settings
from hypothesis import strategies as st

from runtime.devices.binding import PAGE_SIZE
from runtime.scheduler import Scheduler
from runtime.sequence import TokenSequence
from runtime.states import StateKeeper

SYSTEM = list(range(1, 101))


def make_sequence(prompt: list[int]) -> TokenSequence:
    return TokenSequence(ids=list(prompt), num_prompt=len(prompt), next_output=len(prompt) - 1)


class Driver:
    """Answers greedily as the engine's loop does, with drafts of which the first `right` tokens are right."""

    def __init__(
        self, *, max_sequences: int = 1, spare: int = 4, context_size: int = 512, num_pages: int | None = None
    ) -> None:
        self.binding = FakeBinding(
            make_limits(
                max_sequences=max_sequences,
                context_size=context_size,
                num_pages=num_pages,
                num_states=2 * max_sequences + spare,
            )
        )
        self.scheduler = Scheduler(self.binding.limits, self.binding.copy_page)
        self.wanted: dict[TokenSequence, int] = {}
        self.steps: list[list[int]] = []

    def add(self, prompt: list[int], count: int) -> TokenSequence:
        sequence = make_sequence(prompt)
        self.wanted[sequence] = len(prompt) + count
        self.scheduler.add(sequence)
        return sequence

    def step(self, *, right: int = 0, drafted: int = 0, is_cancelled: bool = False) -> bool:
        if drafted and self.scheduler.only_decodes:
            for sequence in self.wanted:
                true_ids = plain_ids(sequence.ids, drafted)
                wrong_ids = [(token + 1) % VOCAB_SIZE for token in true_ids]
                sequence.draft[:] = true_ids[:right] + wrong_ids[right:]
        step = self.scheduler.plan()
        if step is None:
            return False
        self.steps.append([work.count for work in step.works])
        if is_cancelled:
            return True
        rows = self.binding.run(step.batch)
        self.scheduler.commit(step)
        for work in step.works:
            sequence, draft = work.sequence, list(work.sequence.draft)
            for row in rows[work.first_row : work.first_row + work.num_outputs]:
                sequence.ids.append(int(row.argmax()))
                if not draft or sequence.ids[-1] != draft.pop(0) or len(sequence.ids) == self.wanted[sequence]:
                    break
            sequence.next_output = len(sequence.ids) - 1
            if sequence.draft:
                self.scheduler.settle(sequence)
            if len(sequence.ids) >= self.wanted[sequence]:
                self.scheduler.finish(sequence)
                del self.wanted[sequence]
        return True

    def answer(self, prompt: list[int], count: int, *, drafted: int = 0, right: int = 0) -> TokenSequence:
        sequence = self.add(prompt, count)
        while self.step(drafted=drafted, right=right):
            pass
        assert sequence.ids == prompt + plain_ids(prompt, count)
        return sequence


def test_a_prompt_is_cut_at_its_last_page_border() -> None:
    driver = Driver()
    driver.answer(SYSTEM, 3)
    assert driver.steps == [[32], [32], [32], [4], [1], [1]]
    assert driver.scheduler.pages.states is not None and driver.scheduler.pages.states.num_known == 2


def test_the_next_turn_goes_on_from_the_end_of_the_answer() -> None:
    driver = Driver()
    first = driver.answer(SYSTEM, 5)
    assert driver.answer([*first.ids, 7, 8, 9], 3).num_reused == len(first.ids) - 1


def test_the_same_prompt_again_goes_on_from_its_last_page_border() -> None:
    driver = Driver()
    driver.answer(SYSTEM, 5)
    assert driver.answer(SYSTEM, 5).num_reused == PAGE_SIZE


def test_a_prefix_without_a_state_is_computed_again_and_known_the_third_time() -> None:
    driver = Driver()
    driver.answer([*SYSTEM, *range(200, 300)], 2)
    assert driver.answer([*SYSTEM, *range(300, 380)], 2).num_reused == 0
    assert driver.answer([*SYSTEM, *range(210, 290)], 2).num_reused == PAGE_SIZE


def test_prompts_that_begin_together_compute_what_they_share_once() -> None:
    driver = Driver(max_sequences=3)
    prompts = [[*SYSTEM, *range(200 + 30 * idx, 260 + 30 * idx)] for idx in range(3)]
    sequences = [driver.add(prompt, 2) for prompt in prompts]
    while driver.step():
        pass
    assert [sequence.num_reused for sequence in sequences] == [0, PAGE_SIZE, PAGE_SIZE]
    assert all(one.ids == prompt + plain_ids(prompt, 2) for one, prompt in zip(sequences, prompts, strict=True))


def test_what_was_right_of_a_draft_is_computed_again() -> None:
    driver = Driver()
    driver.answer(SYSTEM[:10], 9, drafted=4, right=2)
    assert driver.steps == [[10], [5], [4], [5], [4]]


def test_a_draft_that_was_right_costs_nothing_more() -> None:
    driver = Driver()
    driver.answer(SYSTEM[:10], 11, drafted=4, right=4)
    assert driver.steps == [[10], [5], [5]]


def test_a_run_that_was_stopped_goes_on_from_where_it_began() -> None:
    driver = Driver()
    sequence = driver.add(SYSTEM, 4)
    for idx in range(30):
        driver.step(is_cancelled=idx % 2 == 0)
    assert sequence.ids == SYSTEM + plain_ids(SYSTEM, 4)


def test_states_beyond_those_of_running_sequences_are_forgotten_the_oldest_first() -> None:
    driver = Driver(spare=1)
    first = driver.answer(SYSTEM, 2)
    driver.answer(list(range(300, 310)), 2)
    driver.answer(list(range(320, 330)), 2)
    assert driver.answer([*first.ids, 5], 1).num_reused == 0


def test_everything_is_given_back() -> None:
    driver = Driver(max_sequences=2)
    driver.answer(SYSTEM, 5, drafted=3, right=1)
    cancelled = driver.add(SYSTEM[:50], 5)
    driver.step()
    driver.scheduler.drop(cancelled)
    driver.scheduler.begin_anew()
    keeper = driver.scheduler.pages.states
    assert keeper is not None and keeper.num_known == 0
    fresh = [make_sequence([idx]) for idx in range(8)]
    assert sorted(keeper.pair(sequence)[1] for sequence in fresh) == list(range(8))  # all eight were free


@settings(max_examples=60, deadline=None)
@given(
    turns=st.lists(
        st.tuples(st.integers(0, 5), st.integers(1, 90), st.integers(1, 12), st.integers(0, 4), st.integers(0, 4)),
        min_size=1,
        max_size=8,
    ),
    num_pages=st.integers(8, 16),
    seed=st.integers(0, 2**16),
)
def test_any_turns_branches_and_drafts_give_each_its_own_answer(
    turns: list[tuple[int, int, int, int, int]], num_pages: int, seed: int
) -> None:
    random = np.random.default_rng(seed)
    driver = Driver(max_sequences=2, spare=2, num_pages=num_pages)
    texts: list[list[int]] = [[]]
    for parent, length, count, drafted, right in turns:
        prefix = texts[parent % len(texts)]
        prompt = prefix[: int(random.integers(0, len(prefix) + 1))] + random.integers(0, 4, length).tolist()
        prompt = prompt[-400:]
        other = driver.add(prompt[:20] + [1, 2, 3], 2)
        texts.append(driver.answer(prompt, count, drafted=drafted, right=min(right, drafted)).ids)
        assert other.ids == prompt[:20] + [1, 2, 3] + plain_ids(prompt[:20] + [1, 2, 3], 2)


def test_a_text_is_known_by_its_tokens_up_to_a_limit() -> None:
    keeper = StateKeeper(4)
    sequence = make_sequence([5, 6, 7, 8])
    keeper.begin(sequence, None, 0)
    keeper.pair(sequence)
    sequence.num_computed = 3
    keeper.advance(sequence, 0)
    keeper.remember(sequence)
    match = keeper.match([5, 6, 7, 9], 3)
    assert match is not None and match.num_tokens == 3
    assert keeper.match([5, 6, 7, 9], 2) is None and keeper.match([5, 6, 6, 9], 4) is None
