"""The scheduler on the fake device: any mix of sequences gets what each gets alone."""

from __future__ import annotations

import numpy as np
import pytest
from fake_device import FakeBinding, make_limits, plain_ids
from hypothesis import given, settings
from hypothesis import strategies as st

from runtime.devices.binding import PAGE_SIZE, pages_for
from runtime.scheduler import Scheduler
from runtime.sequence import TokenSequence


def make_sequence(prompt: list[int], **fields: int | bool) -> TokenSequence:
    return TokenSequence(**{"ids": list(prompt), "num_prompt": len(prompt), "next_output": len(prompt) - 1, **fields})


class Driver:
    """Runs a scheduler greedily, as the engine's loop does, and checks the books after each step."""

    def __init__(self, binding: FakeBinding) -> None:
        self.binding = binding
        self.scheduler = Scheduler(binding.limits, binding.copy_page)
        self.wanted: dict[TokenSequence, int] = {}
        self.finished: list[TokenSequence] = []
        self.step_sizes: list[list[int]] = []

    def add(self, prompt: list[int], count: int, **fields: int | bool) -> TokenSequence:
        sequence = make_sequence(prompt, **fields)
        self.wanted[sequence] = len(prompt) + count
        self.scheduler.add(sequence)
        return sequence

    def step(self) -> bool:
        step = self.scheduler.plan()
        if step is None:
            return False
        self.step_sizes.append([work.count for work in step.works])
        rows = self.binding.run(step.batch)
        self.scheduler.commit(step)
        for work in step.works:
            sequence = work.sequence
            if work.num_outputs and work.start + work.count == len(sequence.ids):
                sequence.ids.append(int(rows[work.first_row + work.num_outputs - 1].argmax()))
            sequence.next_output = len(sequence.ids) - 1
            if len(sequence.ids) >= self.wanted[sequence]:
                self.end(sequence)
        self.check_books()
        return True

    def end(self, sequence: TokenSequence) -> None:
        self.scheduler.finish(sequence)
        del self.wanted[sequence]
        self.finished.append(sequence)

    def run(self) -> None:
        while self.step():
            pass
        assert not self.wanted

    def check_books(self) -> None:
        scheduler = self.scheduler
        held = [page for _, path in scheduler.pages.cache.prefixes() for page in path]
        for page in range(scheduler.pages.pool.num_pages):
            users = sum(sequence.pages.count(page) for sequence in self.wanted)
            assert scheduler.pages.pool.holders(page) == users + (page in held)


def answer(sequence: TokenSequence) -> list[int]:
    return sequence.ids[sequence.num_prompt :]


def test_a_prompt_comes_in_chunks_and_then_token_by_token() -> None:
    driver = Driver(FakeBinding(make_limits(max_batch_tokens=32)))
    sequence = driver.add(list(range(70)), 4)
    driver.run()
    assert driver.step_sizes == [[32], [32], [6], [1], [1], [1]]
    assert answer(sequence) == plain_ids(list(range(70)), 4)


def test_answers_ride_along_with_prompts() -> None:
    driver = Driver(FakeBinding(make_limits(max_sequences=2, max_batch_tokens=32)))
    first = driver.add([1, 2, 3], 10)
    driver.step()
    second = driver.add(list(range(100, 200)), 2)
    driver.run()
    assert driver.step_sizes[1:5] == [[1, 31], [1, 31], [1, 31], [1, 7]]
    assert answer(first) == plain_ids([1, 2, 3], 10)
    assert answer(second) == plain_ids(list(range(100, 200)), 2)


def test_a_later_answer_rides_along_with_an_earlier_prompt() -> None:
    driver = Driver(FakeBinding(make_limits(max_sequences=2, max_batch_tokens=16)))
    driver.add(list(range(40)), 2)
    driver.step()
    driver.add([7, 8], 20)
    driver.run()
    assert driver.step_sizes[:4] == [[16], [16], [8, 2], [1, 1]]


def test_a_finished_sequence_gives_its_place_to_the_next() -> None:
    driver = Driver(FakeBinding(make_limits(max_sequences=2)))
    sequences = [driver.add([10 + index, 5], 3 + index) for index in range(5)]
    driver.run()
    assert max(len(sizes) for sizes in driver.step_sizes) == 2
    for sequence in sequences:
        assert answer(sequence) == plain_ids(sequence.ids[:2], len(answer(sequence)))


