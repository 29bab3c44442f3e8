"""The flags of `tandem bench`: lists, defaults, what does not fit together."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from app.bench.arguments import add_arguments, bench_request, compare_request
from app.errors import UsageError
from app.preferences import Preferences


def parse(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    add_arguments(parser)
    return parser.parse_args(words)


def test_nothing_is_the_default_of_everything() -> None:
    request = bench_request(parse(), Preferences())
    assert request.models == () and request.format == "md" and request.has_generate and request.has_chart
    assert {request.prompts, request.outputs, request.depths, request.repeats, request.threads} == {None}


def test_lists_are_separated_by_commas_or_given_several_times() -> None:
    words = "a b -m c -m a -p 512,64 -p 8 -n 0 -d 0,2048 -r 3 -t 1,2 -b 64,512 -ctk f16,q8_0 -ctv f16"
    words += " --activations fast,exact --verify 4,8 --parallel 8 --isa avx2 --no-generate --no-chart --format csv"
    request = bench_request(parse(*words.split()), Preferences(models_dir="x"))
    assert request.models == ("a", "b", "c")
    assert (request.prompts, request.outputs, request.depths) == ((512, 64, 8), (0,), (0, 2048))
    assert (request.repeats, request.threads, request.batch_sizes) == (3, (1, 2), (64, 512))
    assert (request.cache_types_k, request.cache_types_v) == (("f16", "q8_0"), ("f16",))
    assert (request.activations, request.verify, request.parallel) == (("fast", "exact"), (4, 8), (8,))
    assert (request.format, request.has_generate, request.has_chart) == ("csv", False, False)


@pytest.mark.parametrize(
    "words",
    [("-p", "x"), ("-p", "1,,2"), ("-ctk", "f16,"), ("--format", "xml"), ("--against", "x"), ("--compare", "a")],
)
def test_what_is_no_list_or_choice_is_refused(words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse(*words)
    assert words[0] in capsys.readouterr().err


def test_a_plot_is_svg_or_png() -> None:
    assert bench_request(parse("--plot", "a.SVG"), Preferences()).plot == Path("a.SVG")
    with pytest.raises(UsageError, match=r"--plot draws SVG or PNG, and a.gif ends in neither"):
        bench_request(parse("--plot", "a.gif"), Preferences())


def test_a_peer_needs_a_name() -> None:
    assert bench_request(parse("--against", "llama.cpp", "--peer", "x"), Preferences()).peer == "x"
    with pytest.raises(UsageError, match="both are needed"):
        bench_request(parse("--peer", "x"), Preferences())


def test_a_comparison_measures_nothing() -> None:
    assert compare_request(parse("-p", "1")) is None
    request = compare_request(parse("--compare", "a", "b", "--format", "json"))
    assert request is not None
    assert (request.first, request.second, request.format) == (Path("a"), Path("b"), "json")
    for words in (("model",), ("-m", "x"), ("--against", "llama.cpp"), ("--plot", "x.svg")):
        with pytest.raises(UsageError, match="measures nothing"):
            compare_request(parse("--compare", "a", "b", *words))


def test_what_belongs_to_guessing_needs_a_draft() -> None:
    words = "--draft small --prompts code,a.txt --temp 0,0.8 --answer-tokens 32"
    request = bench_request(parse(*words.split()), Preferences())
    assert (request.draft, request.prompt_sets) == ("small", ("code", "a.txt"))
    assert (request.temperatures, request.answer_tokens) == ((0.0, 0.8), 32)
    for given in (("--prompts", "code"), ("--temp", "0"), ("--answer-tokens", "0"), ("--draft-weights", "q4_0")):
        with pytest.raises(UsageError, match="belong to --draft"):
            bench_request(parse(*given), Preferences())
    with pytest.raises(SystemExit):
        parse("--temp", "warm")
