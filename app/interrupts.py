"""Ctrl-C where it must wait: native threads are being started or ended, and an exception out of nowhere would leave
them without their memory; or where it only asks for an end, and nothing may be lost on the way.

Owns the signal handler while it is held.  Does not know what is going on meanwhile.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from types import FrameType, TracebackType


class HeldInterrupt:
    """A block in which Ctrl-C is noted; it is raised by `check`, or at the end of the block.

    Whatever exception ends the block after a Ctrl-C, KeyboardInterrupt takes its place: children of this process get
    the signal too, and their end is no fault.  A second Ctrl-C is raised at once, and so is the first one while
    `is_held` is False.
    """

    def __init__(self) -> None:
        self.is_held = True
        self._is_noted = False
        self._is_main = threading.current_thread() is threading.main_thread()

    @property
    def is_noted(self) -> bool:
        """Whether Ctrl-C came."""
        return self._is_noted

    def check(self) -> None:
        """Here an exception does no harm."""
        if self._is_noted:
            raise KeyboardInterrupt

    def __enter__(self) -> HeldInterrupt:
        if self._is_main:
            self._previous = signal.signal(signal.SIGINT, self._note)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._is_main:
            signal.signal(signal.SIGINT, self._previous)
        if self._is_noted and not isinstance(error, KeyboardInterrupt):
            raise KeyboardInterrupt from error

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self._is_noted or not self.is_held:
            raise KeyboardInterrupt
        self._is_noted = True


class AskedToStop:
    """A block in which the first Ctrl-C calls `stop` and raises nothing; a second one is raised as everywhere.

    An exception could strike between taking a piece of text and writing it: that piece would be lost, and what was
    still waiting would be written after the hole.
    """

    def __init__(self, stop: Callable[[], None]) -> None:
        self._stop = stop
        self._is_main = threading.current_thread() is threading.main_thread()

    def __enter__(self) -> AskedToStop:
        if self._is_main:
            self._previous = signal.signal(signal.SIGINT, self._ask)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._is_main:
            signal.signal(signal.SIGINT, self._previous)

    def _ask(self, number: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGINT, self._previous)
        self._stop()
