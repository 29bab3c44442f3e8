"""Times of a generation, on a clock that the test moves."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime import timings
from runtime.timings import Clock, percentile


class FakeTime:
    """Stands in for the module `time`."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def perf_counter(self) -> float:
        return self.now_s


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> FakeTime:
    fake = FakeTime()
    monkeypatch.setattr(timings, "time", fake)
    return fake


def test_rates_and_percentiles(time: FakeTime) -> None:
    clock = Clock()
    time.now_s += 0.5
    clock.begin()
    time.now_s += 2
    clock.prefilled()
    for gap_s in (0.1, 0.2, 0.3, 0.4, 0.1):
        time.now_s += gap_s
        clock.tick()
    time.now_s += 1
    found = clock.timings(prompt_tokens=50, reused_tokens=10)
    assert (found.prompt_tokens, found.reused_tokens, found.output_tokens) == (50, 10, 5)
    assert found.hit_rate == 0.2
    assert found.queue_s == pytest.approx(0.5)
    assert found.ttft_s == pytest.approx(2.6)
    assert found.prefill_tokens_per_s == pytest.approx(20)
    assert found.decode_tokens_per_s == pytest.approx(4)
    assert found.inter_token_p50_ms == pytest.approx(250)
    assert found.inter_token_p99_ms == pytest.approx(397)
    assert found.total_s == pytest.approx(4.6)


def test_what_was_not_measured_is_none(time: FakeTime) -> None:
    clock = Clock()
    time.now_s += 3
    waited = clock.timings(prompt_tokens=5, reused_tokens=0)
    assert (waited.ttft_s, waited.prefill_tokens_per_s, waited.decode_tokens_per_s) == (None, None, None)
    assert (waited.inter_token_p50_ms, waited.queue_s, waited.total_s) == (None, 3, 3)
    clock.begin()
    time.now_s += 1
    clock.prefilled()
    clock.tick()
    one = clock.timings(prompt_tokens=5, reused_tokens=0)
    assert (one.ttft_s, one.prefill_tokens_per_s, one.decode_tokens_per_s) == (4, 5, None)


def test_a_second_beginning_does_not_count(time: FakeTime) -> None:
    clock = Clock()
    clock.begin()
    time.now_s += 2
    clock.begin()
    clock.prefilled()
    assert clock.is_prefilled
    assert clock.timings(prompt_tokens=4, reused_tokens=0).prefill_tokens_per_s == 2


@given(st.lists(st.floats(0, 1e6), min_size=1), st.floats(0, 100))
def test_percentiles_are_numpys(values: list[float], percent: float) -> None:
    assert percentile(sorted(values), percent) == pytest.approx(float(np.percentile(values, percent)))
