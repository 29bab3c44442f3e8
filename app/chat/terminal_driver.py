"""The terminal: bytes to keys and pastes, its size, and its end.

Owns what Textual's driver gets wrong: Alt+B and Alt+F would be taken for Ctrl and an arrow, Alt and a letter that is
held down for text, the screen would be drawn on stderr, which may be a file, what follows an escape inside a paste
would be taken for keys (Enter sends, Ctrl+Q leaves), bytes that are no UTF-8 would end the chat, a size that the
environment inherited from another terminal would count for more than this terminal's own, what lies in the buffers of
a slow network would be taken for drawn, keys that come before anything takes them would be lost, and a chat whose
terminal was closed, or that was stopped and continued from outside, would get a second thread that reads keys and never
ends. Knows nothing of what keys do.
"""

from __future__ import annotations

import os
import selectors
import sys
import time
from codecs import getincrementaldecoder
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, TextIO, cast

from textual import events
from textual._parser import ParseError
from textual._xterm_parser import XTermParser
from textual.app import ScreenStackError
from textual.drivers.linux_driver import LinuxDriver
from textual.keys import Keys
from textual.message import Message

from app.chat.plain_text import one_line
from app.chat.terminal_backlog import Backlog

_BEGIN = "\x1b[200~"
_END = "\x1b[201~"
_ESCAPE_PICTURE = "\u241b"
_NAME = "Tandem"
# https://invisible-island.net/xterm/ctlseqs/ctlseqs.html (window manipulation, 22 and 23)
_KEEP_TITLE, _TITLE_BEFORE = "\x1b[22;2t", "\x1b[23;2t"
_READ_BYTES = 4096
# What a terminal answers when it is asked for its state: it has taken all that was written before the question.
_QUESTION = "\x1b[5n"
_ANSWER = "\x1b[0n"
_LEAVE_TIMEOUT_S = 3.0
_TICK_S = 0.1
_SHORT_TICK_S = 0.02
# What comes within this time of an escape came with it.
_TOGETHER_S = 0.02
_START_TICK_S = 0.01
_LONGEST_START_S = 3.0
# On macOS, terminals send these for Option and an arrow, and Option+B writes a letter.
_ARROWS = ("\x1bb", "\x1bf") if sys.platform == "darwin" else ()


