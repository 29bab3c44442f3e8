"""The flags of `tandem bench`, and the request that they make.

Owns the grammar.  Does not know formats or measuring; imported with the command line, so it imports nothing heavy.
Flags that exist in `llama-bench` mean here what they mean there.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from app.charts.plot_file import check_plot_name
from app.errors import UsageError
from app.options import whole_number, words
from app.preferences import Preferences

FORMATS = ("md", "json", "jsonl", "csv")
PEERS = ("llama.cpp", "ik_llama.cpp")

USAGE = "tandem bench [MODEL ...] [flags]\n       tandem bench --compare A.json B.json [--format FORMAT]"
DESCRIPTION = (
    "Measure tokens a second on the bare device and through the whole engine, and how near that comes to what this "
    "machine's memory and multipliers allow."
)


@dataclass(frozen=True, kw_only=True)
class BenchRequest:
    """What `tandem bench` was asked for.  None and empty tuples: the default."""

    preferences: Preferences
    models: tuple[str, ...] = ()
    prompts: tuple[int, ...] | None = None
    outputs: tuple[int, ...] | None = None
    depths: tuple[int, ...] | None = None
    repeats: int | None = None
    threads: tuple[int, ...] | None = None
    batch_sizes: tuple[int, ...] | None = None
    cache_types_k: tuple[str, ...] | None = None
    cache_types_v: tuple[str, ...] | None = None
    activations: tuple[str, ...] | None = None
    gpu_layers: tuple[str, ...] | None = None
    cpu_experts: tuple[str, ...] | None = None
    verify: tuple[int, ...] = ()
    parallel: tuple[int, ...] = ()
    has_generate: bool = True
    draft: str | None = None
    prompt_sets: tuple[str, ...] = ()
    temperatures: tuple[float, ...] | None = None
    answer_tokens: int | None = None
    draft_weights: str | None = None
    format: str = "md"
    plot: Path | None = None
    has_chart: bool = True
    against: str | None = None
    peer: str | None = None


@dataclass(frozen=True, kw_only=True)
class CompareRequest:
    """What `tandem bench --compare` was asked for."""

    first: Path
    second: Path
    format: str


def numbers(text: str) -> tuple[int, ...]:
    """Whole numbers, separated by commas, or argparse's own error."""
    return tuple(whole_number(word.strip()) for word in text.split(","))


