"""The end of a chat whose terminal was closed, where the usual way to it is blocked.

Owns the thread that waits for the hang-up, and how long the usual way gets. Knows nothing of what is to be kept.
"""

from __future__ import annotations

import os
import select
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TextIO

_GRACE_S = 6.0
_HUNG_UP = 129  # as a shell tells an end by SIGHUP


def end_without_terminal(
    terminal: TextIO | None,
    has_ended: threading.Event,
    *,
    keep: Callable[[], object],
    grace_s: float = _GRACE_S,
    leave: Callable[[int], object] = os._exit,
) -> None:
    """Once the terminal is closed and the grace over, keeps what there is and ends a chat that did not end."""
    if terminal is None or not terminal.isatty():
        return

    def watch() -> None:
        if has_hung_up(terminal.fileno(), None) and not has_ended.wait(grace_s):
            with suppress(Exception):
                keep()
            leave(_HUNG_UP)

    threading.Thread(target=watch, name="chat-closed-terminal", daemon=True).start()


def has_hung_up(fileno: int, timeout_ms: int | None = 0) -> bool:
    """Whether the terminal behind a file number is gone, whatever is still to be read; None waits for that.

    False where the system can't tell: macOS answers at once that it does not watch devices (POLLNVAL).
    """
    poller = select.poll()
    poller.register(fileno, 0)  # a hang-up is told without being asked for
    return any(event & select.POLLHUP for _, event in poller.poll(timeout_ms))