def test_logits_of_a_whole_prompt_come_in_steps_the_device_can_hold() -> None:
    binding = FakeBinding(make_limits(max_batch_tokens=32, max_outputs=5))
    driver = Driver(binding)
    driver.add(list(range(33)), 2, next_output=0)
    step = driver.scheduler.plan()
    assert step is not None
    assert step.batch.outputs.tolist() == [0, 1, 2, 3, 4]
    driver = Driver(binding)
    driver.add(list(range(40)), 2, next_output=30)
    step = driver.scheduler.plan()
    assert step is not None
    assert (len(step.batch.token_ids), step.batch.outputs.tolist()) == (32, [30, 31])


@pytest.mark.parametrize(
    ("second", "reused"),
    [
        (list(range(200)), 199),  # equal: one token is computed anew
        (list(range(128)), 127),  # shorter, ends with a page
        (list(range(90)), 89),  # shorter, ends inside a page
        ([*range(200), 7, 8, 9], 200),  # extended
        ([*range(150), 300, 301], 150),  # diverging inside a page
        ([*range(64), 300, 301], 64),  # diverging at the border of a page
        ([300, 301, 302], 0),
    ],
)
def test_reuse_gives_what_a_cold_run_gives(second: list[int], reused: int) -> None:
    binding = FakeBinding()
    driver = Driver(binding)
    driver.add(list(range(200)), 3)
    driver.run()
    before = binding.num_tokens
    sequence = driver.add(second, 5)
    driver.run()
    assert sequence.num_reused == reused
    assert binding.num_tokens - before == len(second) - reused + 4
    assert answer(sequence) == plain_ids(second, 5)
    again = driver.add(list(range(200)), 3)
    driver.run()
    assert answer(again) == plain_ids(list(range(200)), 3)


def test_the_next_turn_reuses_the_answer_too() -> None:
    driver = Driver(FakeBinding())
    first = driver.add(list(range(100)), 50)
    driver.run()
    second = driver.add([*first.ids, 9, 9, 9], 10)
    driver.run()
    assert second.num_reused == 149  # the last token of an answer was never computed
    assert answer(second) == plain_ids(second.ids[:153], 10)


def test_a_cold_run_may_be_asked_for() -> None:
    driver = Driver(FakeBinding())
    driver.add(list(range(100)), 1)
    driver.run()
    cold = driver.add(list(range(100)), 1, may_reuse=False)
    driver.run()
    assert cold.num_reused == 0


def test_a_prompt_that_waits_finds_what_another_computed_meanwhile() -> None:
    driver = Driver(FakeBinding(make_limits(max_sequences=2, max_batch_tokens=64)))
    first = driver.add(list(range(130)), 30)
    for _ in range(3):
        driver.step()
    second = driver.add([*range(128), 5, 6], 5)
    driver.run()
    assert second.num_reused == 128
    assert first.pages == second.pages == []
    assert answer(first) == plain_ids(list(range(130)), 30)
    assert answer(second) == plain_ids([*range(128), 5, 6], 5)


def test_a_part_of_the_only_free_page_is_used_in_place() -> None:
    binding = FakeBinding(make_limits(context_size=128, num_pages=2))
    driver = Driver(binding)
    driver.add(list(range(100)), 1)
    driver.run()
    sequence = driver.add([*range(80), 300], 10)
    driver.run()
    assert sequence.num_reused == 80
    assert binding.num_copies == 0
    assert answer(sequence) == plain_ids([*range(80), 300], 10)


def test_short_of_pages_the_youngest_begins_again() -> None:
    limits = make_limits(context_size=256, max_sequences=3, num_pages=5)
    driver = Driver(FakeBinding(limits))
    prompts = [[index * 10, 1] for index in range(3)]
    sequences = [driver.add(prompt, 200) for prompt in prompts]
    driver.run()
    assert driver.finished[0] is sequences[0]
    for sequence, prompt in zip(sequences, prompts, strict=True):
        assert answer(sequence) == plain_ids(prompt, 200)


def test_a_failed_sequence_leaves_nothing_of_its_last_step() -> None:
    binding = FakeBinding()
    driver = Driver(binding)
    sequence = driver.add(list(range(20)), 5)
    assert driver.scheduler.plan() is not None
    driver.scheduler.drop(sequence)
    assert driver.scheduler.pages.cache.num_pages == 0
    assert driver.scheduler.pages.pool.num_free == binding.limits.num_pages
    assert driver.scheduler.num_sequences == 0
    assert driver.scheduler.plan() is None


def test_a_step_that_was_not_run_is_planned_again() -> None:
    driver = Driver(FakeBinding(make_limits(max_sequences=2)))
    sequences = [driver.add([1, 2, 3], 4), driver.add([4, 5], 4)]
    for _ in range(3):
        first, second = driver.scheduler.plan(), driver.scheduler.plan()
        assert first is not None and second is not None
        assert [(work.start, work.count) for work in first.works] == [(work.start, work.count) for work in second.works]
        assert np.array_equal(first.batch.token_ids, second.batch.token_ids)
        driver.step()
    driver.run()
    for sequence in sequences:
        assert answer(sequence) == plain_ids(sequence.ids[: sequence.num_prompt], 4)


