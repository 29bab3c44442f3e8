"""The golden tests of models that are too large for every run: a gigabyte and a half is downloaded.

Not collected by itself; run it by name:

    make test ARGS=tests/large/qwen_golden.py
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from golden_cpu import LLAMA_CPP_KL, measure

NAMES = ("qwen2.5-coder-0.5b", "qwen2.5-coder-1.5b")


@pytest.mark.parametrize("name", NAMES)
def test_balanced_is_at_most_half_as_far_as_llama_cpp(name: str, model_path: Callable[[str], Path]) -> None:
    """Also at first positions, where one activation is huge: llama.cpp is 1.73 off there with the larger model."""
    report = measure(model_path(name), name, "balanced")
    assert report.mean_kl < LLAMA_CPP_KL[name] / 2, report
    assert report.mean_first_kl < 0.25 and report.top1_agreement > 0.97, report


@pytest.mark.parametrize("name", NAMES)
def test_exact_is_all_but_equal(name: str, model_path: Callable[[str], Path]) -> None:
    report = measure(model_path(name), name, "exact")
    assert report.mean_kl < 0.0001 and max(report.first_kls) < 0.0001, report
    assert report.top1_agreement > 0.99 and abs(report.perplexity_error) < 0.005, report
