"""The flags of `tandem tune`, and the request that they make.

Owns the grammar.  Does not know measuring; imported with the command line, so it imports nothing heavy.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

from app.charts.plot_file import check_plot_name
from app.options import LOAD_OPTIONS, add_flags
from app.preferences import Preferences

USAGE = "tandem tune [MODEL] [-c N] [--plot FILE.svg] [--json] [--dry-run] [flags]"
DESCRIPTION = (
    "Measure how many GPU layers and experts (where there is a GPU) and threads, which type of keys and values and "
    "which batch size are fastest for a model on this machine, and keep that for later runs. What a flag says is not "
    "varied."
)
_LEFT_OUT = ("draft_model", "draft_max", "draft_min", "draft_weights", "spec", "no_profile", "chat_template_file")


@dataclass(frozen=True, kw_only=True)
class TuneRequest:
    """What `tandem tune` was asked for.  explicit: what flags say; preferences: that over environment and file."""

    preferences: Preferences
    explicit: Preferences
    plot: Path | None = None
    as_json: bool = False
    is_saved: bool = True


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Give the parser the flags of `tandem tune`."""
    parser.add_argument("model_words", nargs="*", metavar="MODEL", help="the model to tune for")
    group = parser.add_argument_group("tune")
    group.add_argument("--plot", type=Path, metavar="FILE", help="also draw the curves into a file, .svg or .png")
    group.add_argument("--json", action="store_true", help="print one JSON object")
    group.add_argument("--dry-run", action="store_true", help="measure and show, and keep nothing")
    add_flags(parser, [option for option in LOAD_OPTIONS if option.key not in _LEFT_OUT], "model and machine")


def tune_request(namespace: argparse.Namespace, explicit: Preferences, preferences: Preferences) -> TuneRequest:
    """The request.  Raises UsageError for a plot whose name tells no kind of file."""
    check_plot_name(namespace.plot)
    return TuneRequest(
        preferences=preferences,
        explicit=explicit,
        plot=namespace.plot,
        as_json=namespace.json,
        is_saved=not namespace.dry_run,
    )
