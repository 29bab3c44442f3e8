"""--cpu-moe and --n-cpu-moe, from the command line to the engine's options."""

from __future__ import annotations

import argparse

import pytest

from app.bench.arguments import add_arguments, bench_request
from app.options import LOAD_OPTIONS, add_flags, preferences_of
from app.preferences import Preferences
from app.runtime_options import engine_options


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ([], "auto"),
        (["--n-cpu-moe", "0"], 0),
        (["--n-cpu-moe", "7"], 7),
        (["-ncmoe", "all"], "all"),
        (["--cpu-moe"], "all"),
        (["-cmoe"], "all"),
        (["--cpu-moe", "--n-cpu-moe", "3"], 3),
    ],
)
def test_the_last_flag_says_whose_experts_stay_on_the_cpu(words: list[str], expected: int | str) -> None:
    parser = argparse.ArgumentParser()
    add_flags(parser, LOAD_OPTIONS, "all")
    assert engine_options(preferences_of(parser.parse_args(words))).cpu_experts == expected


def test_bench_takes_a_list() -> None:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    namespace = parser.parse_args(["model.gguf", "-ncmoe", "0,12", "--cpu-moe"])
    assert bench_request(namespace, Preferences()).cpu_experts == ("0", "12", "all")
