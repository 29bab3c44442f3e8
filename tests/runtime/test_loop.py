"""The engine's thread on the fake device: streaming, batches, cancelling, closing, failing."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Iterator

import numpy as np
import pytest
from fake_device import VOCAB_SIZE, FakeBinding, make_limits, plain_ids, row_after
from hypothesis import given, settings
from hypothesis import strategies as st
from loop_runner import Runner, token_bytes

from runtime.answer import Answer
from runtime.errors import DeviceReplaced, EngineClosedError, NumericError
from runtime.sampling import SamplingOptions

SEEDED = SamplingOptions(seed=11)
PATIENCE_S = 30  # an answer that does not come at all fails here


@pytest.fixture
def runner() -> Iterator[Runner]:
    runner = Runner(FakeBinding(make_limits(max_sequences=3)))
    yield runner
    runner.binding.release()
    runner.loop.close()


def test_chunks_come_one_by_one_and_add_up_to_the_result(runner: Runner) -> None:
    generation = runner.ask([1, 2, 3], max_tokens=20)
    chunks = list(generation)
    result = generation.result
    assert list(result.ids) == plain_ids([1, 2, 3], 20)
    assert result.prompt_ids == (1, 2, 3)
    assert tuple(token_id for chunk in chunks for token_id in chunk.token_ids) == result.ids
    assert "".join(chunk.text for chunk in chunks) == result.text
    assert result.text == b"".join(map(token_bytes, result.ids)).decode(errors="replace")
    assert result.finish_reason == "length"
    assert list(generation) == []


def test_asking_returns_before_anything_was_computed(runner: Runner) -> None:
    runner.binding.hold()
    generation = runner.ask([1, 2, 3], max_tokens=2)
    assert not generation.is_done
    assert not generation.wait(0)
    runner.binding.release()
    assert generation.wait(PATIENCE_S)
    assert threading.get_ident() not in runner.binding.threads
    assert len(runner.binding.threads) == 1


def test_generations_share_steps_and_stay_what_they_are_alone(runner: Runner) -> None:
    runner.binding.hold()
    prompts = [[index, index + 1] for index in range(0, 70, 10)]
    generations = [runner.ask(prompt, max_tokens=12) for prompt in prompts]
    runner.binding.release()
    for prompt, generation in zip(prompts, generations, strict=True):
        assert list(generation.result.ids) == plain_ids(prompt, 12)
    assert runner.binding.num_runs < 7 * 12 / 2


def test_same_seed_and_prompt_give_the_same_ids_always() -> None:
    prompt = list(range(100, 180))

    def fresh(max_sequences: int) -> Runner:
        return Runner(FakeBinding(make_limits(max_sequences=max_sequences, max_batch_tokens=20)))

    alone = fresh(1)
    first = alone.ask(prompt, max_tokens=30, sampling=SEEDED).result
    again = alone.ask(prompt, max_tokens=30, sampling=SEEDED).result
    other = alone.ask(prompt, max_tokens=30, sampling=SamplingOptions(seed=12)).result
    alone.loop.close()
    crowd = fresh(4)
    neighbours = [crowd.ask([5 + index] * (7 + index), max_tokens=40, sampling=SEEDED) for index in range(5)]
    among = crowd.ask(prompt, max_tokens=30, sampling=SEEDED).result
    assert all(neighbour.result.finish_reason == "length" for neighbour in neighbours)
    crowd.loop.close()
    assert again.timings.reused_tokens == 79
    assert first.ids == again.ids == among.ids
    assert first.ids != other.ids


def test_the_answer_ends_on_any_end_token_which_is_no_text() -> None:
    ids = plain_ids([1, 2, 3], 6)
    for count, end_id in enumerate(ids[:4], start=1):
        runner = Runner(FakeBinding(), end_ids=frozenset({end_id, VOCAB_SIZE + 5}))
        result = runner.ask([1, 2, 3]).result
        whole = runner.ask([1, 2, 3], ignore_end=True, max_tokens=6).result
        runner.loop.close()
        assert result.finish_reason == "stop"
        assert result.stop_text is None
        assert list(result.ids) == ids[:count]
        assert result.text == b"".join(map(token_bytes, ids[: count - 1])).decode(errors="replace")
        assert list(whole.ids) == ids
        assert whole.finish_reason == "length"


def test_a_stop_text_over_token_borders_ends_the_answer_before_it(runner: Runner) -> None:
    ids = plain_ids([7, 7], 12)
    text = b"".join(map(token_bytes, ids)).decode(errors="replace")
    place = len(b"".join(map(token_bytes, ids[:6])).decode(errors="replace"))
    stop = text[place - 4 : place + 3]
    assert text.index(stop) == place - 4
    generation = runner.ask([7, 7], max_tokens=12, stop=(stop, "never there"))
    assert "".join(chunk.text for chunk in generation) == text[: place - 4]
    result = generation.result
    assert (result.text, result.finish_reason, result.stop_text) == (text[: place - 4], "stop", stop)
    assert len(result.ids) < 12


def test_text_that_was_held_back_comes_with_the_end(runner: Runner) -> None:
    ids = plain_ids([7, 7], 5)
    text = b"".join(map(token_bytes, ids)).decode(errors="replace")
    generation = runner.ask([7, 7], max_tokens=5, stop=(text[-2:] + "more",))
    assert "".join(chunk.text for chunk in generation) == text
    assert generation.result.finish_reason == "length"


def test_a_full_window_ends_the_answer() -> None:
    runner = Runner(FakeBinding(make_limits(context_size=20)))
    result = runner.ask([1, 2, 3], max_tokens=1000).result
    full = runner.ask(list(range(20))).result
    exact = runner.ask(list(range(10)), max_tokens=11).result
    runner.loop.close()
    assert (len(result.ids), result.finish_reason) == (18, "context")
    assert (len(full.ids), full.finish_reason) == (1, "context")
    assert (len(exact.ids), exact.finish_reason) == (11, "length")


def test_no_tokens_may_be_asked_for(runner: Runner) -> None:
    generation = runner.ask([1, 2, 3], max_tokens=0, prompt_logprobs=2)
    assert list(generation) == []
    assert generation.result.finish_reason == "length"
    assert len(generation.result.prompt_logprobs) == 3
    assert generation.result.timings.ttft_s is None


def test_logprobs_are_those_of_the_model_whatever_the_sampler_does(runner: Runner) -> None:
    prompt = list(range(50))
    hot = SamplingOptions(seed=3, temperature=2, repeat_penalty=3, top_k=300, top_p=1, min_p=0)
    generation = runner.ask(prompt, max_tokens=5, logprobs=4, prompt_logprobs=3, sampling=hot)
    chunks = list(generation)
    result = generation.result
    assert tuple(row for chunk in chunks for row in chunk.logprobs) == result.logprobs
    assert len(result.logprobs) == 5
    assert len(result.prompt_logprobs) == 50
    ids = [*prompt, *result.ids]
    for length, found, count in [
        *((index + 1, row, 3) for index, row in enumerate(result.prompt_logprobs)),
        *((50 + index, row, 4) for index, row in enumerate(result.logprobs)),
    ]:
        row = row_after(ids[:length]).astype(np.float64)
        expected = row - np.log(np.exp(row).sum())
        best = np.argsort(-expected)[:count]
        assert [token_id for token_id, _ in found] == best.tolist()
        assert [value for _, value in found] == pytest.approx(expected[best].tolist(), abs=1e-5)
    assert runner.binding.largest_outputs <= runner.binding.limits.max_outputs


def test_progress_of_a_prompt_is_told_chunk_by_chunk(runner: Runner) -> None:
    seen: list[tuple[int, int]] = []
    runner.ask(list(range(80)), max_tokens=3, on_prefill=lambda done, total: seen.append((done, total))).wait()
    assert seen == [(32, 80), (64, 80), (80, 80)]


def test_timings_tell_what_was_reused(runner: Runner) -> None:
    runner.ask(list(range(80)), max_tokens=3).wait()
    timings = runner.ask([*range(80), 7], max_tokens=5).result.timings
    assert (timings.prompt_tokens, timings.reused_tokens, timings.output_tokens) == (81, 80, 5)
    assert timings.hit_rate == 80 / 81
    assert timings.ttft_s is not None and timings.inter_token_p99_ms is not None
    assert 0 < timings.ttft_s <= timings.total_s


def test_cancel_stops_a_run_in_progress(runner: Runner) -> None:
    runner.binding.hold()
    generation = runner.ask(list(range(300)), max_tokens=5)
    assert runner.binding.entered.wait(PATIENCE_S)
    generation.cancel()  # the device is held for ever: only its own cancel() ends the run
    assert generation.wait(PATIENCE_S)
    assert generation.result.finish_reason == "cancelled"
    assert generation.result.ids == ()
    runner.binding.release()
    assert list(runner.ask([4], max_tokens=3).result.ids) == plain_ids([4], 3)


def test_cancel_keeps_what_there_is(runner: Runner) -> None:
    runner.binding.hold_at_run(5)
    generation = runner.ask([1, 2, 3])
    chunks = iter(generation)
    first = [next(chunks) for _ in range(3)]
    generation.cancel()
    rest = list(chunks)
    result = generation.result
    assert result.finish_reason == "cancelled"
    assert 3 <= len(result.ids) <= 5
    assert "".join(chunk.text for chunk in first + rest) == result.text
    assert list(result.ids) == plain_ids([1, 2, 3], len(result.ids))
    generation.cancel()
    assert generation.result is result


def test_cancel_of_one_does_not_touch_the_others(runner: Runner) -> None:
    runner.binding.hold()
    kept = runner.ask(list(range(100)), max_tokens=10)
    dropped = runner.ask(list(range(200, 300)), max_tokens=10)
    waiting = [runner.ask([index], max_tokens=10) for index in range(3)]
    assert runner.binding.entered.wait(PATIENCE_S)
    dropped.cancel()
    waiting[2].cancel()
    runner.binding.release()
    assert list(kept.result.ids) == plain_ids(list(range(100)), 10)
    assert dropped.result.finish_reason == "cancelled"
    assert waiting[2].result.finish_reason == "cancelled"
    assert [len(generation.result.ids) for generation in waiting[:2]] == [10, 10]


@settings(max_examples=15)
@given(st.lists(st.tuples(st.integers(1, 60), st.integers(0, 30)), min_size=1, max_size=6))
def test_cancelling_at_any_moment_leaves_the_engine_right(plan: list[tuple[int, int]]) -> None:
    runner = Runner(FakeBinding(make_limits(max_sequences=2, max_batch_tokens=16)))
    try:
        generations = [runner.ask(list(range(length)), max_tokens=200) for length, _ in plan]
        for generation, (_, num_chunks) in zip(generations, plan, strict=True):
            for index, _ in enumerate(generation):
                if index == num_chunks:
                    generation.cancel()
        for generation, (length, _) in zip(generations, plan, strict=True):
            result = generation.result
            assert list(result.ids) == plain_ids(list(range(length)), len(result.ids))
        assert list(runner.ask([3, 1], max_tokens=5).result.ids) == plain_ids([3, 1], 5)
    finally:
        runner.loop.close()


def test_closing_in_the_middle_ends_every_answer(runner: Runner) -> None:
    runner.binding.hold()
    generations = [runner.ask([index], max_tokens=50) for index in range(6)]
    assert runner.binding.entered.wait(PATIENCE_S)
    runner.loop.close()
    runner.loop.close()
    assert runner.binding.is_closed
    assert {generation.result.finish_reason for generation in generations} == {"cancelled"}
    assert all(list(generation) == [] for generation in generations)
    with pytest.raises(EngineClosedError, match="closed"):
        runner.ask([1])
    generations[0].cancel()


def test_a_failing_device_fails_what_it_computed_and_nothing_else(runner: Runner) -> None:
    runner.binding.fail_next = RuntimeError("the device burns")
    generation = runner.ask([1, 2], max_tokens=3)
    with pytest.raises(RuntimeError, match="burns"):
        list(generation)
    with pytest.raises(RuntimeError, match="burns"):
        _ = generation.result
    assert list(runner.ask([1, 2], max_tokens=3).result.ids) == plain_ids([1, 2], 3)


def test_a_replaced_device_computes_everything_anew(runner: Runner) -> None:
    runner.binding.hold_at_run(3)
    answers = [runner.ask([5, 6, 7], max_tokens=9), runner.ask([8, 9], max_tokens=9)]
    assert runner.binding.entered.wait(5)
    runner.binding.fail_next = DeviceReplaced("The GPU stopped answering. The CPU goes on alone.")
    runner.binding.release()
    for answer, prompt in zip(answers, ([5, 6, 7], [8, 9]), strict=True):
        assert list(answer.result.ids) == plain_ids(prompt, 9)
        assert answer.result.notes == ("The GPU stopped answering. The CPU goes on alone.",)
    later = runner.ask([5, 6, 7], max_tokens=2).result
    assert (list(later.ids), later.notes) == (plain_ids([5, 6, 7], 2), ())


def test_a_failing_callback_fails_its_own_answer(runner: Runner) -> None:
    def complain(done: int, total: int) -> None:
        raise ValueError(f"{done} of {total}")

    runner.binding.hold()
    bad = runner.ask([1, 2], max_tokens=3, on_prefill=complain)
    good = runner.ask([3, 4], max_tokens=3)
    runner.binding.release()
    with pytest.raises(ValueError, match="2 of 2"):
        _ = bad.result
    assert list(good.result.ids) == plain_ids([3, 4], 3)


def test_logits_that_are_not_numbers_fail_the_answer() -> None:
    class Broken(FakeBinding):
        def run(self, batch):
            rows = super().run(batch)
            rows[0, 5] = np.nan
            return rows

    runner = Runner(Broken())
    with pytest.raises(NumericError, match="nan"):
        _ = runner.ask([1, 2]).result
    runner.loop.close()


def test_a_fault_of_our_own_does_not_leave_anyone_waiting(runner: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> None:
        raise AssertionError("a bug")

    monkeypatch.setattr(runner.loop._scheduler, "plan", broken)
    generation = runner.ask([1, 2])
    with pytest.raises(AssertionError, match="a bug"):
        _ = generation.result
    with pytest.raises(EngineClosedError):
        while True:  # the thread ends on its own; until it has, prompts are taken and fail
            with pytest.raises(AssertionError):
                _ = runner.ask([1]).result


def test_an_idle_loop_sleeps(runner: Runner) -> None:
    runner.ask([1, 2], max_tokens=2).wait()
    num_reads = 0
    read_mail = runner.loop._read_mail

    def counted() -> bool:
        nonlocal num_reads
        num_reads += 1
        return read_mail()

    runner.loop._read_mail = counted
    time.sleep(0.05)
    assert num_reads <= 2
    assert runner.ask([1, 2], max_tokens=2).wait(PATIENCE_S)


def test_a_reader_and_a_canceller_may_be_other_threads(runner: Runner) -> None:
    runner.binding.hold_at_run(5)
    generation = runner.ask([9, 9])
    texts: list[str] = []
    reader = threading.Thread(target=lambda: texts.extend(chunk.text for chunk in generation))
    reader.start()
    assert runner.binding.entered.wait(PATIENCE_S)
    generation.cancel()
    reader.join(PATIENCE_S)
    assert not reader.is_alive()
    assert generation.result.finish_reason == "cancelled"
    assert "".join(texts) == generation.result.text


def test_nothing_is_kept_of_answers_that_ended(runner: Runner) -> None:
    for index in range(5):
        runner.ask([index, 1], max_tokens=4).wait()
    runner.ask([1], max_tokens=1).wait()
    gc.collect()
    assert sum(isinstance(item, Answer) for item in gc.get_objects()) <= 1
