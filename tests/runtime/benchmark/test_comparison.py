"""Which rows are compared, and which differences are called larger than noise."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from bench_rows import DECODE, SETTING, make_row, peer_row

from runtime.benchmark.comparison import compare
from runtime.benchmark.workloads import Workload

RANDOM = np.random.default_rng(3)


def noisy(level: float, count: int = 5, noise: float = 0.02) -> list[float]:
    return (level * np.exp(noise * RANDOM.normal(size=count))).tolist()


@pytest.mark.parametrize(
    ("first", "second", "verdict"),
    [
        ([100.0, 101.0, 99.0, 100.5, 99.5], [120.0, 121.0, 119.0, 120.5, 119.5], "faster"),
        ([100.0, 101.0, 99.0, 100.5, 99.5], [80.0, 81.0, 79.0, 80.5, 79.5], "slower"),
        ([100.0, 101.0, 99.0, 100.5, 99.5], [100.2, 101.2, 99.2, 100.7, 99.7], "within noise"),
        ([100.0, 130.0, 70.0, 115.0, 85.0], [120.0, 150.0, 90.0, 135.0, 105.0], "within noise"),
        ([100.0, 100.1, 100.2, 100.3, 100.4], [100.6, 100.7, 100.8, 100.9, 100.95], "within noise"),  # below the margin
        ([100.0, 101.0, 99.0], [200.0, 201.0, 199.0], "too few repeats"),
    ],
)
def test_the_verdict(first: list[float], second: list[float], verdict: str) -> None:
    (difference,) = compare([make_row(*first)], [make_row(*second)]).differences
    assert difference.verdict == verdict
    assert (difference.interval is None) == (verdict == "too few repeats")
    assert (difference.first_repeats, difference.second_repeats) == (len(first), len(second))


def test_nothing_changed_is_seldom_called_a_difference() -> None:
    calls = [
        compare([make_row(*noisy(100))], [make_row(*noisy(100))]).differences[0].verdict != "within noise"
        for _ in range(1000)
    ]
    assert sum(calls) <= 50


def test_a_real_difference_is_seen() -> None:
    calls = [
        compare([make_row(*noisy(100))], [make_row(*noisy(110))]).differences[0].verdict == "faster" for _ in range(200)
    ]
    assert sum(calls) >= 195


def test_rows_that_differ_in_anything_that_counts_are_no_pair() -> None:
    row = make_row()
    others = [
        make_row(workload=replace(DECODE, depth=64)),
        make_row(workload=Workload(test="decode", output_tokens=64)),
        peer_row(),
        *(
            make_row(setting=replace(SETTING, **{name: value}))
            for name, value in {
                "threads": 1,
                "batch_size": 64,
                "cache_type_k": "q8_0",
                "cache_type_v": "q8_0",
                "activations": "fast",
                "isa": "avx2",
                "model_fingerprint": "beef",
            }.items()
        ),
    ]
    comparison = compare([row], others)
    assert comparison.differences == ()
    assert comparison.only_first == (row,) and comparison.only_second == tuple(others)


def test_the_files_name_and_the_models_do_not_count() -> None:
    moved = replace(SETTING, model="Another Name", model_file="elsewhere.gguf")
    assert len(compare([make_row()], [make_row(setting=moved)]).differences) == 1


def test_several_runs_in_one_file_are_pooled() -> None:
    """Each run is steady in itself; only together they show how much runs differ."""
    first = [make_row(100.0, 100.1, 99.9, 100.2), make_row(130.0, 130.1, 129.9, 130.2)]
    second = [make_row(115.0, 115.1, 114.9, 115.2)]
    (difference,) = compare(first, second).differences
    assert (difference.first_repeats, difference.second_repeats) == (8, 4)
    assert difference.verdict == "within noise"
    assert compare(first[:1], second).differences[0].verdict == "faster"
