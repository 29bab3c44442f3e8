"""Work that must not hold the screen up: done on a thread of its own, its outcome handed back to the screen's.

Owns the thread. It is a daemon: a question to a hub that does not answer must not keep the program from ending.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from textual.message_pump import MessagePump

from app.chat.model_port import ShelfFault

Outcome = TypeVar("Outcome")


def run_beside(
    pump: MessagePump, work: Callable[[], Outcome], then: Callable[[Outcome], object], failed: Callable[[str], object]
) -> None:
    """Does the work, then calls `then` with what it gave, or `failed` with a sentence, on the screen's thread.

    Neither is called where the screen is gone by then.
    """
    run_all_beside(pump, lambda: iter([work()]), then, failed)


def run_all_beside(
    pump: MessagePump,
    work: Callable[[], Iterable[Outcome]],
    then: Callable[[Outcome], object],
    failed: Callable[[str], object],
) -> None:
    """The same for work that gives one thing after the other: ends early where the screen is gone."""

    def run() -> None:
        try:
            for outcome in _while_running(pump, work()):
                pump.call_after_refresh(then, outcome)
        except ShelfFault as fault:
            pump.call_after_refresh(failed, str(fault))

    threading.Thread(target=run, name="chat-errand", daemon=True).start()


def _while_running(pump: MessagePump, outcomes: Iterable[Outcome]) -> Iterator[Outcome]:
    for outcome in outcomes:
        if not pump.is_running:
            return
        yield outcome
