"""The flags of `tandem plan`, and the request that they make.

Owns the grammar.  Does not know planning; imported with the command line, so it imports nothing heavy.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass

from app.options import LOAD_OPTIONS, add_flags, real_number
from app.preferences import Preferences

USAGE = "tandem plan [MODEL] [-ngl N] [-ncmoe N] [-c N] [-ctk TYPE] [-ctv TYPE] [--vram GB] [--json] [flags]"
DESCRIPTION = "Show the memory bill of a model, what fits, and how fast it can be at most, without loading it."

_MOST_VRAM_GB = 10_000


@dataclass(frozen=True, kw_only=True)
class PlanRequest:
    """What `tandem plan` was asked for.  vram_bytes: of a card that is not here."""

    preferences: Preferences
    vram_bytes: int | None = None
    as_json: bool = False


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Give the parser the flags of `tandem plan`."""
    parser.add_argument("model_words", nargs="*", metavar="MODEL", help="the model to plan for")
    group = parser.add_argument_group("plan")
    group.add_argument(
        "--vram", type=_gigabytes, metavar="GB", help="plan for a GPU with so much memory, not this one's"
    )
    group.add_argument("--json", action="store_true", help="print one JSON object")
    add_flags(parser, LOAD_OPTIONS, "model and machine")


def plan_request(namespace: argparse.Namespace, preferences: Preferences) -> PlanRequest:
    """The request.  preferences: flags over environment over file."""
    return PlanRequest(preferences=preferences, vram_bytes=namespace.vram, as_json=namespace.json)


def _gigabytes(text: str) -> int:
    """Bytes of a card as it is sold (a GB is 2 ** 30 bytes there), or argparse's own error."""
    value = real_number(text.upper().removesuffix("IB").removesuffix("B").removesuffix("G").strip())
    if not 0 < value <= _MOST_VRAM_GB:
        raise argparse.ArgumentTypeError(f"{text!r} is no size of a GPU's memory; 12 means 12 GB")
    return int(value * 2**30)
