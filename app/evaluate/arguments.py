"""The flags of `tandem eval`, and the request that they make.

Owns the grammar and what --help says of windows.  Does not know measuring or formats; imported with the command line,
so it imports nothing heavy.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

from app.charts.plot_file import check_plot_name
from app.errors import UsageError
from app.options import LOAD_OPTIONS, add_flags, whole_number, words
from app.preferences import Preferences

FORMATS = ("md", "json")
USAGE = (
    "tandem eval [MODEL] --text FILE [flags]\n"
    "       tandem eval [MODEL] --reference MODEL [--text FILE] [--prompts FILE] [flags]\n"
    "       tandem eval [MODEL] --text FILE -ctk f16,q8_0,q4_0 --activations fast,exact [flags]"
)
DESCRIPTION = (
    "Measure how well a model predicts a text (perplexity), how far its distributions and its answers are from those "
    "of another model, and what coarser keys, values and activations cost in quality and give in speed and memory."
)
EPILOG = (
    "Windows: the text is cut into windows of --window tokens, each --stride tokens further on than the last; where "
    "the model was trained with a start token, every window begins with one, beside its tokens. A token counts once, "
    "in the first window that holds it: from the second window on at least window - stride tokens stand before each "
    "that counts. Perplexity is e to the mean of minus the natural logarithm of their probabilities. "
    "The reference is loaded with exact activations and f16 keys and values; without --reference it is the model "
    "itself. KL divergence is the mean over the same tokens of the sum of p (ln p - ln q), p the reference's "
    "distribution, in nats. Ctrl-C gives what was measured so far."
)
_LOADED = (
    "model",
    "ctx_size",
    "threads",
    "batch_size",
    "isa",
    "lora",
    "device",
    "gpu_layers",
    "n_cpu_moe",
    "vram_margin",
    "no_profile",
    "offline",
)


@dataclass(frozen=True, kw_only=True)
class EvaluateRequest:
    """What `tandem eval` was asked for.  None and empty tuples: the default."""

    preferences: Preferences
    text: Path | None = None
    window: int | None = None
    stride: int | None = None
    most_tokens: int | None = None
    reference: str | None = None
    prompts: Path | None = None
    raw: bool = False
    cache_types_k: tuple[str, ...] = ()
    cache_types_v: tuple[str, ...] = ()
    activations: tuple[str, ...] = ()
    format: str = "md"
    plot: Path | None = None


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Give the parser the flags of `tandem eval`."""
    parser.add_argument("model_words", nargs="*", metavar="MODEL", help="the model to measure")
    group = parser.add_argument_group("text")
    group.add_argument("--text", type=Path, metavar="FILE", help="the text to predict, in UTF-8; `-`: stdin")
    group.add_argument("--window", type=whole_number, metavar="N", help="tokens seen together (1024 or trained size)")
    group.add_argument("--stride", type=whole_number, metavar="N", help="tokens from window to window (half a window)")
    group.add_argument("--tokens", type=whole_number, metavar="N", help="read no more than N tokens of the text (all)")
    group = parser.add_argument_group("comparison")
    group.add_argument("--reference", metavar="MODEL", help="the model to compare with: path, catalog name, ...")
    group.add_argument(
        "--prompts", type=Path, metavar="FILE", help="also compare greedy answers: a prompt a line, or rows in a .jsonl"
    )
    group.add_argument("-n", "--predict", type=whole_number, metavar="N", help="tokens of such an answer (128)")
    group.add_argument("--raw", action="store_true", help="give the model these prompts without chat template")
    group = parser.add_argument_group("ways to load (lists are separated by commas; every combination is a row)")
    lists = (
        ("-ctk --cache-type-k", "cache_types_k", "TYPE,...", "how keys are kept: f16, q8_0, q4_0"),
        ("-ctv --cache-type-v", "cache_types_v", "TYPE,...", "how values are kept: f16, q8_0, q4_0"),
        ("--activations", "activation_list", "HOW,...", "rounding: fast, balanced (default), exact"),
    )
    for names, destination, metavar, text in lists:
        group.add_argument(
            *names.split(), dest=destination, action="extend", type=words, default=[], metavar=metavar, help=text
        )
    add_flags(parser, [option for option in LOAD_OPTIONS if option.key in _LOADED], "model and machine")
    group = parser.add_argument_group("output (results on stdout, everything else on stderr)")
    group.add_argument("--format", choices=FORMATS, default="md", help="how results are printed (md)")
    group.add_argument("--plot", type=Path, metavar="FILE", help="also draw the results into a file, .svg or .png")


def evaluate_request(namespace: argparse.Namespace, preferences: Preferences) -> EvaluateRequest:
    """The request.  Raises UsageError for what does not go together."""
    if namespace.text is None and namespace.prompts is None:
        raise UsageError(
            "There is nothing to measure.", hint="--text FILE names a text, --prompts FILE prompts to be answered."
        )
    if namespace.prompts is None and namespace.ctx_size is not None:
        raise UsageError(
            "-c is the room for answers to --prompts, and there are none.",
            hint="--window N says how many tokens of the text are seen together.",
        )
    check_plot_name(namespace.plot)
    preferences_k, preferences_v = preferences.cache_type_k, preferences.cache_type_v
    request = EvaluateRequest(
        preferences=preferences,
        text=namespace.text,
        window=namespace.window,
        stride=namespace.stride,
        most_tokens=namespace.tokens,
        reference=namespace.reference,
        prompts=namespace.prompts,
        raw=namespace.raw,
        cache_types_k=_once(namespace.cache_types_k, preferences_k),
        cache_types_v=_once(namespace.cache_types_v, preferences_v),
        activations=_once(namespace.activation_list, preferences.activations),
        format=namespace.format,
        plot=namespace.plot,
    )
    num_rows = 1
    for values in (request.cache_types_k, request.cache_types_v, request.activations):
        num_rows *= max(1, len(values))
    if request.prompts is not None and request.reference is None and num_rows == 1:
        raise UsageError(
            "--prompts compares answers, and there is nothing to compare with.",
            hint="--reference MODEL names a model, lists such as -ctk f16,q4_0 several ways to load this one.",
        )
    return request


def _once(values: list[str], preferred: str | None) -> tuple[str, ...]:
    """Each value once, in the order given; or what the settings say."""
    return tuple(dict.fromkeys(values)) or (() if preferred is None else (preferred,))
