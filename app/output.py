"""What reaches the person: text on stdout and nothing else there; notes, errors and progress on stderr.

Owns the streams.  Does not know what is said.  Control characters are shown, not sent, so that no answer, file or
error can steer a terminal; the only one that Tandem writes itself is a carriage return, where stderr is a terminal.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from typing import TextIO

from app.errors import AppError, OutputClosedError, Report
from app.progress import ProgressBar

_USUAL_COLUMNS = 80

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
        """Write to stdout at once.  Raises OutputClosedError when nobody reads, AppError where it can't be written."""
        with self._lock:
            self._clear_line()
            self.require_reader()
            assert self._stdout is not None
            try:
                self._stdout.write(shown(text))
                self._stdout.flush()
            except (BrokenPipeError, ValueError) as error:
                raise OutputClosedError from error
            except OSError as error:
                raise AppError(f"Standard output can't be written: {error.strerror or error}.") from error

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
