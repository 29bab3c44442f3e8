"""A command in a terminal of its own: what stands on its screen, and keys typed into it.

Owns the pseudo terminal, the emulated screen and the waiting. Knows nothing of the program that runs in it.
"""

from __future__ import annotations

import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType

import pyte

_READ_BYTES = 65536
_POLL_S = 0.1
_STOP_GRACE_S = 2.0

# A new session has no terminal: the command takes the one that it was given, and then becomes itself.
_BECOME = """
import fcntl, os, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
try:
    os.execvp(sys.argv[1], sys.argv[1:])
except OSError as error:
    sys.exit(f"{sys.argv[1]}: {error.strerror}")
"""


class TerminalError(AssertionError):
    """The program did not do in time what was waited for; the message shows the screen."""


class Terminal:
    """Runs a command in a pseudo terminal and keeps its screen. A context manager: leaving ends the command."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        environment: Mapping[str, str] | None = None,
        folder: Path | None = None,
        columns: int = 100,
        lines: int = 30,
    ) -> None:
        self._screen = pyte.HistoryScreen(columns, lines, history=5000)
        self._stream = pyte.ByteStream(self._screen)
        self._master, slave = pty.openpty()
        self._is_closed = False
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        self._process = subprocess.Popen(
            [sys.executable, "-c", _BECOME, *command],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env={**(os.environ if environment is None else environment), "TERM": "xterm-256color"},
            cwd=folder,
            start_new_session=True,
        )
        os.close(slave)

    def __enter__(self) -> Terminal:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()
        if not self._is_closed:
            os.close(self._master)

    @property
    def text(self) -> str:
        """What stands on the screen now, without blanks at the ends of lines."""
        return "\n".join(line.rstrip() for line in self._screen.display)

    def send(self, text: str) -> None:
        """Types the text; "\\r" is Enter, "\\x1b" Escape."""
        os.write(self._master, text.encode())

    def wait_for(self, is_there: Callable[[str], bool], what: str, *, timeout_s: float) -> str:
        """Waits until the screen's text satisfies `is_there` and returns it; `what` names it in the error."""
        end_s = time.monotonic() + timeout_s
        while not is_there(self.text):
            if not self._read():
                status = self.wait(timeout_s=_STOP_GRACE_S)
                raise TerminalError(f"The program ended (status {status}) before {what}:\n{self.text}")
            if time.monotonic() > end_s:
                raise TerminalError(f"Waited {timeout_s:.0f} s for {what}; the screen shows:\n{self.text}")
        return self.text

    def close(self) -> None:
        """Closes the terminal under the program, as a window's cross does."""
        os.close(self._master)
        self._is_closed = True

    def signal(self, number: signal.Signals) -> None:
        """Sends a signal to the command."""
        os.kill(self._process.pid, number)

    def wait(self, *, timeout_s: float) -> int:
        """Waits until the command has ended and returns its exit status (128 + the signal that ended it)."""
        end_s = time.monotonic() + timeout_s
        while (status := self._process.poll()) is None:
            if time.monotonic() > end_s:
                raise TerminalError(f"The program still runs after {timeout_s:.0f} s; the screen shows:\n{self.text}")
            if self._is_closed:
                time.sleep(_POLL_S)
            else:
                self._read()
        return status if status >= 0 else 128 - status

    def _read(self) -> bool:
        """Takes what the program has written, waiting a moment for it; False once nothing will come any more."""
        if not select.select([self._master], [], [], _POLL_S)[0]:
            return True
        try:
            written = os.read(self._master, _READ_BYTES)
        except OSError:  # Linux says so when the last process has closed the terminal
            return False
        self._stream.feed(written)
        return bool(written)

    def _stop(self) -> None:
        """Ends the command and all that runs in its terminal."""
        for number in (signal.SIGHUP, signal.SIGKILL):
            if self._process.poll() is not None:
                return
            os.killpg(self._process.pid, number)
            end_s = time.monotonic() + _STOP_GRACE_S
            while self._process.poll() is None and time.monotonic() < end_s:
                if self._is_closed:
                    time.sleep(_POLL_S)
                else:
                    self._read()