def temperatures(text: str) -> tuple[float, ...]:
    """Numbers, separated by commas, or argparse's own error."""
    try:
        return tuple(float(word) for word in text.split(","))
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is no list of numbers such as 0,0.8") from error


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Give the parser the flags of `tandem bench`."""
    parser.add_argument("model_words", nargs="*", metavar="MODEL", help="the models to measure")
    group = parser.add_argument_group("tests (lists are separated by commas; every combination is measured)")
    _add_list(group, numbers, "-p", "--n-prompt", "N,...", "tokens of a prompt; 0: no such test (512)")
    _add_list(group, numbers, "-n", "--n-gen", "N,...", "tokens decoded one by one; 0: no such test (128)")
    _add_list(group, numbers, "-d", "--n-depth", "N,...", "tokens in the cache before the test (0)")
    group.add_argument("-r", "--repetitions", type=whole_number, metavar="N", help="repeats of every test (5)")
    _add_list(group, numbers, None, "--verify", "N,...", "also N tokens in one pass, against one token")
    _add_list(group, numbers, None, "--parallel", "N,...", "also N sequences decoded together, against one")
    group.add_argument("--no-generate", action="store_true", help="leave out the test through the whole engine")
    group = parser.add_argument_group("guessing ahead (with it, -p and -n are measured only if they are given)")
    group.add_argument(
        "--draft", metavar="DRAFT", help="answer prompts with and without guesses: of this model, ngram, or auto (both)"
    )
    _add_list(group, words, None, "--prompts", "SET,...", "code, edits (both), or a file as --verify-spec reads it")
    _add_list(group, temperatures, None, "--temp", "T,...", "temperatures of the answers (0)")
    group.add_argument("--draft-weights", metavar="HOW", help="the draft model's weights: q4_0 (default) or stored")
    group.add_argument("--answer-tokens", type=whole_number, metavar="N", help="tokens of each answer at most (128)")
    group = parser.add_argument_group("model and machine")
    group.add_argument("-m", "--model", action="append", metavar="MODEL", help="a model, as behind the command")
    _add_list(group, numbers, "-t", "--threads", "N,...", "threads (one for each fast core)")
    _add_list(group, numbers, "-b", "--batch-size", "N,...", "tokens computed together (512)")
    _add_list(group, words, "-ctk", "--cache-type-k", "TYPE,...", "how keys are kept: f16, q8_0, q4_0")
    _add_list(group, words, "-ctv", "--cache-type-v", "TYPE,...", "how values are kept: f16, q8_0, q4_0")
    _add_list(group, words, None, "--activations", "HOW,...", "rounding: fast, balanced (default), exact")
    group.add_argument(
        "--lora", "--lora-scaled", action="append", metavar="FILE[:SCALE]", help="a LoRA adapter for the models"
    )
    group.add_argument("--isa", metavar="LEVEL", help="auto (default), avx512, avxvnni, avx2, neon, portable")
    group.add_argument(
        "--device", metavar="DEVICE", help="cpu, gpu (or nothing at all), a GPU's number, auto: a GPU if there is one"
    )
    _add_list(group, words, "-ngl", "--gpu-layers", "N,...", "last layers on the GPU: a number, all, auto")
    _add_list(
        group, words, "-ncmoe", "--n-cpu-moe", "N,...", "first layers whose experts stay on the CPU: number, all, auto"
    )
    group.add_argument(
        "-cmoe",
        "--cpu-moe",
        dest="n_cpu_moe",
        action="append_const",
        const=("all",),
        help="the same as --n-cpu-moe all",
    )
    group.add_argument("--vram-margin", type=whole_number, metavar="MIB", help="left free on the GPU (512)")
    group.add_argument(
        "--no-profile", action="store_const", const=True, help="leave out what `tandem tune` found for a model"
    )
    group.add_argument("--offline", action="store_const", const=True, help="download nothing")
    group = parser.add_argument_group("output (results on stdout, everything else on stderr)")
    group.add_argument("--format", choices=FORMATS, default="md", help="how results are printed (md)")
    group.add_argument("--plot", type=Path, metavar="FILE", help="also draw the results into a file, .svg or .png")
    group.add_argument("--no-chart", action="store_true", help="no chart on stderr")
    group = parser.add_argument_group("comparisons")
    group.add_argument("--against", choices=PEERS, help="measure another engine in turn, on the same file and threads")
    group.add_argument(
        "--peer", metavar="PATH", help="its llama-bench, or a Python that has llama_cpp (llama-bench on the PATH)"
    )
    group.add_argument(
        "--compare", nargs=2, type=Path, metavar=("A", "B"), help="say which differences of two results are no noise"
    )


def _add_list(
    group: argparse._ArgumentGroup,
    reader: Callable[[str], tuple[Any, ...]],
    short: str | None,
    long: str,
    metavar: str,
    help: str,
) -> None:
    """A flag that takes a list, and may be given several times."""
    flags = [flag for flag in (short, long) if flag is not None]
    group.add_argument(*flags, action="append", type=reader, metavar=metavar, help=help)


def _joined(lists: list[tuple[Any, ...]] | None) -> tuple[Any, ...] | None:
    """Each value once, in the order given."""
    return None if lists is None else tuple(dict.fromkeys(value for values in lists for value in values))


def compare_request(namespace: argparse.Namespace) -> CompareRequest | None:
    """The request, if --compare was given; models and other flags have no place beside it."""
    if namespace.compare is None:
        return None
    if namespace.model_words or namespace.model or namespace.against or namespace.plot:
        raise UsageError(
            "--compare reads two files of results and measures nothing, so it takes only --format with it."
        )
    first, second = namespace.compare
    return CompareRequest(first=first, second=second, format=namespace.format)


def bench_request(namespace: argparse.Namespace, preferences: Preferences) -> BenchRequest:
    """The request.  preferences: what environment and settings file say, where no flag says otherwise."""
    if namespace.peer is not None and namespace.against is None:
        raise UsageError("--peer says where the other engine is, and --against which one it is: both are needed.")
    check_plot_name(namespace.plot)
    further = (namespace.prompts, namespace.temp, namespace.answer_tokens, namespace.draft_weights)
    if namespace.draft is None and any(value is not None for value in further):
        raise UsageError(
            "--prompts, --temp, --answer-tokens and --draft-weights belong to --draft, which is missing.",
            hint="--draft MODEL, --draft ngram or --draft auto says what guesses.",
        )
    return BenchRequest(
        preferences=preferences,
        models=tuple(dict.fromkeys([*namespace.model_words, *(namespace.model or ())])),
        prompts=_joined(namespace.n_prompt),
        outputs=_joined(namespace.n_gen),
        depths=_joined(namespace.n_depth),
        repeats=namespace.repetitions,
        threads=_joined(namespace.threads),
        batch_sizes=_joined(namespace.batch_size),
        cache_types_k=_joined(namespace.cache_type_k),
        cache_types_v=_joined(namespace.cache_type_v),
        activations=_joined(namespace.activations),
        gpu_layers=_joined(namespace.gpu_layers),
        cpu_experts=_joined(namespace.n_cpu_moe),
        verify=_joined(namespace.verify) or (),
        parallel=_joined(namespace.parallel) or (),
        has_generate=not namespace.no_generate,
        draft=namespace.draft,
        prompt_sets=_joined(namespace.prompts) or (),
        temperatures=_joined(namespace.temp),
        answer_tokens=namespace.answer_tokens,
        draft_weights=namespace.draft_weights,
        format=namespace.format,
        plot=namespace.plot,
        has_chart=not namespace.no_chart,
        against=namespace.against,
        peer=namespace.peer,
    )
