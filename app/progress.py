"""How far something long has come: a bar in place on a terminal, a line now and then elsewhere.

Owns the bar, its figures and when it is drawn.  Does not know what is counted, nor the streams.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Protocol

_BAR_WIDTH = 24
_LEAST_BAR_WIDTH = 6
_REDRAW_S = 0.1
_SHOW_AFTER_S = 0.3
_FIRST_LINE_AFTER_S = 2.0
_NEXT_LINE_AFTER_S = 10.0


class ProgressScreen(Protocol):
    """Where progress is drawn: app.output.Console."""

    @property
    def is_stderr_terminal(self) -> bool:
        """Whether a progress line can be redrawn."""
        ...

    def columns(self) -> int:
        """How wide it is."""
        ...

    def note(self, text: str) -> None:
        """A line that stays."""
        ...

    def progress_line(self, text: str) -> None:
        """A line that the next one covers."""
        ...

    def clear_progress_line(self) -> None:
        """Take the last one away."""
        ...


class ProgressBar:
    """Call it with (done, total); total 0: not known yet.  Use it as a context manager, so that it ends.

    On a terminal it is redrawn in place and leaves nothing behind; elsewhere something that takes long says a line now
    and then.  May be called from any thread.
    """

    def __init__(
        self,
        screen: ProgressScreen,
        title: str,
        unit: str,
        *,
        shows_time_left: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """shows_time_left: as if what is left went as fast as what was done since the bar began."""
        self._shows_time_left = shows_time_left
        self._screen = screen
        self._title = title
        self._unit = unit
        self._clock = clock
        self._lock = threading.Lock()
        self._began_s = clock()
        self._first_done: int | None = None
        self._drawn_s = -_NEXT_LINE_AFTER_S
        self._is_closed = False

    def __enter__(self) -> ProgressBar:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __call__(self, done: int, total: int) -> None:
        with self._lock:
            if self._is_closed:
                return
            now_s = self._clock()
            if self._first_done is None:
                self._first_done = done
            if not self._is_due(now_s, is_last=0 < total <= done):
                return
            self._drawn_s = now_s
            if self._screen.is_stderr_terminal:
                self._screen.progress_line(self._bar(done, total, now_s))
            else:
                self._screen.note(self._line(done, total, now_s))

    def close(self) -> None:
        """Take the bar away; later calls do nothing."""
        with self._lock:
            self._is_closed = True
            self._screen.clear_progress_line()

    def _is_due(self, now_s: float, *, is_last: bool) -> bool:
        elapsed_s = now_s - self._began_s
        if self._screen.is_stderr_terminal:
            return elapsed_s >= _SHOW_AFTER_S and (is_last or now_s - self._drawn_s >= _REDRAW_S)
        return not is_last and elapsed_s >= _FIRST_LINE_AFTER_S and now_s - self._drawn_s >= _NEXT_LINE_AFTER_S

    def _bar(self, done: int, total: int, now_s: float) -> str:
        rate = self._rate(done, now_s)
        if total <= 0:
            return f"{self._title}  {self._amount(done)}{rate}"
        figures = f"{_percent(done, total)}  {self._part(done, total)}{rate}{self._left(done, total, now_s)}"
        room = self._screen.columns() - len(self._title) - len(figures) - len("  [] ") - 1
        width = min(_BAR_WIDTH, max(_LEAST_BAR_WIDTH, room))
        filled = min(width, done * width // total)
        return f"{self._title}  [{'#' * filled}{'.' * (width - filled)}] {figures}"

    def _line(self, done: int, total: int, now_s: float) -> str:
        if total <= 0:
            return f"{self._title}: {self._amount(done)}"
        left = self._left(done, total, now_s)
        return f"{self._title}: {_percent(done, total)} ({self._part(done, total)}){left}"

    def _left(self, done: int, total: int, now_s: float) -> str:
        first_done = self._first_done or 0
        if not self._shows_time_left or done <= first_done:
            return ""
        left_s = (now_s - self._began_s) * (total - done) / (done - first_done)
        return f", {_duration(left_s)} left"

    def _part(self, done: int, total: int) -> str:
        return f"{self._amount(done) if self._unit == 'bytes' else done} of {self._amount(total)}"

    def _amount(self, count: int) -> str:
        if self._unit != "bytes":
            return f"{count} {self._unit}".rstrip()
        from runtime.catalog import size_text

        return size_text(count)

    def _rate(self, done: int, now_s: float) -> str:
        elapsed_s = now_s - self._began_s
        if self._unit != "bytes" or elapsed_s <= 0 or self._first_done is None:
            return ""
        return f"  {self._amount(int((done - self._first_done) / elapsed_s))}/s"


class ProgressBars:
    """One bar at a time: another title takes the last one away and begins anew.  A context manager, so that it ends."""

    def __init__(self, screen: ProgressScreen) -> None:
        self._screen = screen
        self._bar: ProgressBar | None = None
        self._title = ""

    def __enter__(self) -> ProgressBars:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def show(self, title: str, unit: str, done: int, total: int, *, shows_time_left: bool = False) -> None:
        """How far what `title` names has come; unit, total and shows_time_left as for ProgressBar."""
        if self._bar is None or title != self._title:
            self.close()
            self._bar = ProgressBar(self._screen, title, unit, shows_time_left=shows_time_left)
            self._title = title
        self._bar(done, total)

    def close(self) -> None:
        """Take the bar away; the next show() begins another."""
        if self._bar is not None:
            self._bar.close()
            self._bar = None


def _duration(seconds: float) -> str:
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"


def _percent(done: int, total: int) -> str:
    return f"{min(100, done * 100 // total)} %"
