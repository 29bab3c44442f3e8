"""The flags that several commands share, and the values they stand for.

Owns one table: for each value its key (in the settings file, and as TANDEM_KEY in the environment), its flags, how
its text is read, and its help.  Does not know where values come from (cli.py, settings.py); ranges are the runtime's.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from app.preferences import Preferences


@dataclass(frozen=True, kw_only=True)
class Shorthand:
    """A flag without a value of its own."""

    names: tuple[str, ...]
    value: str
    help: str


@dataclass(frozen=True, kw_only=True)
class Option:
    """One value.  kind: the type of its value (tuple: several texts).  names: its flags, none for settings alone.

    shorthand: a flag that stands for one of its values.
    """

    key: str
    kind: type
    names: tuple[str, ...]
    metavar: str | None
    help: str
    shorthand: Shorthand | None = None


def _option(key: str, kind: type, names: str, metavar: str | None, text: str) -> Option:
    return Option(key=key, kind=kind, names=tuple(names.split()), metavar=metavar, help=text)


LOAD_OPTIONS = (
    _option("model", str, "-m --model", "MODEL", "catalog name, path to a GGUF file, or owner/repo[:quant]"),
    _option("ctx_size", int, "-c --ctx-size", "N", "context window in tokens (trained size, 8192 or what fits)"),
    _option("threads", int, "-t --threads", "N", "threads (one for each fast core)"),
    _option("batch_size", int, "-b --batch-size", "N", "tokens computed together (512)"),
    _option("cache_type_k", str, "-ctk --cache-type-k", "TYPE", "how keys are kept: f16, q8_0 or q4_0"),
    _option("cache_type_v", str, "-ctv --cache-type-v", "TYPE", "how values are kept: f16, q8_0 or q4_0"),
    _option("activations", str, "--activations", "HOW", "rounding of activations: fast, balanced (default), exact"),
    _option("isa", str, "--isa", "LEVEL", "instruction set: auto (default), avx512, avxvnni, avx2, neon, portable"),
    _option(
        "device",
        str,
        "--device",
        "DEVICE",
        "cpu, gpu (or nothing at all), a GPU's number, auto: a GPU if there is one (auto)",
    ),
    _option("gpu_layers", str, "-ngl --gpu-layers --n-gpu-layers", "N", "last layers on the GPU: a number, all, auto"),
    Option(
        key="n_cpu_moe",
        kind=str,
        names=("-ncmoe", "--n-cpu-moe"),
        metavar="N",
        help="of the first N layers the experts stay on the CPU, though the rest is on the GPU (as few as must)",
        shorthand=Shorthand(names=("-cmoe", "--cpu-moe"), value="all", help="of all layers: --n-cpu-moe all"),
    ),
    _option("vram_margin", int, "--vram-margin", "MIB", "memory left free on the GPU, in MiB (512)"),
    _option("draft_model", str, "-md --draft-model --model-draft", "MODEL", "a small model that guesses for this one"),
    _option("draft_max", int, "--draft-max", "N", "tokens guessed at most before they are checked (16)"),
    _option("draft_min", int, "--draft-min", "N", "fewer guessed tokens are not checked (0)"),
    _option("draft_weights", str, "--draft-weights", "HOW", "the draft model's weights: q4_0 (default) or stored"),
    _option("spec", str, "--spec", "HOW", "guess ahead: off, ngram (from the text), draft (by a model), auto (both)"),
    _option("lora", tuple, "--lora --lora-scaled", "FILE[:SCALE]", "a LoRA adapter for the model; several add up"),
    _option("chat_template_file", str, "--chat-template-file", "FILE", "a Jinja template in place of the model's own"),
    _option("no_profile", bool, "--no-profile", None, "leave out what `tandem tune` found for the model"),
    _option("offline", bool, "--offline", None, "download nothing"),
)
SAMPLING_OPTIONS = (
    _option("predict", int, "-n --predict --n-predict", "N", "tokens to generate at most (until the window is full)"),
    _option("seed", int, "-s --seed", "N", "seed of the random numbers (any)"),
    _option("temp", float, "--temp --temperature", "T", "temperature; 0 takes the best token always (0.8)"),
    _option("top_k", int, "--top-k", "K", "keep the K best tokens; 0 keeps all (40)"),
    _option("top_p", float, "--top-p", "P", "keep the best tokens that reach probability P (0.95)"),
    _option("min_p", float, "--min-p", "P", "drop tokens less than P times as likely as the best (0.05)"),
    _option("typical_p", float, "--typical-p --typical", "P", "keep the tokens nearest to the expected surprise (1)"),
    _option("top_n_sigma", float, "--top-n-sigma --top-nsigma", "N", "keep logits N deviations below the best; 0: off"),
    _option("xtc_probability", float, "--xtc-probability", "P", "how often the likeliest tokens are left out (0)"),
    _option("xtc_threshold", float, "--xtc-threshold", "P", "how likely such tokens are at least (0.1)"),
    _option("dynatemp_range", float, "--dynatemp-range", "T", "let the temperature move that far either way (0)"),
    _option("dynatemp_exp", float, "--dynatemp-exp", "X", "how it moves with the entropy (1)"),
    _option("mirostat", int, "--mirostat", "N", "2: mirostat 2 instead of the stages that drop tokens (0)"),
    _option("mirostat_ent", float, "--mirostat-ent", "X", "the surprise that mirostat aims at, in bits (5)"),
    _option("mirostat_lr", float, "--mirostat-lr", "X", "how fast mirostat learns (0.1)"),
    _option("repeat_penalty", float, "--repeat-penalty", "X", "divide what was said lately by X (1)"),
    _option("presence_penalty", float, "--presence-penalty", "X", "take X off what was said lately (0)"),
    _option("frequency_penalty", float, "--frequency-penalty", "X", "take X off for each time it was said lately (0)"),
    _option("repeat_last_n", int, "--repeat-last-n", "N", "how many tokens back these penalties look; -1: all (64)"),
    _option("dry_multiplier", float, "--dry-multiplier", "X", "penalty for going on with a phrase said before (0)"),
    _option("dry_base", float, "--dry-base", "X", "how it grows with the phrase's length (1.75)"),
    _option("dry_allowed_length", int, "--dry-allowed-length", "N", "the length from which on it holds (2)"),
    _option("dry_penalty_last_n", int, "--dry-penalty-last-n", "N", "how many tokens back it looks; -1: all (-1)"),
    _option("dry_sequence_breaker", tuple, "--dry-sequence-breaker", "TEXT", "no phrase reaches over this; none: none"),
    _option("logit_bias", tuple, "-l --logit-bias", "ID+X", "add X to the logit of token ID; ID-inf forbids it"),
    _option("banned_string", tuple, "--banned-string", "TEXT", "never write this; may be given several times"),
    _option("samplers", str, "--samplers", "CHAIN", "the stages in order, such as top_k;min_p;temperature"),
    _option("stop", tuple, "--stop", "TEXT", "end before this text; may be given several times"),
    _option("system", str, "--system", "TEXT", "system prompt"),
    _option("chat_template", str, "--chat-template", "NAME", "one of the model's chat templates by its name"),
    _option("chat_template_kwargs", str, "--chat-template-kwargs", "JSON", "what the template may read, by name"),
)
CHAT_OPTIONS = (
    _option("theme", str, "--theme", "NAME", "colours of the chat; /theme in the chat lists them"),
    _option("screen_reader", bool, "--screen-reader", None, "words in place of frames, bars and pictures in the chat"),
)
FILE_OPTIONS = (
    _option("models_dir", str, "", "FOLDER", "where models are kept"),
    _option("kernels_dir", str, "", "FOLDER", "where compiled kernels are kept"),
)
OPTIONS = LOAD_OPTIONS + SAMPLING_OPTIONS + CHAT_OPTIONS + FILE_OPTIONS


def add_flags(parser: argparse.ArgumentParser, options: Iterable[Option], title: str) -> None:
    """Give the parser these options' flags, under a heading of their own."""
    group = parser.add_argument_group(title)
    for option in options:
        if option.shorthand is not None:
            brief = option.shorthand
            group.add_argument(*brief.names, dest=option.key, action="store_const", const=brief.value, help=brief.help)
        if option.kind is bool:
            group.add_argument(*option.names, dest=option.key, action="store_const", const=True, help=option.help)
        elif option.kind is tuple:
            group.add_argument(
                *option.names, dest=option.key, action="append", metavar=option.metavar, help=option.help
            )
        else:
            group.add_argument(
                *option.names, dest=option.key, type=reader(option.kind), metavar=option.metavar, help=option.help
            )


def reader(kind: type) -> Callable[[str], Any]:
    """A function from text to a value of the kind, whose refusal reads well in argparse's message."""
    if kind is int:
        return whole_number
    return real_number if kind is float else str


def whole_number(text: str) -> int:
    """An integer, or argparse's own error."""
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number") from None


def real_number(text: str) -> float:
    """A number, or argparse's own error; the runtime refuses NaN and infinity."""
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no number") from None


def words(text: str) -> tuple[str, ...]:
    """Words, separated by commas, or argparse's own error."""
    found = tuple(word.strip() for word in text.split(","))
    if not all(found):
        raise argparse.ArgumentTypeError(f"{text!r} is no list such as f16,q8_0")
    return found


def preferences_of(namespace: argparse.Namespace) -> Preferences:
    """What was chosen on the command line."""
    chosen = {option.key: getattr(namespace, option.key, None) for option in OPTIONS}
    lists = [option.key for option in OPTIONS if option.kind is tuple and chosen[option.key] is not None]
    return Preferences(**{**chosen, **{key: tuple(chosen[key] or ()) for key in lists}})
