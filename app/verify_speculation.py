"""`tandem generate --verify-spec -f FILE`: answers every prompt of a file with and without guesses, and compares.

Owns the reading of the prompts and the comparison.  Does not know how guesses are made.  The file holds a prompt a
line, or, if its name ends in .jsonl, rows with `prompt` or `messages`.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from app.drafts import with_draft
from app.errors import EXIT_FAILURE, EXIT_SUCCESS, AppError, UsageError
from app.generate import Load
from app.interrupts import HeldInterrupt
from app.loading import load_engine, resolve_with_progress
from app.output import Console
from app.preferences import Preferences
from app.profiles import with_profile
from app.runtime_options import engine_options, generate_options

if TYPE_CHECKING:
    from collections.abc import Sequence

    from app.generate import LoadedEngine
    from runtime import Completion, GenerateOptions, Message, OutputConstraint

DEFAULT_TOKENS = 128


@dataclass(frozen=True, kw_only=True)
class VerifyRequest:
    """What was asked for.  file: the prompts."""

    preferences: Preferences
    file: Path
    raw: bool = False
    constraint: OutputConstraint | None = None
    as_json: bool = False
    verbose: bool = False


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """A prompt's answers."""

    number: int
    plain: Completion
    guessed: Completion

    @property
    def first_difference(self) -> int | None:
        """The first token that differs, counted from 1; None when none does."""
        ours, theirs = self.plain.ids, self.guessed.ids
        if ours == theirs:
            return None
        pairs = zip(ours, theirs, strict=False)
        return next(
            (place for place, (left, right) in enumerate(pairs, 1) if left != right), min(len(ours), len(theirs)) + 1
        )


def run(request: VerifyRequest, console: Console, *, load: Load = load_engine) -> int:
    """Compare; the exit status is 0 when no token differs.  load: as app.loading.load_engine, for tests."""
    console.require_reader()
    preferences = replace(request.preferences, spec=request.preferences.spec or "auto")
    if preferences.spec == "off":
        raise UsageError("--verify-spec compares answers with and without guesses, and --spec off makes none.")
    prompts = read_prompts(request.file)
    engine_options(preferences)  # says what is out of range before anything is fetched
    limit = DEFAULT_TOKENS if preferences.predict is None else preferences.predict
    # Both answers must draw the same numbers.
    preferences = replace(preferences, predict=limit, seed=0 if preferences.seed is None else preferences.seed)
    options = generate_options(preferences, raw=request.raw, reuse_prefix=False, constraint=request.constraint)
    path = resolve_with_progress(preferences, console)
    preferences = with_profile(preferences, path, console.note, verbose=request.verbose)
    engine = load(
        path, with_draft(engine_options(preferences), preferences, path, console), console, verbose=request.verbose
    )
    try:
        for note in engine.notes:
            console.note(f"note: {note}")
        found: list[Comparison] = []
        for number, prompt in enumerate(prompts, start=1):
            found.append(_compare(engine, number, prompt, options))
            if not request.as_json:
                console.text(_line(found[-1]) + "\n")
    finally:
        with HeldInterrupt():
            engine.close()
    num_same = sum(comparison.first_difference is None for comparison in found)
    if request.as_json:
        console.json(_json_object(found))
    else:
        console.text(f"{num_same} of {len(found)} answers are the same, token by token.\n")
    return EXIT_SUCCESS if num_same == len(found) else EXIT_FAILURE


def read_prompts(file: Path) -> list[str | list[Message]]:
    """The prompts of a file.  Raises AppError when it can't be read, or holds none."""
    try:
        # Lines as files have them: other signs of a line's end may stand within a text.
        lines = file.expanduser().read_text("utf-8").split("\n")
    except OSError as error:
        raise AppError(f"The prompt file {file} can't be read: {error.strerror}.") from error
    except UnicodeDecodeError as error:
        raise AppError(f"The prompt file {file} is no UTF-8 text.") from error
    is_rows = file.suffix == ".jsonl"
    prompts = [_row(line, number, file) if is_rows else line for number, line in enumerate(lines, 1) if line.strip()]
    if not prompts:
        raise AppError(
            f"The prompt file {file} is empty; a prompt a line was expected, or rows of JSON in a .jsonl file."
        )
    return prompts


def _row(line: str, number: int, file: Path) -> str | list[Message]:
    from runtime import Message

    try:
        row = json.loads(line)
        if isinstance(row.get("prompt"), str):
            return row["prompt"]
        return [Message(role=str(message["role"]), content=str(message["content"])) for message in row["messages"]]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise AppError(f'{file}, line {number}: no JSON object with "prompt" or "messages".') from error


def _compare(
    engine: LoadedEngine, number: int, prompt: str | Sequence[Message], options: GenerateOptions
) -> Comparison:
    results: dict[bool, Completion] = {}
    for speculate in (False, True) if number % 2 else (True, False):  # by turns, so that neither is always the warm one
        generation = engine.generate(prompt, replace(options, speculate=speculate))
        try:
            results[speculate] = generation.result
        except BaseException:
            generation.cancel()
            raise
    return Comparison(number=number, plain=results[False], guessed=results[True])


def _line(comparison: Comparison) -> str:
    place = comparison.first_difference
    verdict = "the same" if place is None else f"DIFFERENT from token {place} on"
    report = comparison.guessed.speculation
    kept = f", {report.accepted} of {report.drafted} guesses kept" if report is not None else ""
    plain, guessed = (_speed(completion) for completion in (comparison.plain, comparison.guessed))
    return (
        f"prompt {comparison.number}: {len(comparison.plain.ids)} tokens, {verdict}; {plain} plain, {guessed} with "
        f"guesses{kept}"
    )


def _speed(completion: Completion) -> str:
    rate = completion.timings.decode_tokens_per_s
    return f"{rate:.1f} tokens/s" if rate is not None else "no rate"


def _json_object(found: list[Comparison]) -> dict[str, Any]:
    from dataclasses import asdict

    def side(completion: Completion) -> dict[str, Any]:
        report = completion.speculation
        return {
            "ids": list(completion.ids),
            "decode_tokens_per_s": completion.timings.decode_tokens_per_s,
            "total_s": completion.timings.total_s,
            "speculation": asdict(report) if report is not None else None,
        }

    return {
        "same": all(comparison.first_difference is None for comparison in found),
        "prompts": [
            {
                "same": comparison.first_difference is None,
                "first_difference": comparison.first_difference,
                "plain": side(comparison.plain),
                "guessed": side(comparison.guessed),
            }
            for comparison in found
        ],
    }
