"""Real models against the exact function: closer than half of what llama.cpp is, and in `exact` all but equal.

The models of these tests are downloaded once; see tests/large for those too large for every run.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from golden_cpu import check_balanced, check_exact, measure_greedy

NAMES = ("smollm2-135m", "gemma3-270m")


@pytest.mark.parametrize("name", NAMES)
def test_balanced_is_at_most_half_as_far_as_llama_cpp(name: str, model_path: Callable[[str], Path]) -> None:
    check_balanced(model_path(name), name)


@pytest.mark.parametrize("name", NAMES)
def test_exact_is_all_but_equal(name: str, model_path: Callable[[str], Path]) -> None:
    check_exact(model_path(name), name)


@pytest.mark.parametrize(("name", "num_clear"), [("smollm2-135m", 634), ("gemma3-270m", 580)])
def test_greedy_tokens_where_the_reference_is_clear(
    name: str, num_clear: int, model_path: Callable[[str], Path]
) -> None:
    report = measure_greedy(model_path(name), name, "balanced")
    assert report.num_checked == num_clear and not report.misses, report
