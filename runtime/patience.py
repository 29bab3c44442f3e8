"""Waiting for files that do not answer: a stalled network share, a disk that is gone.

Owns the thread in which calls are made, so that waiting can be told of and given up at any time: a process that waits
for such a call itself is out of reach, even for Ctrl-C.  Does not know what is read.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from queue import SimpleQueue
from typing import Any

from models.system_calls import calls_made_by

LOOK_S = 0.1
Told = Callable[[str, float], None]


class _Job:
    """One call, what came of it, and whether anybody still waits for that."""

    def __init__(self, call: Callable[[], Any]) -> None:
        self.done = threading.Event()
        self._call = call
        self._result: Any = None
        self._error: BaseException | None = None

    def run(self) -> None:
        try:
            self._result = self._call()
        except BaseException as error:
            self._error = error
        self.done.set()

    def result(self) -> Any:
        if self._error is not None:
            raise self._error
        return self._result


class Patience:
    """Makes calls on files.

    told(label, waited_s): while one is waited for, ten times a second, and with 0 seconds when it came back after all;
    what it raises gives the call up.
    A call that was given up stays with its thread, which ends with it or with the process.
    """

    def __init__(self, told: Told, clock: Callable[[], float] = time.monotonic) -> None:
        self._told = told
        self._clock = clock
        self._lock = threading.Lock()
        self._jobs: SimpleQueue[_Job | None] | None = None

    def __call__(self, label: str, call: Callable[[], Any]) -> Any:
        """What the call returns or raises, or what `told` raises."""
        job, began_s = _Job(call), self._clock()
        jobs = self._hand_over(job)
        was_told = False
        try:
            while not job.done.wait(LOOK_S):
                was_told = True
                self._told(label, self._clock() - began_s)
            if was_told:
                self._told(label, 0.0)
        except BaseException:
            self._leave(jobs)
            raise
        return job.result()

    def close(self) -> None:
        """Ends the thread as soon as its calls are done."""
        with self._lock:
            jobs, self._jobs = self._jobs, None
        if jobs is not None:
            jobs.put(None)

    def _hand_over(self, job: _Job) -> SimpleQueue[_Job | None]:
        with self._lock:
            if self._jobs is None:
                self._jobs = SimpleQueue()
                threading.Thread(target=_work, args=(self._jobs,), name="file calls", daemon=True).start()
            self._jobs.put(job)
            return self._jobs

    def _leave(self, jobs: SimpleQueue[_Job | None]) -> None:
        """The next call gets another thread: this one may never come back."""
        with self._lock:
            if self._jobs is jobs:
                self._jobs = None
        jobs.put(None)


def _work(jobs: SimpleQueue[_Job | None]) -> None:
    while (job := jobs.get()) is not None:
        job.run()


@contextmanager
def patient_files(told: Told) -> Iterator[None]:
    """Calls on files that are opened in this block, in this thread, are waited for and told of."""
    patience = Patience(told)
    try:
        with calls_made_by(patience):
            yield
    finally:
        patience.close()
