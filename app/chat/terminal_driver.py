"""The terminal: bytes to keys and pastes, its size, and its end.

Owns what Textual's driver gets wrong: the screen would be drawn on stderr, which may be a file, bytes that are no
UTF-8 would end the chat, a size inherited from another terminal would count for more than this one's own, what lies
in the buffers of a slow network would be taken for drawn, keys that come before anything takes them would be lost, a
chat whose terminal was closed, or that was stopped and continued from outside, would get a second thread that reads
keys and never ends, or wait for itself for ever, and thousands of keys at once would stand between a request to end
and the end. Knows nothing of what keys do.
"""

from __future__ import annotations

import asyncio
import os
import selectors
import sys
import time
from codecs import getincrementaldecoder
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, TextIO, cast

from textual._parser import ParseError
from textual.app import ScreenStackError
from textual.drivers.linux_driver import LinuxDriver
from textual.message import Message

from app.chat.closed_terminal import has_hung_up
from app.chat.plain_paste import PAUSE_S, PlainPaste
from app.chat.plain_text import one_line
from app.chat.terminal_backlog import Backlog
from app.chat.terminal_keys import ANSWER, QUESTION, KeyParser, PasteGuard

_NAME = "Tandem"
# https://invisible-island.net/xterm/ctlseqs/ctlseqs.html (window manipulation, 22 and 23)
_KEEP_TITLE, _TITLE_BEFORE = "\x1b[22;2t", "\x1b[23;2t"
_READ_BYTES = 4096
_LEAVE_TIMEOUT_S = 3.0
_TICK_S = 0.1
_SHORT_TICK_S = 0.02
_START_TICK_S = 0.01
_LONGEST_START_S = 3.0
# So many keys may wait to be taken; more are left with the terminal meanwhile.
_MOST_KEYS_AHEAD = 32


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

    _is_continued = False

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._title = ""
        self._is_titled = False
        self._file = cast("TextIO", _Screen(sys.__stdout__ or self._file))
        self._backlog = Backlog()
        self._posted: Future[bool] | None = None

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
        super().write(QUESTION)

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

    def _sigtstp_application(self, *_: object) -> None:
        self._soon(super()._sigtstp_application)

    def _sigcont_application(self, *_: object) -> None:
        if not self._is_continued:
            self._is_continued = True
            self._soon(self._continue)

    def _continue(self) -> None:
        """The program was continued, once or several times. When it is leaving, there is nothing to be taken again."""
        self._is_continued = False
        if self._must_signal_resume or (self._key_thread is not None and self._key_thread.is_alive()):
            super()._sigcont_application()

    def _soon(self, work: Callable[[], None]) -> None:
        """Does it on the screen's loop: a signal may come while the queue of what is written is locked, or while an
        earlier one waits for the thread that reads keys, and its handler would wait in there for ever."""
        with suppress(RuntimeError):  # The chat has been left.
            self._loop.call_soon_threadsafe(work)

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
        looked_at_s = time.monotonic()
        self._wait_for_the_input()
        guard = PasteGuard()
        plain = PlainPaste(ANSWER)
        parser = KeyParser(self._debug, when_answered=lambda: self._backlog.note_answered())
        decode = getincrementaldecoder("utf-8")(errors="replace").decode
        with selectors.SelectSelector() as selector:
            selector.register(self.fileno, selectors.EVENT_READ)
            while not self.exit_event.is_set():
                tick_s = PAUSE_S if plain.is_holding else _SHORT_TICK_S if parser.is_waiting else _TICK_S
                if selector.select(tick_s):
                    typed = self._read()
                    waited_s, looked_at_s = time.monotonic() - looked_at_s, time.monotonic()
                    if not typed:
                        self._send(parser.feed(plain.end()) if plain.is_holding else ())
                        self._app.call_later(getattr(self._app, "leave_soon", self._app.action_quit))
                        return
                    is_longer = guard.is_inside or parser.is_waiting
                    text = guard.feed(decode(typed))
                    if not is_longer and not guard.is_inside:
                        text = plain.feed(text, waited_s)
                    elif plain.is_holding:
                        text = plain.end() + text
                else:
                    looked_at_s = time.monotonic()
                    text = plain.end() if plain.is_holding else ""
                if text:
                    self._send(parser.feed(text))
                self._send(parser.tick())
        if plain.is_holding:  # Whoever reads next knows nothing of it.
            self._send(parser.feed(plain.end()))
        try:
            list(parser.feed(""))
        except ParseError:
            pass

    def send_message(self, message: Message) -> None:
        """Hands a key or the like to the program; called on the thread that reads."""
        self._posted = asyncio.run_coroutine_threadsafe(self._app._post_message(message), loop=self._loop)

    def _send(self, messages: Iterable[Message]) -> None:
        """Hands all of them over as fast as they are taken; nothing more once there is no terminal to have sent it."""
        for number, message in enumerate(messages, 1):
            self.process_message(message)
            while number % _MOST_KEYS_AHEAD == 0 and self._is_ahead:
                if self.exit_event.is_set() or has_hung_up(self.fileno):
                    return
                time.sleep(_START_TICK_S / 2)

    @property
    def _is_ahead(self) -> bool:
        """Whether more keys wait than should."""
        if self._posted is not None and not self._posted.done():
            return True
        try:
            takers = (self._app, self._app.screen, self._app.focused)
        except ScreenStackError:
            return False
        return max(taker.message_queue_size for taker in takers if taker is not None) > _MOST_KEYS_AHEAD

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