stems = st.sampled_from([list(range(64)), list(range(100)), [*range(64), *range(300, 320)], [5], list(range(128))])
prompts = st.builds(lambda stem, tail: stem + tail, stems, st.lists(st.integers(0, 319), max_size=20))
plans = st.lists(st.tuples(prompts, st.integers(1, 12), st.integers(0, 6)), min_size=1, max_size=8)


@settings(max_examples=60)
@given(plans, st.integers(1, 4), st.integers(4, 70), st.integers(4, 12), st.booleans())
def test_any_mix_of_sequences_gives_each_its_own_answer(
    plan: list[tuple[list[int], int, int]], max_sequences: int, max_batch_tokens: int, num_pages: int, stop_one: bool
) -> None:
    """Arrivals, shared prefixes, preemption, reuse and a sequence that is ended early, in any combination."""
    limits = make_limits(
        context_size=4 * PAGE_SIZE,
        max_sequences=max_sequences,
        max_batch_tokens=max_batch_tokens,
        max_outputs=max_sequences,
        num_pages=num_pages,
    )
    driver = Driver(FakeBinding(limits))
    sequences: list[TokenSequence] = []
    for prompt, count, steps in plan:
        sequences.append(driver.add(prompt, count))
        for _ in range(steps):
            driver.step()
        if stop_one and sequences[0] in driver.wanted and len(sequences) == 2:
            driver.end(sequences[0])
            driver.check_books()
    driver.run()
    for sequence in sequences:
        assert answer(sequence) == plain_ids(sequence.ids[: sequence.num_prompt], len(answer(sequence)))
    assert driver.scheduler.num_sequences == 0
    assert driver.scheduler.pages.pool.num_free + driver.scheduler.pages.cache.num_pages == num_pages
    assert driver.scheduler.pages.cache.num_evictable() == driver.scheduler.pages.cache.num_pages
    assert all(len(sizes) <= max_sequences for sizes in driver.step_sizes)
    assert pages_for(limits.context_size) <= num_pages


def test_a_prefix_that_prompts_share_is_computed_once_though_they_begin_together() -> None:
    system = list(range(1, 301))
    binding = FakeBinding(make_limits(max_sequences=8, max_batch_tokens=512))
    driver = Driver(binding)
    sequences = [driver.add([*system, 310 + index], 2) for index in range(8)]
    driver.run()
    for sequence in sequences:
        assert answer(sequence) == plain_ids(sequence.ids[:301], 2)
    # Whole pages of the first prompt are known as soon as they are computed: 256 of the 300 tokens.
    assert [sequence.num_reused for sequence in sequences] == [0, *[256] * 7]
    assert binding.num_tokens == 8 * (301 + 1) - 7 * 256


def test_a_prefix_is_shared_in_part_of_a_page_too() -> None:
    driver = Driver(FakeBinding(make_limits(max_sequences=2, max_batch_tokens=512)))
    first = driver.add([*range(1, 101), *range(200, 300)], 2)
    second = driver.add([*range(1, 101), *range(300, 360)], 2)
    driver.run()
    assert (first.num_reused, second.num_reused) == (0, 100)
    assert driver.step_sizes[:2] == [[200], [1, 60]]
    assert answer(second) == plain_ids(second.ids[:160], 2)


def test_nobody_waits_for_a_prefix_of_less_than_a_page_nor_behind_one_who_waits() -> None:
    driver = Driver(FakeBinding(make_limits(max_sequences=4, max_batch_tokens=512)))
    shared = list(range(1, 129))
    driver.add([*shared, 390], 2)
    waits = driver.add([*shared, 391], 2)
    others = [driver.add([*shared[:40], 392, *range(200, 240)], 2), driver.add([395, 396], 2)]
    driver.step()
    assert driver.step_sizes == [[129, 81, 2]]
    assert waits.slot is None and all(other.slot is not None for other in others)
    driver.run()
    assert waits.num_reused == 128


def test_who_waits_for_a_prefix_begins_alone_when_the_other_is_gone() -> None:
    driver = Driver(FakeBinding(make_limits(max_sequences=2, max_batch_tokens=32)))
    first = driver.add(list(range(1, 200)), 2)
    second = driver.add([*range(1, 150), 399], 2)
    driver.step()
    assert second.slot is None
    driver.scheduler.drop(first)
    del driver.wanted[first]
    driver.run()
    assert answer(second) == plain_ids([*range(1, 150), 399], 2)
