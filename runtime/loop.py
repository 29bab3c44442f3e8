"""The engine's thread: takes requests, runs steps, hands out tokens.

Owns the thread and everything it touches: scheduler, answers and the device, which nobody else calls except to cancel.
Does not know files, prompts or templates.  Idle, it sleeps on a condition until something is asked of it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import TypeVar

import numpy as np

from runtime.answer import Answer
from runtime.candidates import Row, row_part
from runtime.devices.binding import Best, BestRows, Binding, FindsBest
from runtime.errors import Cancelled, DeviceReplaced, EngineClosedError
from runtime.generation import FinishReason
from runtime.scheduler import Scheduler
from runtime.sequence import TokenSequence
from runtime.speculation.options import SpeculationReport
from runtime.speculation.speculator import Speculator, Verified
from runtime.step import Step, Work

Rows = TypeVar("Rows")


class EngineLoop:
    """Runs answers on a device until it is closed; then the device is closed too, by the thread that used it."""

    def __init__(
        self,
        binding: Binding,
        *,
        num_tokens: int | None = None,
        speculator: Speculator | None = None,
        guesses_meanwhile: bool = False,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """num_tokens: rows of logits are cut to these, where the model has more than the vocabulary; None: all.

        speculator: guesses ahead; taken over.  guesses_meanwhile: the device leaves the processor's cores to a draft
        model while it runs, so that it guesses on meanwhile.  clock: seconds, what passes take is measured with it.
        """
        self._num_tokens = num_tokens or binding.vocab_size
        self._binding = binding
        self._speculator = speculator
        self._clock = clock
        self._scheduler = Scheduler(binding.limits, binding.copy_page)
        self._scratch = np.empty(self._num_tokens, dtype=np.float32)
        self._answers: dict[TokenSequence, Answer] = {}
        # Other threads touch what follows, under the lock.
        self._wakeup = threading.Condition()
        self._has_mail = False
        self._is_closing = False
        self._arrived: list[Answer] = []
        self._cancelled: list[Answer] = []
        self._running: dict[Binding, list[Answer]] = {}
        self._device = ThreadPoolExecutor(1, "tandem-device") if guesses_meanwhile and speculator is not None else None
        self._thread = threading.Thread(target=self._work, name="tandem-engine", daemon=True)
        self._thread.start()

    def submit(self, answer: Answer) -> None:
        """From any thread: queues an answer."""
        with self._wakeup:
            if self._is_closing:
                raise EngineClosedError("The engine is closed and takes no more prompts; load the model again.")
            self._arrived.append(answer)
            self._notify()

    def cancel(self, answer: Answer) -> None:
        """From any thread: ends an answer soon.  A run that computes for it is stopped; the others' part is redone."""
        with self._wakeup:
            self._cancelled.append(answer)
            self._notify()
            for binding, answers in self._running.items():
                if answer in answers:
                    binding.cancel()

    def close(self) -> None:
        """From any thread: ends every answer and waits until the device is closed.  May be called again."""
        with self._wakeup:
            self._is_closing = True
            self._notify()
            for binding in self._running:
                binding.cancel()
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def _notify(self) -> None:
        self._has_mail = True
        self._wakeup.notify()

    def _work(self) -> None:
        error: BaseException | None = None
        try:
            while self._read_mail():
                self._guess_ahead()
                step = self._scheduler.plan()
                if step is not None:
                    self._run(step)
                    continue
                with self._wakeup:
                    self._wakeup.wait_for(lambda: self._has_mail)
        except BaseException as fault:  # our own bug: nobody may wait for ever because of it
            error = fault
        self._end(error)

    def _read_mail(self) -> bool:
        """Takes up what other threads asked for; False when the engine is to close."""
        if not self._has_mail:  # read without the lock: what is missed now is seen a step later
            return True
        with self._wakeup:
            self._has_mail = False
            arrived, self._arrived = self._arrived, []
            cancelled, self._cancelled = self._cancelled, []
            is_closing = self._is_closing
        for answer in arrived:
            self._answers[answer.sequence] = answer
            self._scheduler.add(answer.sequence)
        for answer in cancelled:
            if answer.sequence in self._answers:
                self._finish(answer, "cancelled")
        return not is_closing

    def _guess_ahead(self) -> None:
        """Gives sequences drafts, if all that the next step holds is answers."""
        if self._speculator is None or not self._scheduler.only_decodes:
            return
        contenders = [
            answer for answer in self._answers.values() if answer.speculates and answer.sequence.slot is not None
        ]
        if contenders:
            self._speculator.propose(
                contenders,
                lambda binding, batch: self._compute(binding, contenders, lambda: binding.run(batch)),
                num_sequences=self._scheduler.num_running,
                context_size=self._binding.limits.context_size,
            )

    def _compute(self, binding: Binding, answers: list[Answer], run: Callable[[], Rows]) -> Rows | None:
        """Runs a batch on a device for these answers; None when one of them, or the engine, was stopped."""
        with self._wakeup:
            if self._cancelled or self._is_closing:
                return None
            self._running[binding] = answers
        try:
            return run()
        except Cancelled:
            return None
        finally:
            with self._wakeup:
                del self._running[binding]

    def _runner(self, step: Step, answers: list[Answer]) -> Callable[[], np.ndarray | BestRows]:
        """What computes a step: whole rows, or the best of each where that is enough for everyone in it."""
        binding, batch = self._binding, step.batch
        counts = [
            answer.enough_candidates for work, answer in zip(step.works, answers, strict=True) if work.num_outputs
        ]
        known = [count for count in counts if count is not None]
        if not isinstance(binding, FindsBest) or not known or len(known) < len(counts):
            return lambda: binding.run(batch)
        best = Best(count=max(known), num_tokens=self._num_tokens)
        if best.count > min(binding.most_best, self._num_tokens):
            return lambda: binding.run(batch)
        return lambda: binding.run_best(batch, best)

    def _compute_step(self, step: Step, answers: list[Answer]) -> tuple[np.ndarray | BestRows | None, float]:
        """Rows of logits (None: stopped) and the milliseconds that they took; guesses are made meanwhile."""
        run = self._runner(step, answers)

        def compute() -> tuple[np.ndarray | BestRows | None, float, float]:
            started_s = self._clock()
            rows = self._compute(self._binding, answers, run)
            ended_s = self._clock()
            return rows, (ended_s - started_s) * 1e3, ended_s

        is_decoding = all(answer.sequence.is_decoding for answer in answers)
        contenders = [answer for answer in answers if answer.speculates] if is_decoding else []
        if self._device is None or self._speculator is None or not contenders:
            return compute()[:2]
        result = self._device.submit(compute)
        try:
            self._speculator.guess_ahead(
                contenders,
                lambda binding, batch: self._compute(binding, contenders, lambda: binding.run(batch)),
                is_wanted=lambda: not result.done(),
                context_size=self._binding.limits.context_size,
            )
        finally:
            rows, elapsed_ms, ended_s = result.result()  # whatever happens, nothing else runs on the device meanwhile
        self._speculator.waited(contenders, max(0.0, self._clock() - ended_s) * 1e3)
        return rows, elapsed_ms

    def _run(self, step: Step) -> None:
        answers = [self._answers[work.sequence] for work in step.works]
        for answer in answers:
            answer.clock.begin()
        try:
            rows, elapsed_ms = self._compute_step(step, answers)
        except DeviceReplaced as change:
            self._scheduler.begin_anew()
            for answer in self._answers.values():
                answer.tell(str(change))
            return
        except Exception as error:
            for answer in answers:
                self._fail(answer, error)
            return
        if rows is None:
            return
        is_plain = all(work.num_outputs == work.count and work.sequence.is_decoding for work in step.works)
        self._scheduler.commit(step)
        reasons: dict[Answer, FinishReason] = {}
        verified: list[Verified] = []
        for work, answer in zip(step.works, answers, strict=True):
            length = len(work.sequence.ids)
            try:
                reason = self._use(work, answer, rows)
            except Exception as error:
                self._fail(answer, error)
                continue
            if reason is not None:
                reasons[answer] = reason
            new_ids = tuple(work.sequence.ids[length:])
            verified.append(
                Verified(
                    sequence=work.sequence,
                    speculates=answer.speculates,
                    num_checked=max(0, work.num_outputs - 1),
                    token_ids=new_ids,
                )
            )
        if self._speculator is not None:
            self._speculator.learn(verified, elapsed_ms=elapsed_ms, is_plain_decoding=is_plain)
        for answer, reason in reasons.items():
            self._finish(answer, reason)

    def _use(self, work: Work, answer: Answer, rows: np.ndarray | BestRows) -> FinishReason | None:
        if work.start < work.sequence.num_prompt:
            answer.report_prefill()
        if work.num_outputs == 0:
            return None
        first_position = work.start + work.count - work.num_outputs
        reason = answer.take(self._rows_of(work, rows), first_position, self._scratch)
        if work.sequence.draft:
            self._scheduler.settle(work.sequence)
        return reason

    def _rows_of(self, work: Work, rows: np.ndarray | BestRows) -> Sequence[Row]:
        own = slice(work.first_row, work.first_row + work.num_outputs)
        if isinstance(rows, BestRows):
            return [row_part(ids, logits) for ids, logits in zip(rows.ids[own], rows.logits[own], strict=True)]
        return list(rows[own, : self._num_tokens])

    def _finish(self, answer: Answer, reason: FinishReason) -> None:
        del self._answers[answer.sequence]
        self._scheduler.finish(answer.sequence)
        answer.complete(reason, self._last_report(answer))

    def _fail(self, answer: Answer, error: BaseException) -> None:
        del self._answers[answer.sequence]
        self._scheduler.drop(answer.sequence)
        self._last_report(answer)
        answer.generation.finish(error)

    def _last_report(self, answer: Answer) -> SpeculationReport | None:
        """What guessing did for an answer that has ended; nothing is kept of it."""
        if self._speculator is None:
            return None
        report = self._speculator.report(answer.sequence)
        self._speculator.forget(answer.sequence)
        return report

    def _end(self, error: BaseException | None) -> None:
        """The last thing the thread does."""
        with self._wakeup:
            self._is_closing = True
            answers = [*self._answers.values(), *self._arrived]
            self._answers.clear()
            self._arrived.clear()
        try:
            with ExitStack() as devices:
                if self._device is not None:
                    devices.callback(self._device.shutdown)
                devices.callback(self._binding.close)
                if self._speculator is not None:
                    devices.callback(self._speculator.close)
        finally:
            for answer in answers:
                if error is None:
                    answer.complete("cancelled", self._last_report(answer))
                else:
                    answer.generation.finish(error)
