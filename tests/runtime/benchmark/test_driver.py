"""What reaches the device: positions, pages and outputs of every kind of test."""

from __future__ import annotations

import pytest
from fake_device import FakeBinding, make_limits

from runtime.benchmark.driver import DeviceDriver
from runtime.devices.binding import Batch


class WatchedBinding(FakeBinding):
    """Keeps what it was asked: (positions, slots, outputs) of every run."""

    def __init__(self, **limits: int) -> None:
        super().__init__(make_limits(**limits))
        self.runs: list[tuple[list[int], list[int], list[int]]] = []

    def run(self, batch: Batch):
        self.runs.append((batch.positions.tolist(), batch.slots.tolist(), batch.outputs.tolist()))
        return super().run(batch)


def test_a_prompt_goes_in_chunks_and_asks_for_its_last_logits() -> None:
    binding = WatchedBinding(context_size=100, max_batch_tokens=32)
    assert DeviceDriver(binding).prefill(70, 0) > 0
    assert [(run[0][0], run[0][-1], run[2]) for run in binding.runs] == [(0, 31, []), (32, 63, []), (64, 69, [5])]


def test_decoding_takes_one_token_a_run() -> None:
    binding = WatchedBinding(context_size=100)
    driver = DeviceDriver(binding)
    driver.fill(70)
    binding.runs.clear()
    steps_s = driver.decode(3, 70)
    assert len(steps_s) == 3 and min(steps_s) > 0
    assert binding.runs == [([70], [0], [0]), ([71], [0], [0]), ([72], [0], [0])]


def test_passes_of_several_tokens_take_turns_with_passes_of_one() -> None:
    binding = WatchedBinding(context_size=100)
    driver = DeviceDriver(binding)
    driver.fill(10)
    binding.runs.clear()
    many_s, one_s = driver.verify(3, 2, 10)
    assert (len(many_s), len(one_s)) == (2, 2)
    assert binding.runs == [
        ([10, 11, 12], [0, 0, 0], [0, 1, 2]),
        ([10], [0], [0]),
        ([13, 14, 15], [0, 0, 0], [0, 1, 2]),
        ([13], [0], [0]),
    ]


@pytest.mark.parametrize("depth", [0, 10, 64, 130])
def test_sequences_decoded_together_have_pages_of_their_own_and_the_same_past(depth: int) -> None:
    binding = WatchedBinding(context_size=200, max_sequences=3)
    driver = DeviceDriver(binding)
    driver.fill(depth, 3)
    binding.runs.clear()
    driver.parallel(3, 2, depth)
    assert binding.runs == [
        ([depth] * 3, [0, 1, 2], [0, 1, 2]),
        ([depth], [0], [0]),
        ([depth + 1] * 3, [0, 1, 2], [0, 1, 2]),
        ([depth + 1], [0], [0]),
    ]
    assert binding.num_copies == 2 * -(-depth // 64)


def test_a_depth_is_computed_once() -> None:
    binding = WatchedBinding(context_size=200)
    driver = DeviceDriver(binding)
    driver.fill(50)
    driver.fill(50)
    driver.fill(20)
    assert binding.num_tokens == 50
    driver.fill(80)
    assert binding.num_tokens == 80
    assert all(not outputs for _, _, outputs in binding.runs)
