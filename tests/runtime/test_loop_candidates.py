"""The engine's thread on a fake device that finds the best of the logits."""

from __future__ import annotations

from fake_device import FakeBinding, FindingBinding, make_limits
from loop_runner import GREEDY, Runner

from runtime.sampling import SamplingOptions

CHAINS = (GREEDY, SamplingOptions(seed=11), SamplingOptions(seed=3, repeat_penalty=1.2, repeat_window=20))


def test_a_device_is_asked_for_the_best_alone_where_that_is_enough() -> None:
    binding = FindingBinding(make_limits(max_sequences=3))
    runner, whole = Runner(binding), Runner(FakeBinding(make_limits(max_sequences=3)))

    def answers(runner: Runner, **fields: object) -> list[tuple[int, ...]]:
        asked = [
            runner.ask([index, 2, 3], max_tokens=8, sampling=chain, **fields) for index, chain in enumerate(CHAINS)
        ]
        return [generation.result.ids for generation in asked]

    assert answers(runner) == answers(whole)
    assert set(binding.found) <= {1, 40, 60} and 60 in binding.found
    num_found = len(binding.found)
    assert answers(runner, logprobs=1) == answers(whole)
    assert runner.ask([1, 2, 3], max_tokens=4, sampling=SamplingOptions(top_k=65)).result.finish_reason == "length"
    assert len(binding.found) == num_found
    runner.loop.close()
    whole.loop.close()
