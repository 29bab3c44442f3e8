"""What reaches the person: text on stdout and nothing else there; notes, errors and progress on stderr.

Owns the streams.  Does not know what is said.  Control characters are shown, not sent, so that no answer, file or
error can steer a terminal; the only one that Tandem writes itself is a carriage return, where stderr is a terminal.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import TextIO

from app.errors import OutputClosedError, Report

_BAR_WIDTH = 24
_LEAST_BAR_WIDTH = 6
_USUAL_COLUMNS = 80
_REDRAW_S = 0.1
_SHOW_AFTER_S = 0.3
_FIRST_LINE_AFTER_S = 2.0
_NEXT_LINE_AFTER_S = 10.0

# C0 and C1 controls except tab and line ends; ESC becomes the sign for ESC.
_CONTROLS = {code: chr(0x2400 + code) for code in range(0x20) if chr(code) not in "\t\n\r"}
_CONTROLS |= {0x7F: "\u2421"} | {code: f"\\x{code:02x}" for code in range(0x80, 0xA0)}


def shown(text: str) -> str:
    """The text with control characters (tab and line ends aside) made visible."""
    return text.translate(_CONTROLS)


class Console:
    """The two output streams of a command.  A stream that was closed by the caller is None, as in sys."""

    def __init__(self, stdout: TextIO | None, stderr: TextIO | None) -> None:
        self._stdout = stdout
        self._stderr = stderr
        self._lock = threading.RLock()
        self._line_width = 0  # of the progress line that stands on the terminal now

    @property
    def is_terminal(self) -> bool:
        """Whether stdout is a terminal."""
        return _is_terminal(self._stdout)

    def require_reader(self) -> None:
        """Raise OutputClosedError now when there is no stdout, before long work is done for nobody."""
        if self._stdout is None:
            raise OutputClosedError

    def text(self, text: str) -> None:
        """Write to stdout at once.  Raises OutputClosedError when nobody reads."""
        with self._lock:
            self._clear_line()
            self.require_reader()
            assert self._stdout is not None
            try:
                self._stdout.write(shown(text))
                self._stdout.flush()
            except (BrokenPipeError, ValueError) as error:
                raise OutputClosedError from error

    def json(self, value: object) -> None:
        """One JSON value on one line of stdout, control characters escaped as JSON has them."""
        self.text(json.dumps(value, ensure_ascii=False) + "\n")

    def note(self, text: str) -> None:
        """A line on stderr."""
        with self._lock:
            self._clear_line()
            self._say(f"{shown(text)}\n")

    def report(self, report: Report) -> None:
        """Why the command failed, and what to do."""
        self.note(f"tandem: {report.message}")
        if report.hint is not None:
            self.note(f"hint: {report.hint}")

    def progress(self, title: str, unit: str = "", *, shows_time_left: bool = False) -> ProgressBar:
        """A bar on stderr for something that takes long.  unit: "bytes", or what is counted, or nothing."""
        return ProgressBar(self, title, unit, shows_time_left=shows_time_left)

    def progress_line(self, text: str) -> None:
        """Draw the text over the progress line on the terminal that stderr is."""
        with self._lock:
            text = shown(text)[: self.columns() - 1]
            self._say(f"\r{text.ljust(self._line_width)}")
            self._line_width = len(text)

    def clear_progress_line(self) -> None:
        """Take the progress line away."""
        with self._lock:
            self._clear_line()

    @property
    def is_stderr_terminal(self) -> bool:
        """Whether a progress line can be redrawn."""
        return _is_terminal(self._stderr)

    def columns(self) -> int:
        """How wide the terminal is that stderr is."""
        try:
            columns = os.get_terminal_size(self._stderr.fileno() if self._stderr else 2).columns
        except (OSError, ValueError):
            columns = 0
        return columns or _USUAL_COLUMNS

    def _clear_line(self) -> None:
        if self._line_width:
            self._say(f"\r{' ' * self._line_width}\r")
            self._line_width = 0

    def _say(self, text: str) -> None:
        if self._stderr is None:
            return
        try:
            self._stderr.write(text)
            self._stderr.flush()
        except (OSError, ValueError):
            self._stderr = None  # nobody listens: the work goes on


class ProgressBar:
    """Call it with (done, total); total 0: not known yet.  Use it as a context manager, so that it ends.

    On a terminal it is redrawn in place and leaves nothing behind; elsewhere something that takes long says a line now
    and then.  May be called from any thread.
    """

    def __init__(
        self,
        console: Console,
        title: str,
        unit: str,
        *,
        shows_time_left: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """shows_time_left: as if what is left went as fast as what was done since the bar began."""
        self._shows_time_left = shows_time_left
        self._console = console
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
            if self._console.is_stderr_terminal:
                self._console.progress_line(self._bar(done, total, now_s))
            else:
                self._console.note(self._line(done, total, now_s))

    def close(self) -> None:
        """Take the bar away; later calls do nothing."""
        with self._lock:
            self._is_closed = True
            self._console.clear_progress_line()

    def _is_due(self, now_s: float, *, is_last: bool) -> bool:
        elapsed_s = now_s - self._began_s
        if self._console.is_stderr_terminal:
            return elapsed_s >= _SHOW_AFTER_S and (is_last or now_s - self._drawn_s >= _REDRAW_S)
        return not is_last and elapsed_s >= _FIRST_LINE_AFTER_S and now_s - self._drawn_s >= _NEXT_LINE_AFTER_S

    def _bar(self, done: int, total: int, now_s: float) -> str:
        rate = self._rate(done, now_s)
        if total <= 0:
            return f"{self._title}  {self._amount(done)}{rate}"
        figures = f"{_percent(done, total)}  {self._part(done, total)}{rate}{self._left(done, total, now_s)}"
        room = self._console.columns() - len(self._title) - len(figures) - len("  [] ") - 1
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


def console_of_process() -> Console:
    """The console of this process: UTF-8 unless a terminal wants something else, and no character that fails."""
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is None:
            continue
        if _is_terminal(stream):
            reconfigure(errors="replace")
        else:
            reconfigure(encoding="utf-8", errors="replace")
    return Console(sys.stdout, sys.stderr)


def discard_output() -> None:
    """After a broken pipe: what is still buffered goes nowhere, without a word at exit."""
    if sys.stdout is None:
        return
    try:
        descriptor = os.open(os.devnull, os.O_WRONLY)
        os.dup2(descriptor, sys.stdout.fileno())
        os.close(descriptor)
    except (OSError, ValueError):
        pass  # not a real stream: nothing is buffered there


def _is_terminal(stream: TextIO | None) -> bool:
    try:
        return stream is not None and stream.isatty()
    except ValueError:
        return False  # closed


def _duration(seconds: float) -> str:
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"


def _percent(done: int, total: int) -> str:
    return f"{min(100, done * 100 // total)} %"
