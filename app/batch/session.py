"""A run over the rows of a batch: who is in the making, what becomes of a bad row, what was done in the end.

Owns the loop between engine and results.  Does not know where rows come from, or whether they were answered before.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Protocol

from app.batch.formats import Format
from app.batch.journal import GAP
from app.batch.progress import BatchProgress, duration_text
from app.batch.results import InOrder, Record, ResultsFile
from app.batch.rows import BadRow, Row, request_key
from app.errors import EXIT_FAILURE, EXIT_INTERRUPTED, EXIT_SUCCESS
from app.output import Console

if TYPE_CHECKING:
    from runtime import GenerateOptions, Generation, Prompt

_POLL_S = 0.2


class BatchEngine(Protocol):
    """What a run needs of runtime.Engine."""

    def generate(self, prompt: Prompt, options: GenerateOptions) -> Generation: ...


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What a run is to do.

    todo: the rows without an answer, bad ones among them.  num_rows, num_bad: of the whole source.  file None: stdout.
    fingerprint: the model's.
    """

    todo: Sequence[Row | BadRow]
    num_rows: int
    num_bad: int
    num_sequences: int
    format: Format
    file: ResultsFile | None
    is_ordered: bool
    fingerprint: str


class BatchSession:
    """One run; call run() once."""

    def __init__(self, plan: Plan, engine: BatchEngine, console: Console) -> None:
        self._plan = plan
        self._engine = engine
        self._console = console
        self._num_bad = plan.num_bad
        self._num_left = sum(isinstance(row, Row) for row in plan.todo)
        self._num_cut = 0
        self._num_tokens = 0
        self._reasons: Counter[str] = Counter()
        self._done: SimpleQueue[Generation] = SimpleQueue()
        self._under_way: dict[Generation, Row] = {}
        # As many again wait inside the engine, so that a finished row's place is taken at once.
        self._most_under_way = 2 * plan.num_sequences
        self._progress = BatchProgress(console, plan.num_rows)
        is_ordered = plan.is_ordered or plan.format.is_positional
        self._order = InOrder({row.line: place for place, row in enumerate(plan.todo)}) if is_ordered else None

    def run(self) -> int:
        """Until every row has its answer, or Ctrl-C."""
        was_interrupted = False
        if self._plan.file is None and (begin := self._plan.format.begin()):
            self._console.text(begin)
        try:
            rows = iter(self._plan.todo)
            while self._start(rows) or self._under_way:
                self._take_finished()
        except KeyboardInterrupt:
            was_interrupted = True
        finally:
            for generation in self._under_way:
                generation.cancel()
            self._progress.close()
        self._tell_end(was_interrupted)
        if was_interrupted:
            return EXIT_INTERRUPTED
        return EXIT_FAILURE if self._num_bad else EXIT_SUCCESS

    def _start(self, rows: Iterator[Row | BadRow]) -> bool:
        """Hands rows to the engine until it has enough; whether it has enough."""
        from runtime.catalog import ModelError
        from runtime.errors import EngineClosedError, EngineError

        while len(self._under_way) < self._most_under_way:
            row = next(rows, None)
            if row is None:
                return False
            if isinstance(row, BadRow):  # it was told already
                self._write(row.line, self._plan.format.gap(), GAP)
                continue
            try:
                generation = self._engine.generate(row.prompt, row.options)
            except EngineClosedError:
                raise
            except (EngineError, ModelError) as error:
                self._fail(row, str(error))
                continue
            self._under_way[generation] = row
            generation.when_done(lambda generation=generation: self._done.put(generation))
        return True

    def _take_finished(self) -> None:
        """Waits for an answer, not for long, and writes it down."""
        from runtime.errors import EngineError

        self._report()
        try:
            generation = self._done.get(timeout=_POLL_S)
        except Empty:
            return
        row = self._under_way.pop(generation)
        try:
            completion = generation.result
        except EngineError as error:
            self._fail(row, str(error))
            return
        self._num_tokens += len(completion.ids)
        self._reasons[completion.finish_reason] += 1
        self._num_left -= 1
        self._num_cut += row.options.constraint is not None and completion.finish_reason in ("length", "context")
        key = request_key(row, self._plan.fingerprint)
        self._write(row.line, self._plan.format.record(row, completion, key), key)

    def _write(self, line: int, text: str, key: str) -> None:
        record = Record(text=text, key=key)
        for one in [record] if self._order is None else self._order.add(line, record):
            if one.text and self._plan.file is not None:
                self._plan.file.append(one.text, one.key)
            elif one.text:
                self._console.text(one.text)

    def _fail(self, row: Row, fault: str) -> None:
        self._num_bad += 1
        self._num_left -= 1
        tell_fault(row.line, fault, self._console)
        self._write(row.line, self._plan.format.gap(), GAP)

    def _report(self) -> None:
        in_the_making = sum(generation.num_tokens for generation in self._under_way)
        self._progress.update(self._plan.num_rows - self._num_left, self._num_tokens + in_the_making)

    def _tell_end(self, was_interrupted: bool) -> None:
        plan = self._plan
        elapsed_s = self._progress.elapsed_s
        parts = [f"{sum(self._reasons.values())} of {plan.num_rows} rows answered"]
        if num_known := plan.num_rows - len(plan.todo):
            parts.append(f"{num_known} were there already")
        if self._num_bad:
            parts.append(f"{self._num_bad} bad")
        rate = f", {self._num_tokens / elapsed_s:.1f} tokens/s" if elapsed_s > 0 and self._num_tokens else ""
        self._console.note(f"{', '.join(parts)}; {self._num_tokens} tokens in {duration_text(elapsed_s)}{rate}")
        if self._num_cut:
            self._console.note(
                f"note: {self._num_cut} answers were cut before their schema or grammar was complete "
                f"(finish_reason says so); a larger -n or --ctx-size lets them end."
            )
        if was_interrupted:
            self._console.note("The same command goes on from here." if plan.file is not None else "Interrupted.")


def tell_fault(line: int, fault: str, console: Console) -> None:
    """Says why a row can't be answered."""
    text = fault.rstrip(".")
    console.note(f"line {line}: {text}" if text.endswith("?") else f"line {line}: {text}.")
