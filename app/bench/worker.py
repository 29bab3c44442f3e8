"""Long work in a thread of its own, so that Ctrl-C is heard while native code runs.

Owns the waiting.  Does not know what the work is.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from app.interrupts import HeldInterrupt

_LOOK_EVERY_S = 0.1


def run_stoppable(work: Callable[[], None], stop: Callable[[], None]) -> bool:
    """Runs `work`; Ctrl-C calls `stop` and waits for the end.  Whether there was one.

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
        with HeldInterrupt() as interrupt:
            threading.Thread(target=run, name="tandem-bench", daemon=True).start()
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
