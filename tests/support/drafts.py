"""Draft models without a model, and a clock that passes move on, for tests of speculation."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

import numpy as np
from fake_device import VOCAB_SIZE, FakeBinding, make_limits

from runtime.answer import Answer
from runtime.devices.binding import Batch, Limits
from runtime.generation import Generation
from runtime.loop import EngineLoop
from runtime.options import GenerateOptions
from runtime.sampling import SamplingOptions
from runtime.speculation.drafter import Drafter
from runtime.speculation.model_drafter import ModelDrafter
from runtime.speculation.ngram_drafter import NgramDrafter
from runtime.speculation.options import SpeculationOptions
from runtime.speculation.pass_costs import Pace
from runtime.speculation.speculator import Speculator

GREEDY = SamplingOptions(temperature=0)

Change = Callable[[np.ndarray, int], np.ndarray]
Cost = Callable[[int], float]


def perfect(row: np.ndarray, position: int) -> np.ndarray:
    """The model's own row."""
    return row


def useless(row: np.ndarray, position: int) -> np.ndarray:
    """Noise that has nothing to do with the row."""
    return np.roll(row, 1 + position * 37 % (VOCAB_SIZE - 1))


def second_best(row: np.ndarray, position: int) -> np.ndarray:
    """As near as it gets, and always wrong: the best token is the last."""
    changed = row.copy()
    changed[int(row.argmax())] = row.min() - 1
    return changed


def now_and_then(row: np.ndarray, position: int) -> np.ndarray:
    """Right at two positions of three."""
    return row if position % 3 else second_best(row, position)


def sure_and_wrong(row: np.ndarray, position: int) -> np.ndarray:
    """Certain of the model's last choice."""
    changed = np.full_like(row, -50.0)
    changed[int(row.argmin())] = 50.0
    return changed


DRAFTS = {change.__name__: change for change in (perfect, useless, second_best, now_and_then, sure_and_wrong)}