class KeyParser(XTermParser):
    """Textual's parser, which knows at once that an escape and a letter or digit are Alt and that key.

    A terminal sends both in one go, also over a network. A letter that comes a moment behind an escape was typed after
    the Escape key: with Textual's tenth of a second it would edit or remove a turn by accident.
    """

    def __init__(
        self,
        debug: bool = False,
        *,
        when_answered: Callable[[], None] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`when_answered` is called when the terminal answers a question for its state."""
        super().__init__(debug)
        self._when_answered = when_answered
        self._clock = clock
        self._escape_at_s: float | None = None  # when an escape came with nothing behind it yet

    @property
    def is_waiting(self) -> bool:
        """Whether what came may be the beginning of something longer."""
        return self._timeout_time is not None

    def feed(self, data: str) -> Iterable[Message]:
        """The events that this text makes."""
        escape_at_s, self._escape_at_s = self._escape_at_s, self._clock() if data.endswith("\x1b") else None
        is_letter = data[:1].isalnum() and data[0] != "O"  # with O begin the sequences of some keys
        if escape_at_s is not None and is_letter and self._clock() - escape_at_s > _TOGETHER_S and self.is_waiting:
            self._timeout_time = 0.0
            yield from self.tick()
        yield from super().feed(data)

    def _sequence_to_key_events(self, sequence: str, alt: bool = False) -> Iterable[events.Key]:
        if sequence == _ANSWER:
            if self._when_answered is not None:
                self._when_answered()
            return (events.Key(Keys.Ignore, sequence),)
        last = sequence[1:]
        is_alt = len(sequence) == 2 and sequence[0] == "\x1b" and last.isascii() and (last.islower() or last.isdigit())
        if is_alt and sequence not in _ARROWS:
            return (events.Key(f"alt+{last}", None),)
        return super()._sequence_to_key_events(sequence, alt)


class PasteGuard:
    """Makes every escape character inside a bracketed paste visible; what comes in pieces may be cut anywhere."""

    def __init__(self) -> None:
        self._is_inside = False
        self._seen = ""  # outside a paste: passed on already, and maybe the beginning of _BEGIN
        self._held = ""  # inside a paste: maybe the beginning of _END

    def feed(self, piece: str) -> str:
        """What the parser gets for this piece."""
        passed = ""
        while piece:
            if self._is_inside:
                text, self._held = self._held + piece, ""
                pasted, end, piece = text.partition(_END)
                if end:
                    self._is_inside = False
                else:
                    self._held = _beginning_at_end(pasted, _END)
                    pasted = pasted.removesuffix(self._held)
                passed += pasted.replace("\x1b", _ESCAPE_PICTURE) + end
            else:
                before, begin, rest = (self._seen + piece).partition(_BEGIN)
                if begin:
                    passed += (before + begin)[len(self._seen) :]
                    self._is_inside, self._seen, piece = True, "", rest
                else:
                    self._seen = _beginning_at_end(before, _BEGIN)
                    passed, piece = passed + piece, ""
        return passed


def _beginning_at_end(text: str, mark: str) -> str:
    """The longest end of the text that a mark begins with."""
    return next((mark[:size] for size in range(len(mark) - 1, 0, -1) if text.endswith(mark[:size])), "")


class _Screen:
    """What is written to the terminal; nothing once it is gone, for then nobody reads."""

    def __init__(self, file: TextIO) -> None:
        self._file = file
        self.fileno = file.fileno
        self.is_writing = False

    def write(self, text: str) -> None:
        self.is_writing = True
        with suppress(OSError):
            self._file.write(text)

    def flush(self) -> None:
        with suppress(OSError):
            self._file.flush()
        self.is_writing = False

    def let_go(self) -> None:
        """Leaves nothing to be written: Python writes what is left at its end, and fails where nobody takes it."""
        try:
            self._file.flush()
        except OSError:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self._file.fileno())
            os.close(nowhere)


class TerminalDriver(LinuxDriver):
    """Textual's driver, put right."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._title = ""
        self._is_titled = False
        self._file = cast("TextIO", _Screen(sys.__stdout__ or self._file))
        self._backlog = Backlog()

    def show_title(self, title: str) -> None:
        """Has the terminal show the title of its window; the one before comes back at the end. Empty: none."""
        self._title = one_line(title)
        if self._title and not self._is_titled:
            self._is_titled = True
            self.write(_KEEP_TITLE)
        if self._is_titled:
            self.write(f"\x1b]2;{self._title or _NAME}\x07")

    def stop_application_mode(self) -> None:
        """Gives the terminal back as it was."""
        if self._is_titled:
            self._is_titled = False
            self.write(_TITLE_BEFORE)
        super().stop_application_mode()

    @property
    def is_behind(self) -> bool:
        """Whether the terminal has not taken yet what was drawn last; whoever draws on has to wait for it then."""
        writer = self._writer_thread
        if writer is None or not writer.is_alive():
            return False
        is_writing = isinstance(self._file, _Screen) and self._file.is_writing
        return not writer._queue.empty() or is_writing or self._backlog.is_long

    def write(self, data: str) -> None:
        """Writes to the terminal, soon."""
        self._backlog.note_written(len(data))
        super().write(data)

    def flush(self) -> None:
        """Textual calls this behind each drawing: asks how far the terminal has come."""
        if self._backlog.does_answer:
            self._ask()
        super().flush()

    def _ask(self) -> None:
        self._backlog.note_asked()
        super().write(_QUESTION)

    def start_application_mode(self) -> None:
        """Takes the terminal."""
        super().start_application_mode()
        if self._writer_thread is not None:
            self._backlog = Backlog()
            self._ask()
        if self._title:
            self.show_title(self._title)

    def disable_input(self) -> None:
        """Reads no more keys. First come the answers that are under way, or the shell would take them for typed."""
        end_s = time.monotonic() + _LEAVE_TIMEOUT_S
        reader = self._key_thread
        while reader is not None and reader.is_alive() and self._backlog.is_waiting and time.monotonic() < end_s:
            time.sleep(_TICK_S / 10)
        self._backlog.does_answer = False  # Nobody would read what the terminal answers from here on.
        super().disable_input()

    def close(self) -> None:
        """Ends the writing."""
        super().close()
        if isinstance(self._file, _Screen):
            self._file.let_go()

    def _get_terminal_size(self) -> tuple[int, int]:
        """Columns and lines as the terminal says them; COLUMNS and LINES only where it doesn't."""
        try:
            columns, lines = os.get_terminal_size(self.fileno)
        except (OSError, ValueError):
            columns = lines = 0
        return (columns, lines) if columns and lines else super()._get_terminal_size()

    def _sigcont_application(self, *_: object) -> None:
        """Textual's handler of SIGCONT. A second one may come while the first waits for the thread that reads keys, and
        would wait in it for ever: so it is the screen's loop that takes the terminal again."""
        if self._auto_restart:
            with suppress(RuntimeError):  # The loop has ended.
                self._loop.call_soon_threadsafe(self.resume_application_mode)

    def resume_application_mode(self) -> None:
        """Takes the terminal again after a stop: after Ctrl+Z, and where the program was stopped without being asked.

        A terminal that is closed continues the program too: then its input ends at once.
        """
        before = self.attrs_before
        reader = self._key_thread
        is_unasked = reader is not None and reader.is_alive()
        if reader is not None and is_unasked:  # what is typed meanwhile stays to be read
            self.exit_event.set()
            reader.join()
            self.exit_event.clear()
            self.close()
        super().resume_application_mode()
        if is_unasked:
            self.attrs_before = before

    def run_input_thread(self) -> None:
        """Reads until the driver is told to stop, or the terminal is closed, which ends the chat."""
        self._wait_for_the_input()
        guard = PasteGuard()
        parser = KeyParser(self._debug, when_answered=lambda: self._backlog.note_answered())
        decode = getincrementaldecoder("utf-8")(errors="replace").decode
        with selectors.SelectSelector() as selector:
            selector.register(self.fileno, selectors.EVENT_READ)
            while not self.exit_event.is_set():
                if selector.select(_SHORT_TICK_S if parser.is_waiting else _TICK_S):
                    typed = self._read()
                    if not typed:
                        self._app.call_later(self._app.action_quit)
                        return
                    if text := guard.feed(decode(typed)):
                        for event in parser.feed(text):
                            self.process_message(event)
                for event in parser.tick():
                    self.process_message(event)
        try:
            list(parser.feed(""))
        except ParseError:
            pass

    def _wait_for_the_input(self) -> None:
        """Leaves what is typed while the chat starts with the terminal until something on the screen takes keys."""
        end_s = time.monotonic() + _LONGEST_START_S
        while not self.exit_event.is_set() and time.monotonic() < end_s and not self._takes_keys():
            self.exit_event.wait(_START_TICK_S)

    def _takes_keys(self) -> bool:
        try:
            return self._app.focused is not None
        except ScreenStackError:
            return False

    def _read(self) -> bytes:
        """What was typed; empty when the terminal is gone."""
        try:
            return os.read(self.fileno, _READ_BYTES)
        except OSError:
            return b""
