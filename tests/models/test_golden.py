"""The measures of the golden harness, on distributions whose distances are known."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import golden
import numpy as np
import pytest

NAMES = ("smollm2-135m", "gemma3-270m", "qwen2.5-coder-0.5b", "qwen2.5-coder-1.5b")
SHORT = [0, 1, 3]
SMOLLM2_VOCABULARY = 49152


def replayed(change: Callable[[np.ndarray], np.ndarray] = lambda logits: logits) -> golden.LogitsFunction:
    """Logits that hold the listed probabilities and share what is left, three rows a tile."""
    prompts = {prompt.ids: prompt for prompt in golden.load_exact("smollm2-135m")}

    def logits_fn(ids: Sequence[int]) -> Iterator[np.ndarray]:
        prompt = prompts[tuple(ids)]
        num_others = SMOLLM2_VOCABULARY - prompt.top_ids.shape[1]
        for start in range(0, len(ids), 3):
            tops = prompt.top_logprobs[start : start + 3]
            rest = np.clip(1.0 - np.exp(tops).sum(axis=1, keepdims=True), 1e-12, None) / num_others
            logits = np.tile(np.log(rest), (1, SMOLLM2_VOCABULARY))
            np.put_along_axis(logits, prompt.top_ids[start : start + 3].astype(np.int64), tops, axis=1)
            yield change(logits)

    return logits_fn


@pytest.mark.parametrize("name", NAMES)
def test_the_data_are_whole(name: str) -> None:
    prompts = golden.load_exact(name)
    assert len(prompts) == 9
    for prompt in prompts:
        assert prompt.top_ids.shape == prompt.top_logprobs.shape == (len(prompt.ids), 64)
        assert len(prompt.nll) == len(prompt.ids) - 1
        assert (np.diff(prompt.top_logprobs, axis=1) <= 0).all()
        assert (np.exp(prompt.top_logprobs).sum(axis=1) <= 1.0 + 1e-4).all()
        for position, token_id in enumerate(prompt.ids[1:]):
            listed = np.flatnonzero(prompt.top_ids[position] == token_id)
            if len(listed):
                assert -prompt.top_logprobs[position, listed[0]] == pytest.approx(prompt.nll[position], abs=1e-5)
    assert golden.load_text().startswith(prompts[-1].text)


def test_the_first_numbers_of_a_prompt() -> None:
    prompt = golden.load_exact("smollm2-135m")[0]
    assert prompt.text == "The capital of France is Paris, and the capital of Italy is"
    assert prompt.ids[:5] == (504, 3575, 282, 4649, 314)
    assert prompt.top_ids[0, :3].tolist() == [29, 28, 198]
    assert prompt.top_logprobs[0, :3] == pytest.approx([-0.865475, -2.653244, -3.151535], abs=1e-9)
    assert prompt.nll[:2] == pytest.approx([11.539289, 0.337606], abs=1e-9)


@pytest.mark.parametrize(("name", "num_clear"), [("smollm2-135m", 634), ("gemma3-270m", 580)])
def test_greedy_prompts(name: str, num_clear: int) -> None:
    prompts = golden.load_greedy(name)
    assert all(len(prompt.output_ids) == len(prompt.gaps) > 0 < len(prompt.prompt_ids) for prompt in prompts)
    assert sum(gap >= golden.CLEAR_GAP for prompt in prompts for gap in prompt.gaps) == num_clear


def test_the_exact_distribution_is_at_no_distance_from_itself() -> None:
    report = golden.evaluate(replayed(), "smollm2-135m", prompts=SHORT)
    assert report.mean_kl == pytest.approx(0.0, abs=1e-9)
    assert report.max_kl < 1e-6 and max(report.first_kls) < 1e-6
    assert report.top1_agreement == 1.0
    assert report.num_positions == 13 + 19 + 15 - 3 and len(report.first_kls) == 3


def test_another_temperature_is_at_a_distance_and_keeps_the_best_token() -> None:
    flat = golden.evaluate(replayed(lambda logits: logits * 0.8), "smollm2-135m", prompts=SHORT)
    assert flat.mean_kl > 0.01 and flat.top1_agreement == 1.0
    assert flat.perplexity_error > 0.005
    assert flat.max_kl >= flat.p99_kl >= flat.mean_kl
    assert "smollm2-135m: 44 positions" in str(flat)


def test_a_wrong_best_token_is_counted() -> None:
    def swapped(logits: np.ndarray) -> np.ndarray:
        rows = np.arange(len(logits))
        order = np.argsort(logits, axis=1)
        first, second = order[:, -1], order[:, -2]
        logits[rows, first], logits[rows, second] = logits[rows, second].copy(), logits[rows, first].copy()
        return logits

    report = golden.evaluate(replayed(swapped), "smollm2-135m", prompts=[0])
    assert report.top1_agreement == 0.0


def test_the_divergence_of_two_small_distributions() -> None:
    p, q = np.array([0.5, 0.25, 0.25]), np.array([0.25, 0.25, 0.5])
    top_ids = np.array([[0, 1]])
    found = golden.divergences(top_ids, np.log(p[top_ids]), np.log(q[None, :]))
    assert found == pytest.approx([0.5 * np.log(2.0) + 0.25 * np.log(0.5)])
    split = np.log(np.array([[0.25, 0.25, 0.125, 0.375]]))
    assert golden.divergences(top_ids, np.log(p[top_ids]), split) == pytest.approx(found)


def test_logits_for_too_few_positions_are_an_error() -> None:
    def short(ids: Sequence[int]) -> Iterator[np.ndarray]:
        yield np.zeros((len(ids) - 1, SMOLLM2_VOCABULARY), np.float32)

    with pytest.raises(ValueError, match="12 positions came for 13 tokens"):
        golden.evaluate(short, "smollm2-135m", prompts=[0])


def test_greedy_misses_are_listed_with_their_place() -> None:
    prompt = golden.load_greedy("smollm2-135m")[0]
    fed = prompt.prompt_ids + prompt.output_ids

    def perfect_but_for_one(ids: Sequence[int]) -> Iterator[np.ndarray]:
        assert tuple(ids) == fed[:-1]
        logits = np.zeros((len(ids), SMOLLM2_VOCABULARY), np.float32)
        logits[np.arange(len(ids)), fed[1:]] = 1.0
        logits[len(prompt.prompt_ids) - 1, 11] = 2.0
        yield from np.split(logits, [4])

    report = golden.evaluate_greedy(perfect_but_for_one, "smollm2-135m", prompts=[0])
    assert prompt.gaps[0] >= golden.CLEAR_GAP
    assert report.misses == ((0, 0, prompt.output_ids[0], 11),)
    assert report.num_checked == sum(gap >= golden.CLEAR_GAP for gap in prompt.gaps)


def test_log_softmax_of_large_logits() -> None:
    assert golden.log_softmax(np.array([[1e4, 1e4, -1e4]], np.float32)) == pytest.approx(
        np.array([[-np.log(2.0), -np.log(2.0), -2e4 - np.log(2.0)]])
    )
