"""The grid of a plan: which tests, which loads, how much room."""

from __future__ import annotations

from typing import Any

import pytest

from runtime.benchmark.workloads import BenchPlan, Workload
from runtime.errors import OptionError


def test_the_default_is_a_prompt_an_answer_and_the_engine() -> None:
    assert [workload.label for workload in BenchPlan().workloads()] == ["prefill 512", "decode 128", "generate 512+128"]
    (load,) = BenchPlan().loads()
    assert (load.context_size, load.threads, load.max_sequences, load.activations) == (640, None, 1, "balanced")


def test_depths_come_in_order_and_once() -> None:
    plan = BenchPlan(prompts=(8,), outputs=(4,), depths=(64, 0, 64), verify=(2,), parallel=(3,), has_generate=False)
    assert [workload.label for workload in plan.workloads()] == [
        *("prefill 8", "decode 4", "verify 2", "parallel 3"),
        *("prefill 8 @ 64", "decode 4 @ 64", "verify 2 @ 64", "parallel 3 @ 64"),
    ]


@pytest.mark.parametrize(
    ("prompts", "outputs", "labels"),
    [
        ((0,), (4,), ["decode 4"]),
        ((8,), (0,), ["prefill 8"]),
        ((0,), (0,), []),
        ((8, 16), (0, 4), ["prefill 8", "prefill 16", "decode 4", "generate 8+4"]),
        ((8,), (1,), ["prefill 8", "decode 1"]),
    ],
)
def test_zero_means_none(prompts: tuple[int, ...], outputs: tuple[int, ...], labels: list[str]) -> None:
    assert [workload.label for workload in BenchPlan(prompts=prompts, outputs=outputs).workloads()] == labels


def test_every_load_has_room_for_every_test() -> None:
    plan = BenchPlan(
        prompts=(100,),
        outputs=(10,),
        depths=(50,),
        verify=(16,),
        parallel=(4,),
        threads=(1, 2),
        activations=("fast", "exact"),
        batch_sizes=(32, 64),
    )
    loads = plan.loads()
    assert len(loads) == 8
    assert {load.context_size for load in loads} == {150}
    assert {(load.max_sequences, load.max_outputs) for load in loads} == {(4, 16)}
    assert [(load.activations, load.batch_size, load.threads) for load in loads[:3]] == [
        ("fast", 32, 1),
        ("fast", 32, 2),
        ("fast", 64, 1),
    ]


def test_passes_of_a_verify_test_use_as_many_tokens_as_a_decode_test() -> None:
    verify = next(w for w in BenchPlan(outputs=(100,), verify=(8,)).workloads() if w.test == "verify")
    assert (verify.num_passes, verify.num_positions) == (12, 96)
    assert Workload(test="verify", output_tokens=4, width=8).num_passes == 1


@pytest.mark.parametrize(
    ("option", "flag"),
    [
        ({"prompts": (-1,)}, "--n-prompt"),
        ({"outputs": (-1,)}, "--n-gen"),
        ({"depths": (-1,)}, "--n-depth"),
        ({"repeats": 0}, "--repetitions"),
        ({"verify": (1,)}, "--verify"),
        ({"verify": (65,), "batch_sizes": (512, 64)}, "--verify"),
        ({"parallel": (1,)}, "--parallel"),
        ({"parallel": (65,), "batch_sizes": (64,)}, "--batch-size"),
        ({"threads": (0,)}, "--threads"),
        ({"activations": ("rough",)}, "--activations"),
        ({"cache_types_k": ("q1",)}, "--cache-type-k"),
        ({"isa": "z80"}, "--isa"),
    ],
)
def test_what_makes_no_sense_is_refused(option: dict[str, Any], flag: str) -> None:
    with pytest.raises(OptionError, match=flag):
        BenchPlan(**option)
