"""Long work in a thread of its own, so that Ctrl-C and a request to end are heard while native code runs.

Owns the waiting.  Does not know what the work is.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from app.interrupts import HeldInterrupt

_LOOK_EVERY_S = 0.1


def run_stoppable(work: Callable[[], None], stop: Callable[[], None]) -> bool:
    """Runs `work`; Ctrl-C (or SIGTERM) calls `stop` and waits for the end.  Whether there was one.

    What the work raises is raised here, unless it was stopped.  A second Ctrl-C is raised at once.
    """
    done = threading.Event()
    faults: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as fault:
            faults.append(fault)
        finally:
            done.set()

    try:
        with HeldInterrupt() as interrupt, _terminating_as(interrupt):
            threading.Thread(target=run, name="tandem-measuring", daemon=True).start()
            was_stopped = False
            while not done.wait(_LOOK_EVERY_S):
                if interrupt.is_noted and not was_stopped:
                    was_stopped = True
                    stop()
    except KeyboardInterrupt:
        if not done.is_set():
            raise
        return True
    if faults:
        raise faults[0]
    return False


@contextmanager
def _terminating_as(interrupt: HeldInterrupt) -> Iterator[None]:
    """SIGTERM counts as a Ctrl-C; again and again it is still one, as `timeout` sends it to process and group."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def hand_on(number: int, frame: object) -> None:
        if not interrupt.is_noted:
            signal.raise_signal(signal.SIGINT)

    previous = signal.signal(signal.SIGTERM, hand_on)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)
