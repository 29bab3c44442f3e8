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
import termios
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType

import pyte

_READ_BYTES = 65536
_POLL_S = 0.1
_STOP_GRACE_S = 2.0


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
        self._status: int | None = None
        self._process_id, self._master = pty.fork()
        if self._process_id == 0:
            self._become(command, environment, folder, columns, lines)
        self._set_size(self._master, columns, lines)

    @staticmethod
    def _become(
        command: Sequence[str], environment: Mapping[str, str] | None, folder: Path | None, columns: int, lines: int
    ) -> None:
        """In the child: turns into the command. Never returns."""
        try:
            Terminal._set_size(0, columns, lines)
            if folder is not None:
                os.chdir(folder)
            os.execvpe(command[0], list(command), {**(environment or os.environ), "TERM": "xterm-256color"})
        except OSError as error:
            os.write(2, f"{command[0]}: {error}\r\n".encode())
        finally:
            os._exit(127)

    @staticmethod
    def _set_size(descriptor: int, columns: int, lines: int) -> None:
        fcntl.ioctl(descriptor, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def __enter__(self) -> Terminal:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()
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

    def wait(self, *, timeout_s: float) -> int:
        """Waits until the command has ended and returns its exit status (128 + the signal that ended it)."""
        end_s = time.monotonic() + timeout_s
        while self._status is None:
            self._read()
            self._collect()
            if self._status is None and time.monotonic() > end_s:
                raise TerminalError(f"The program still runs after {timeout_s:.0f} s; the screen shows:\n{self.text}")
        return self._status

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

    def _collect(self) -> None:
        if self._status is None:
            process_id, status = os.waitpid(self._process_id, os.WNOHANG)
            if process_id:
                code = os.waitstatus_to_exitcode(status)
                self._status = code if code >= 0 else 128 - code

    def _stop(self) -> None:
        """Ends the command and all that runs in its terminal."""
        for number in (signal.SIGHUP, signal.SIGKILL):
            self._collect()
            if self._status is not None:
                return
            os.killpg(self._process_id, number)
            end_s = time.monotonic() + _STOP_GRACE_S
            while self._status is None and time.monotonic() < end_s:
                self._read()
                self._collect()