class Clock:
    """Seconds that pass only when somebody says so."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def tiny_ms(num_tokens: int) -> float:
    """A pass of a model that is much smaller."""
    return 0.4 + 0.1 * num_tokens


def usual_ms(num_tokens: int) -> float:
    """A pass of a model of 10 ms on a CPU, which computes four tokens together."""
    return 10.0 + 0.8 * (num_tokens - 1) if num_tokens <= 8 else 4.0 * num_tokens


class ChangedBinding(FakeBinding):
    """The fake device with changed rows; a run of n tokens takes cost(n) milliseconds of the clock.

    beside: the device that runs at the same time, in another thread.
    """

    beside: MeanwhileBinding | None = None

    def __init__(
        self,
        limits: Limits | None = None,
        *,
        change: Change = perfect,
        clock: Clock | None = None,
        cost: Cost = tiny_ms,
        vocab_size: int = VOCAB_SIZE,
    ) -> None:
        super().__init__(limits)
        self.change = change
        self.clock = clock or Clock()
        self.cost = cost
        self.vocab_size = vocab_size

    def run(self, batch: Batch) -> np.ndarray:
        rows = super().run(batch)
        self.spend(self.cost(len(batch.token_ids)) / 1e3)
        for row, index in zip(rows, batch.outputs, strict=True):
            row[:] = self.change(row, int(batch.positions[index]))
        if self.vocab_size <= VOCAB_SIZE:
            return rows[:, : self.vocab_size]
        padding = np.full((len(rows), self.vocab_size - VOCAB_SIZE), 99.0, dtype=np.float32)
        return np.concatenate([rows, padding], axis=1)

    def spend(self, elapsed_s: float) -> None:
        """A run takes its time."""
        if self.beside is not None and self.beside.ends_s is None:
            time.sleep(5e-4)  # real time, in which the other thread begins its run
        self.clock.now_s += elapsed_s
        while self.beside is not None and self.beside.ends_s is not None and self.clock.now_s >= self.beside.ends_s:
            time.sleep(1e-4)
        if self.beside is not None:
            time.sleep(2e-4)  # real time, in which the other thread says that its run is over


class MeanwhileBinding(ChangedBinding):
    """A device that leaves the processor alone while it runs: what `draft` computes then takes no time of its own.

    A run ends when the clock says so: the draft model's passes move it on; without any, the rest passes at once.
    """

    draft: ChangedBinding | None = None
    ends_s: float | None = None  # of the run in progress
    # Real time in which a draft model that wants to run begins to.
    patience_s = 0.01

    def spend(self, elapsed_s: float) -> None:
        ends_s = self.ends_s = self.clock.now_s + elapsed_s
        num_runs, seen_s = -1, 0.0
        while self.draft is not None and self.clock.now_s < ends_s:
            if self.draft.num_runs != num_runs:
                num_runs, seen_s = self.draft.num_runs, time.monotonic()
            if time.monotonic() - seen_s > self.patience_s:
                break
            time.sleep(0)
        self.clock.now_s = max(self.clock.now_s, ends_s)
        self.ends_s = None


class Pair:
    """A model and what guesses for it, on fake devices, with the loop that runs them."""

    def __init__(
        self,
        *,
        change: Change | None = perfect,
        uses_text: bool = False,
        draft_max: int = 8,
        draft_min: int = 0,
        cost: Cost = usual_ms,
        draft_cost: Cost = tiny_ms,
        draft_vocab_size: int = VOCAB_SIZE,
        target: type[ChangedBinding] = ChangedBinding,
        draft: type[ChangedBinding] = ChangedBinding,
        end_ids: frozenset[int] = frozenset(),
        guesses_meanwhile: bool = False,
        **limits: int,
    ) -> None:
        self.clock = Clock()
        self.end_ids = end_ids
        made = make_limits(**{"max_outputs": 64, "max_batch_tokens": 64, **limits})
        self.target = target(made, clock=self.clock, cost=cost)
        pace = Pace()
        drafters: list[Drafter] = [NgramDrafter()] if uses_text else []
        self.draft = draft(
            replace(made, max_outputs=made.max_sequences, num_pages=max(made.num_pages, 8)),
            change=change or perfect,
            clock=self.clock,
            cost=draft_cost,
            vocab_size=draft_vocab_size,
        )
        self.model_drafter: ModelDrafter | None = None
        if change is not None:
            self.model_drafter = ModelDrafter(self.draft, num_tokens=VOCAB_SIZE, pace=pace, clock=self.clock)
            drafters.append(self.model_drafter)
        if isinstance(self.target, MeanwhileBinding) and guesses_meanwhile:
            self.target.draft = self.draft
            self.draft.beside = self.target
        options = SpeculationOptions(draft_max=draft_max, draft_min=draft_min)
        self.speculator = Speculator(drafters, options, pace=pace, clock=self.clock)
        self.loop = EngineLoop(
            self.target, speculator=self.speculator, guesses_meanwhile=guesses_meanwhile, clock=self.clock
        )

    def ask(self, prompt: list[int], **fields: object) -> Generation:
        """Begins an answer; greedy unless said otherwise."""
        options = replace(GenerateOptions(sampling=GREEDY), **fields)  # pyright: ignore[reportArgumentType]
        generation = Generation(
            prompt_ids=tuple(prompt),
            notes=(),
            seed=options.sampling.seed or 0,
            starts_in_thinking=False,
            cancel=lambda: self.loop.cancel(answer),
        )
        answer = Answer(
            generation=generation,
            options=options,
            end_ids=self.end_ids,
            context_size=self.target.limits.context_size,
            token_bytes=lambda token_id: bytes([token_id]) if token_id < 256 else f"<{token_id}>".encode(),
        )
        self.loop.submit(answer)
        return generation

    def check_books(self) -> None:
        """Once nothing runs: every page of both models is free or known to its prefix cache."""
        schedulers = [self.loop._scheduler]
        if self.model_drafter is not None:
            schedulers.append(self.model_drafter.scheduler)
        for scheduler in schedulers:
            assert scheduler.num_sequences == 0
            assert scheduler.pages.pool.num_free + scheduler.pages.cache.num_pages == scheduler.pages.pool.num_pages
            assert scheduler.pages.cache.num_evictable() == scheduler.pages.cache.num_pages

    def __enter__(self) -> Pair:
        return self

    def __exit__(self, *exception: object) -> None:
        self.target.release()
        self.draft.release()
        self.loop.close()
