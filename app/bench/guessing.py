"""What `tandem bench --draft` measures with: which draft model, which prompts.

Owns the reading of what was named.  Does not know how anything is measured.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from app.bench.arguments import BenchRequest
from app.errors import UsageError
from app.loading import resolve_with_progress
from app.output import Console
from app.preferences import Preferences
from app.runtime_options import models_folder_of
from app.verify_speculation import read_prompts
from runtime.benchmark.prompt_sets import BUILT_IN_SETS, PromptSet, built_in_file
from runtime.benchmark.workloads import GuessingPlan
from runtime.catalog import paired_draft
from runtime.errors import OptionError
from runtime.speculation.options import SpeculationOptions

_WITHOUT_MODEL = "ngram"
_BY_ITSELF = "auto"


def guessing_plan(request: BenchRequest, paths: list[Path], console: Console) -> GuessingPlan:
    """The plan.  paths: the models' files.  Raises UsageError for what can't be measured, AppError for files."""
    assert request.draft is not None
    draft, options = _draft(request.draft, request.preferences, paths, console)
    named = {"temperatures": request.temperatures, "answer_tokens": request.answer_tokens}
    sets = tuple(_read_set(word) for word in request.prompt_sets or BUILT_IN_SETS)
    try:
        if request.draft_weights is not None:
            options = replace(options, draft_weights=request.draft_weights)
        chosen = {name: value for name, value in named.items() if value is not None}
        return GuessingPlan(draft=draft, options=options, sets=sets, **chosen)  # pyright: ignore[reportArgumentType]
    except OptionError as error:
        raise UsageError(str(error)) from error


def _draft(name: str, preferences: Preferences, paths: list[Path], console: Console) -> tuple[str, SpeculationOptions]:
    """What guesses, in words for a table, and as options."""
    if name == _WITHOUT_MODEL:
        return name, SpeculationOptions(mode="ngram")
    if name != _BY_ITSELF:
        draft = resolve_with_progress(Preferences(model=name, models_dir=preferences.models_dir), console)
        return draft.stem, SpeculationOptions(mode="draft", draft_model=draft)
    folder = models_folder_of(preferences)
    drafts = {paired_draft(path, folder) for path in paths}
    if len(drafts) > 1:
        raise UsageError(
            "--draft auto means another draft model for each of these models.", hint="measure them one by one."
        )
    draft = drafts.pop()
    words = _BY_ITSELF if draft is None else f"{_BY_ITSELF} ({draft.stem})"
    return words, SpeculationOptions(mode="auto", draft_model=draft)


def _read_set(word: str) -> PromptSet:
    """One that comes with Tandem, or a file."""
    is_built_in = word in BUILT_IN_SETS
    path = built_in_file(word) if is_built_in else Path(word)
    return PromptSet(name=word if is_built_in else path.stem, prompts=tuple(read_prompts(path)))
