"""Real models on the CPU's kernels against their reference answers.

Owns how a prompt is fed, and how far llama.cpp's own kernels are from the exact function.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

import golden
from cpu_models import Array, Piece, bound, limits_of
from golden import GreedyReport, Report

from kernels_cpu.activations import Precision

Found = TypeVar("Found")
TILE = 128
LIMITS = limits_of(tokens=TILE, outputs=TILE, sequences=1, context=576)
LLAMA_CPP_KL: Mapping[str, float] = {
    "smollm2-135m": 0.00837,
    "gemma3-270m": 0.02587,
    "qwen2.5-coder-0.5b": 0.00137,
    "qwen2.5-coder-1.5b": 0.00302,
}
"""Mean KL divergence of llama.cpp b11434 (its own quantised kernels, f16 cache) from the exact function, in nats."""


def measure(path: Path, name: str, activations: Precision) -> Report:
    """How far a model is from the exact function, on all prompts."""
    return _with_logits(path, activations, lambda logits: golden.evaluate(logits, name))


def check_balanced(path: Path, name: str) -> None:
    """Balanced activations: at most half as far as llama.cpp is, also at first positions."""
    report = measure(path, name, "balanced")
    assert report.mean_kl < LLAMA_CPP_KL[name] / 2, report
    assert report.mean_first_kl < 0.25 and report.top1_agreement > 0.97, report


def check_exact(path: Path, name: str) -> None:
    """Exact activations: all but equal."""
    report = measure(path, name, "exact")
    assert report.mean_kl < 0.0001 and max(report.first_kls) < 0.0001, report
    assert report.top1_agreement > 0.99 and abs(report.perplexity_error) < 0.005, report


def measure_greedy(path: Path, name: str, activations: Precision) -> GreedyReport:
    """Whether the best token is the reference's, wherever the reference is clear."""
    return _with_logits(path, activations, lambda logits: golden.evaluate_greedy(logits, name))


def _with_logits(path: Path, activations: Precision, use: Callable[[golden.LogitsFunction], Found]) -> Found:
    with bound(path, activations=activations, threads=2, limits=LIMITS) as model:

        def logits(ids: Sequence[int]) -> Iterator[Array]:
            for start in range(0, len(ids), TILE):
                rows = model.run(Piece(ids=ids[start : start + TILE], start=start))
                assert rows is not None
                yield rows

        return use(logits)
