"""Which draft model guesses for a model: the one that was named, or the catalog's if it is on this disk.

Owns that choice.  Does not know how guesses are made.  A draft model is only downloaded if it was named.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from app.errors import UsageError
from app.options import Preferences, models_folder_of
from app.output import Console

if TYPE_CHECKING:
    from runtime import EngineOptions


def with_draft(options: EngineOptions, preferences: Preferences, model: Path, console: Console) -> EngineOptions:
    """The options with the draft model's file, fetched if it was named and is missing.  model: the model's file."""
    from runtime.catalog import paired_draft, resolve_model

    if preferences.spec in ("off", "ngram"):
        return options
    folder = models_folder_of(preferences)
    name = preferences.draft_model
    if name is None:
        draft = paired_draft(model, folder)
    else:
        with console.progress(f"Downloading {name}", "bytes") as progress:
            draft = resolve_model(name, folder=folder, offline=bool(preferences.offline), progress=progress)
    if draft is None and preferences.spec == "draft":
        raise UsageError(
            "--spec draft needs a draft model, and none was named.",
            hint="-md MODEL names one; --spec ngram guesses from the text so far, without a model.",
        )
    return replace(options, speculation=replace(options.speculation, draft_model=draft))
