"""Which draft model guesses for a model: the one that was named, or the catalog's if it is on this disk.

Owns that choice.  Does not know how guesses are made.  A draft model is only downloaded if it was named.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from app.errors import UsageError
from app.output import Console
from app.preferences import Preferences
from app.runtime_options import models_folder_of

if TYPE_CHECKING:
    from runtime import EngineOptions

Resolve = Callable[[str], Path]


def with_draft(options: EngineOptions, preferences: Preferences, model: Path, console: Console) -> EngineOptions:
    """The options with the draft model's file, fetched if it was named and is missing.  model: the model's file."""
    folder = models_folder_of(preferences)

    def resolve(name: str) -> Path:
        from runtime.catalog import resolve_model

        with console.progress(f"Downloading {name}", "bytes") as progress:
            return resolve_model(name, folder=folder, offline=bool(preferences.offline), progress=progress)

    return add_draft(options, preferences.draft_model, model, folder, resolve)


def add_draft(options: EngineOptions, name: str | None, model: Path, folder: Path, resolve: Resolve) -> EngineOptions:
    """The same for any caller.  name: the draft model's, if one was named; resolve: finds or fetches it."""
    from runtime.catalog import paired_draft

    mode = options.speculation.mode
    if mode in ("off", "ngram"):
        return options
    draft = resolve(name) if name is not None else paired_draft(model, folder)
    if draft is None and mode == "draft":
        raise UsageError(
            "--spec draft needs a draft model, and none was named.",
            hint="-md MODEL names one; --spec ngram guesses from the text so far, without a model.",
        )
    return replace(options, speculation=replace(options.speculation, draft_model=draft))
