"""A whole evaluation: the text through every way of loading, beside the reference; then speed, then answers.

Owns the order, and how it is stopped.  Does not know formats, nor how a figure is made.  The reference stays loaded and
reads every tile again beside each row's model, so that no more than a tile of either's logits is ever held.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median
from typing import Protocol

from runtime.benchmark.driver import DeviceDriver
from runtime.devices.binding import Binding
from runtime.engine import Engine
from runtime.errors import Cancelled
from runtime.evaluation.answers import GreedyAnswer, answer_prompts, find_parting
from runtime.evaluation.distances import Distance, RowMeter
from runtime.evaluation.loading import EvaluationError, Load, Loaded, Words, check_comparable, load_model, read_words
from runtime.evaluation.plans import EvaluationPlan
from runtime.evaluation.reader import WindowReader, read_in_step
from runtime.evaluation.results import Results, Row, Setting, Speed
from runtime.evaluation.summaries import divergence_of, perplexity_of
from runtime.evaluation.windows import Window, cut_windows
from runtime.options import EngineOptions

_DECODE_STEPS = 32


class Listener(Protocol):
    """Hears what happens, in the measuring thread."""

    def loading(self, title: str, stage: str, done: int, total: int) -> None:
        """A model is being made ready."""
        ...

    def reading(self, title: str, done: int, total: int) -> None:
        """Tokens of the text that were counted."""
        ...

    def timing(self, title: str, done: int, total: int) -> None:
        """Tokens that were computed to learn the speed."""
        ...

    def answering(self, title: str, done: int, total: int) -> None:
        """Prompts."""
        ...

    def noted(self, text: str) -> None:
        """A sentence for the user."""
        ...


@dataclass(kw_only=True)
class _Counts:
    """What was found so far, a value for each counted token."""

    nlls: list[float] = field(default_factory=list)
    distances: list[Distance] = field(default_factory=list)

    def fill(self, row: Row) -> Row:
        """The row with the figures of what was counted."""
        if not self.nlls:
            return row
        row = replace(row, perplexity=perplexity_of(self.nlls))
        if not self.distances:
            return row
        return replace(
            row,
            reference_perplexity=perplexity_of([distance.reference_nll for distance in self.distances]),
            divergence=divergence_of(
                [distance.kl for distance in self.distances], [distance.agrees for distance in self.distances]
            ),
        )


class EvaluationSession:
    """One run.  run() belongs to one thread; stop() may come from any.  results() holds what was found until then."""

    def __init__(self, plan: EvaluationPlan, listener: Listener, *, load: Load = load_model) -> None:
        self._plan, self._listener, self._load = plan, listener, load
        self._rows: list[Row] = []
        self._answers: list[list[GreedyAnswer]] = []
        self._window, self._stride = 0, 0
        self._longest = 0  # window of this text, in tokens: less than the window for a short text
        self._ids: list[int] = []
        self._start_token: str | None = None
        self._windows: tuple[Window, ...] = ()
        self._reference: Setting | None = None
        self._lock = threading.Lock()
        self._is_stopped = False
        self._stop_current: Callable[[], None] | None = None

    def stop(self) -> None:
        """From any thread: ends what is being measured; what was found is kept."""
        with self._lock:
            self._is_stopped = True
            if self._stop_current is not None:
                self._stop_current()

    def results(self) -> Results:
        """What was found so far."""
        return Results(
            window=self._window,
            stride=self._stride,
            num_tokens=len(self._ids),
            start_token=self._start_token,
            reference=self._reference,
            rows=tuple(self._rows),
        )

    def run(self, path: Path, reference_path: Path | None = None) -> None:
        """Measures everything.  reference_path: None: the same file, if there is anything to compare.

        Raises Cancelled after stop(); EvaluationError for what can't be measured or compared, and as Engine.load.
        """
        plan, words = self._plan, read_words(path)
        is_compared = reference_path is not None or plan.has_variants
        if plan.prompts and not is_compared:
            raise EvaluationError("Answers are compared with those of a reference: name one, or several ways to load.")
        other = words if reference_path is None else read_words(reference_path)
        if reference_path is not None:
            check_comparable(words, other)
        self._cut(words, other)
        with ExitStack() as stack:
            reference: Loaded | None = None
            if is_compared:
                options = plan.sized(plan.exact_load(is_other=reference_path is not None), self._longest)
                reference = self._open(reference_path or path, options)
                stack.callback(reference.binding.close)
                self._reference = _setting(reference, options)
            for options in plan.loads():
                self._measure(path, words, plan.sized(options, self._longest), reference)
            if plan.prompts and reference is not None:
                stack.pop_all()
                found = self._ask(reference, other, "the reference")
                for idx, row in enumerate(self._rows):
                    pairs = zip(plan.prompts, self._answers[idx], found, strict=False)
                    partings = (
                        find_parting(prompt, own, theirs, words.vocabulary, other.vocabulary)
                        for prompt, own, theirs in pairs
                    )
                    self._rows[idx] = replace(row, partings=tuple(partings))
                self._check()

    def _cut(self, words: Words, other: Words) -> None:
        """The text as windows, the same for both models."""
        plan = self._plan
        self._window, self._stride = plan.sizes(words.trained_context_size)
        self._longest = self._window
        if plan.text is None:
            return
        ids = _encode(words, plan.text)
        if other is not words and _encode(other, plan.text) != ids:
            raise EvaluationError(
                f"{words.path.name} and the reference {other.path.name} cut the text into different tokens, so their "
                "distributions belong to different places: take a reference of the same family."
            )
        head = words.vocabulary.with_one_bos(ids)
        start_id = head[0] if len(head) > len(ids) else None
        self._start_token = None if start_id is None else words.vocabulary.token_text(start_id)
        self._ids = ids[: plan.most_tokens]
        self._windows = cut_windows(self._ids, size=self._window, stride=self._stride, start_id=start_id)
        if not self._windows:
            raise EvaluationError(
                f"The text is {'one token long' if self._ids else 'empty'}: there is nothing to predict behind another"
                " token. Give a longer text."
            )
        self._longest = max(2, min(self._window, len(self._ids)))

    def _open(self, path: Path, options: EngineOptions) -> Loaded:
        def progress(stage: str, done: int, total: int) -> None:
            self._check()
            self._listener.loading(path.stem, stage, done, total)

        self._check()
        loaded = self._load(path, options, progress)
        for note in loaded.notes:
            self._listener.noted(f"{path.name}: {note}")
        return loaded

    def _measure(self, path: Path, words: Words, options: EngineOptions, reference: Loaded | None) -> None:
        """One row; of what was read until then when it is stopped."""
        loaded = self._open(path, options)
        row = Row(setting=_setting(loaded, options), memory=loaded.binding.memory, is_complete=False)
        counts = _Counts()
        with ExitStack() as stack:
            stack.callback(loaded.binding.close)
            try:
                if self._windows:
                    self._read(loaded.binding, reference.binding if reference else None, counts, row.setting)
                row = replace(row, is_complete=True)
                row = replace(row, speed=self._time(loaded.binding, f"{title_of(row.setting)}: speed"))
            finally:
                if counts.nlls or not self._windows:
                    self._rows.append(counts.fill(row))
            if self._plan.prompts:
                stack.pop_all()  # the engine closes it
                self._answers.append(self._ask(loaded, words, title_of(row.setting)))

    def _read(self, binding: Binding, reference: Binding | None, counts: _Counts, setting: Setting) -> None:
        bindings = [binding] if reference is None else [binding, reference]
        readers = [WindowReader(each) for each in bindings]
        meter = RowMeter(min(each.vocab_size for each in bindings))
        total, title = sum(window.num_counted for window in self._windows), title_of(setting)

        def cancel() -> None:
            for each in bindings:
                each.cancel()

        self._begin(cancel)
        self._listener.reading(title, 0, total)
        for window in self._windows:
            for places, rows in read_in_step(readers, window):
                self._check()
                next_ids = window.ids[places.start : places.stop]
                nlls = meter.surprises(rows[0], next_ids)
                if reference is not None:
                    counts.distances += meter.distances(rows[0], rows[1], next_ids)
                counts.nlls += nlls
                self._listener.reading(title, len(counts.nlls), total)

    def _time(self, binding: Binding, title: str) -> Speed:
        """How fast the bare device is, at the depth that the text had."""
        self._begin(binding.cancel)
        driver = DeviceDriver(binding)
        room = min(self._longest, binding.limits.context_size)
        steps = max(1, min(_DECODE_STEPS, room // 2))
        depth = room - steps
        self._listener.timing(title, 0, room)
        prefill_s = driver.prefill(depth, 0)
        self._listener.timing(title, depth, room)
        return Speed(
            prompt_tokens=depth,
            prefill_tokens_per_s=depth / prefill_s,
            decode_tokens_per_s=1 / median(driver.decode(steps, depth)),
        )

    def _ask(self, loaded: Loaded, words: Words, title: str) -> list[GreedyAnswer]:
        """Answers of a model whose binding is given up for it."""
        plan, done = self._plan, 0

        def count() -> None:
            nonlocal done
            done += 1
            self._listener.answering(title, done, len(plan.prompts))

        engine = Engine(
            binding=loaded.binding,
            vocabulary=words.vocabulary,
            chat_templates=words.chat_templates,
            description=loaded.description,
        )
        with engine:
            self._check()
            self._listener.answering(title, 0, len(plan.prompts))
            return answer_prompts(
                engine,
                plan.prompts,
                answer_tokens=plan.answer_tokens,
                raw=plan.raw,
                on_begin=self._begin,
                on_end=count,
            )

    def _begin(self, stop: Callable[[], None]) -> None:
        """From here on `stop` is what ends it early."""
        with self._lock:
            self._stop_current = stop
            if self._is_stopped:
                raise Cancelled("The evaluation was stopped.")

    def _check(self) -> None:
        if self._is_stopped:
            raise Cancelled("The evaluation was stopped.")


def title_of(setting: Setting) -> str:
    """How a row is called beside its neighbours."""
    return f"{Path(setting.model_file).stem}, {setting.cache_type_k}/{setting.cache_type_v}, {setting.activations}"


def _encode(words: Words, text: str) -> list[int]:
    return words.vocabulary.encode(text, add_special=False, parse_special=False)


def _setting(loaded: Loaded, options: EngineOptions) -> Setting:
    description = loaded.description
    return Setting(
        model=description.name,
        model_file=description.path.name,
        model_fingerprint=description.fingerprint,
        model_size_bytes=description.size_bytes,
        formats=description.formats,
        cache_type_k=options.cache_type_k,
        cache_type_v=options.cache_type_v,
        activations=options.activations,
        adapters=tuple(f"{choice.path.name}:{choice.scale:g}" for choice in options.adapters),
        threads=description.threads,
        context_size=description.context_size,
    )
