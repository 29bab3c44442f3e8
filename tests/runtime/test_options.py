"""Options of loading and generating: what is refused, and how it is said."""

from __future__ import annotations

import math

import pytest

from runtime.errors import OptionError
from runtime.options import EngineOptions, GenerateOptions


@pytest.mark.parametrize(
    ("name", "flag", "values"),
    [
        ("context_size", "--ctx-size", [0, -1, 2**40, 1.5, math.nan, "8k", True]),
        ("threads", "--threads", [0, -4, 2**31, math.inf, True]),
        ("batch_size", "--batch-size", [0, -1, 2**40, math.nan]),
        ("max_sequences", "--parallel", [0, -1, 10**9]),
        ("max_outputs", "max_outputs", [0, 10**9]),
        ("cache_type_k", "--cache-type-k", ["f99", None, 16]),
        ("cache_type_v", "--cache-type-v", ["", "F16"]),
        ("activations", "--activations", ["slow", None]),
        ("isa", "--isa", ["sparc", ""]),
    ],
)
def test_engine_options_that_make_no_sense_are_refused_by_name(name: str, flag: str, values: list[object]) -> None:
    check_refusals(EngineOptions, name, flag, values)


@pytest.mark.parametrize(
    ("name", "flag", "values"),
    [
        ("max_tokens", "--predict", [-1, 2**40, 0.5, math.nan, math.inf, "12", True]),
        ("logprobs", "--logprobs", [-1, 10**9, math.nan]),
        ("prompt_logprobs", "--prompt-logprobs", [-1, 10**9, math.nan]),
        ("stop", "--stop", ["END", ("",), ("a", 3), ["a"], ("x",) * 1000]),
    ],
)
def test_generate_options_that_make_no_sense_are_refused_by_name(name: str, flag: str, values: list[object]) -> None:
    check_refusals(GenerateOptions, name, flag, values)


def check_refusals(
    options: type[EngineOptions] | type[GenerateOptions], name: str, flag: str, values: list[object]
) -> None:
    for value in values:
        with pytest.raises(OptionError) as caught:
            options(**{name: value})  # pyright: ignore[reportArgumentType]
        assert (caught.value.option, caught.value.value) == (name, value) or math.isnan(value)  # pyright: ignore
        assert flag in str(caught.value)
        assert caught.value.expected in str(caught.value)
        assert len(str(caught.value)) < 400


def test_a_step_must_have_room_for_every_sequence() -> None:
    with pytest.raises(OptionError, match="batch_size.*from 8"):
        EngineOptions(max_sequences=8, batch_size=4)
    with pytest.raises(OptionError, match="max_outputs.*from 64"):
        EngineOptions(max_sequences=64)


def test_a_message_shows_control_characters_escaped() -> None:
    with pytest.raises(OptionError) as caught:
        EngineOptions(isa="\x1b[31mred")
    assert "\x1b" not in str(caught.value)
