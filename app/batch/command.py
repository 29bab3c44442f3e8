"""`tandem generate --jsonl` and `--data`: many prompts, several at once.

Owns what is still to do: which rows are there already, how many go at once, whose results are gone on with.  Does not
know flags, layouts or the run itself (session.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from app.batch.formats import FormatName, Known, format_for
from app.batch.journal import GAP
from app.batch.results import ResultsFile
from app.batch.rows import BadRow, Defaults, Row, read_filled_rows, read_rows, request_key
from app.batch.session import BatchSession, Plan, tell_fault
from app.drafts import with_draft
from app.errors import EXIT_FAILURE, EXIT_SUCCESS, AppError, UsageError
from app.interrupts import HeldInterrupt
from app.loading import load_engine, resolve_with_progress
from app.output import Console
from app.profiles import with_profile
from app.runtime_options import engine_options, generate_options

if TYPE_CHECKING:
    from runtime import EngineOptions, GenerateOptions, Generation, Prompt

_NOTHING = Known(end=0, requests={}, num_records=0)


@dataclass(frozen=True, kw_only=True)
class BatchRequest:
    """What was asked for.  template: filled from source, a table; None: source is JSONL.  parallel None: auto.

    out None: stdout.
    """

    source: Path
    template: str | None
    defaults: Defaults
    out: Path | None
    format: FormatName | None
    parallel: int | None
    is_ordered: bool
    verbose: bool


class LoadedEngine(Protocol):
    """What this command needs of runtime.Engine."""

    @property
    def notes(self) -> tuple[str, ...]: ...
    def generate(self, prompt: Prompt, options: GenerateOptions) -> Generation: ...
    def close(self) -> None: ...


Load = Callable[..., LoadedEngine]


def run(request: BatchRequest, console: Console, *, load: Load = load_engine) -> int:
    """Answer every row that has no answer yet; returns the exit status.  load: as load_engine, for tests."""
    from runtime import describe_chain

    preferences = request.defaults.preferences
    if request.out is None:
        console.require_reader()
    engine_options(preferences)  # says what is out of range before anything is fetched
    rows = _rows(request)
    with ExitStack() as stack:
        file = None if request.out is None else stack.enter_context(_results(request, request.out))
        for row in rows:
            if isinstance(row, BadRow):
                tell_fault(row.line, row.fault, console)
        path = resolve_with_progress(preferences, console)
        preferences = with_profile(preferences, path, console.note, verbose=request.verbose)
        how_to_load = engine_options(preferences)
        plan = _plan(request, path, rows, file)
        if not any(isinstance(row, Row) for row in plan.todo):
            return _nothing_to_do(plan, console)
        if preferences.spec is not None or preferences.draft_model is not None:
            # Not unasked: several answers at once use the time that guessing would.
            how_to_load = with_draft(how_to_load, preferences, path, console)
        sized = _sized(how_to_load, path, plan, request)
        engine = load(path, sized, console, verbose=request.verbose)
        try:
            for note in engine.notes:
                console.note(f"note: {note}")
            if request.verbose:
                chain = describe_chain(generate_options(preferences).sampling)
                console.note(f"{sized.max_sequences} answers at once; sampler, where a row does not say: {chain}")
            return BatchSession(replace(plan, num_sequences=sized.max_sequences), engine, console).run()
        finally:
            with HeldInterrupt():
                engine.close()


def _rows(request: BatchRequest) -> list[Row | BadRow]:
    if request.template is None:
        rows = read_rows(request.source, request.defaults)
    else:
        rows = read_filled_rows(request.source, request.template, request.defaults)
    if not rows:
        raise AppError(f"{request.source} holds no rows.")
    if not any(isinstance(row, Row) or row.is_json for row in rows):
        raise AppError(
            f"--jsonl needs a JSON object in every line, and {request.source} has none.",
            hint="a table (CSV) goes with --data FILE, and -p says what to ask with its {columns}.",
        )
    return rows


def _results(request: BatchRequest, out: Path) -> ResultsFile:
    """The file of results.  Refuses one that the rows come from."""
    if _is_same_file(request.source, out):
        raise UsageError(f"--out names {out}, the file that the rows come from.", hint="give --out another name.")
    return ResultsFile(out, format_for(request.format, out))


def _is_same_file(source: Path, out: Path) -> bool:
    try:
        return source.expanduser().samefile(out.expanduser())
    except OSError:
        return False


def _plan(request: BatchRequest, path: Path, rows: Sequence[Row | BadRow], file: ResultsFile | None) -> Plan:
    """What is left to do; refuses to go on with results of other questions."""
    from runtime.before_loading import fingerprint_of

    format = format_for(request.format, request.out)
    known = _NOTHING if file is None else file.known
    options = engine_options(request.defaults.preferences)
    fingerprint = fingerprint_of(path, options.adapters, chat_template_file=options.chat_template_file)
    _check_known(rows, known, fingerprint)
    after = rows[known.num_records :] if format.is_positional else rows
    return Plan(
        todo=[row for row in after if isinstance(row, BadRow) or str(row.id) not in known.requests],
        num_rows=len(rows),
        num_bad=sum(isinstance(row, BadRow) for row in rows),
        num_sequences=1,
        format=format,
        file=file,
        is_ordered=request.is_ordered,
        fingerprint=fingerprint,
    )


def _check_known(rows: Sequence[Row | BadRow], known: Known, fingerprint: str) -> None:
    hint = "give --out another file, or the model and flags that this one was begun with."
    if len(known.keys) > len(rows):
        raise AppError(f"There are {len(known.keys)} answers already, and {len(rows)} rows.", hint=hint)
    for place, row in enumerate(rows):
        found = known.keys[place] if place < len(known.keys) else known.requests.get(str(getattr(row, "id", "")))
        if found is None or found == GAP or not isinstance(row, Row):
            continue
        if found != request_key(row, fingerprint):
            raise AppError(
                f"Line {row.line} (id {row.id!r}) has an answer already, but to another prompt, with other options or "
                f"of another model.",
                hint=hint,
            )


def _nothing_to_do(plan: Plan, console: Console) -> int:
    bad = f", {plan.num_bad} bad" if plan.num_bad else ""
    console.note(f"0 of {plan.num_rows} rows answered, {plan.num_rows - len(plan.todo)} were there already{bad}")
    return EXIT_FAILURE if plan.num_bad else EXIT_SUCCESS


def _sized(options: EngineOptions, path: Path, plan: Plan, request: BatchRequest) -> EngineOptions:
    """With as many places as were asked for, or as memory allows."""
    from runtime.before_loading import MOST_PARALLEL, fitting_sequences

    if request.parallel is not None:
        return replace(options, max_sequences=request.parallel, max_outputs=max(options.max_outputs, request.parallel))
    num_rows = sum(isinstance(row, Row) for row in plan.todo)
    return replace(options, max_sequences=fitting_sequences(path, options, most=min(MOST_PARALLEL, num_rows)))
