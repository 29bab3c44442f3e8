"""Real models against the exact function: closer than half of what llama.cpp is, and in `exact` all but equal.

The models of these tests are downloaded once; see tests/large for those too large for every run.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from golden_cpu import LLAMA_CPP_KL, measure, measure_greedy

NAMES = ("smollm2-135m", "gemma3-270m")


@pytest.mark.parametrize("name", NAMES)
def test_balanced_is_at_most_half_as_far_as_llama_cpp(name: str, model_path: Callable[[str], Path]) -> None:
    report = measure(model_path(name), name, "balanced")
    assert report.mean_kl < LLAMA_CPP_KL[name] / 2, report
    assert report.mean_first_kl < 0.25 and report.top1_agreement > 0.97, report


@pytest.mark.parametrize("name", NAMES)
def test_exact_is_all_but_equal(name: str, model_path: Callable[[str], Path]) -> None:
    report = measure(model_path(name), name, "exact")
    assert report.mean_kl < 0.0001 and max(report.first_kls) < 0.0001, report
    assert report.top1_agreement > 0.99 and abs(report.perplexity_error) < 0.005, report


@pytest.mark.parametrize(("name", "num_clear"), [("smollm2-135m", 634), ("gemma3-270m", 580)])
def test_greedy_tokens_where_the_reference_is_clear(
    name: str, num_clear: int, model_path: Callable[[str], Path]
) -> None:
    report = measure_greedy(model_path(name), name, "balanced")
    assert report.num_checked == num_clear and not report.misses, report
