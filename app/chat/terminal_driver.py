"""What comes from the terminal: bytes to keys and pastes.

Owns three things that Textual's driver gets wrong: what follows an escape inside a paste would be taken for keys
(Enter sends, Ctrl+Q leaves), bytes that are no UTF-8 would end the chat, and a size that the environment inherited
from another terminal would count for more than this terminal's own. Knows nothing of what keys do.
"""

from __future__ import annotations

import os
import selectors
from codecs import getincrementaldecoder

from textual._parser import ParseError
from textual._xterm_parser import XTermParser
from textual.drivers.linux_driver import LinuxDriver

_BEGIN = "\x1b[200~"
_END = "\x1b[201~"
_ESCAPE_PICTURE = "\u241b"
_READ_BYTES = 4096
_TICK_S = 0.1


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


class TerminalDriver(LinuxDriver):
    """Textual's driver with a guard before its parser, one U+FFFD for bytes that are no UTF-8, and the true size."""

    def _get_terminal_size(self) -> tuple[int, int]:
        """Columns and lines as the terminal says them; COLUMNS and LINES only where it doesn't."""
        try:
            columns, lines = os.get_terminal_size(self.fileno)
        except (OSError, ValueError):
            columns = lines = 0
        return (columns, lines) if columns and lines else super()._get_terminal_size()

    def run_input_thread(self) -> None:
        """Reads until the driver is told to stop."""
        parser, guard = XTermParser(self._debug), PasteGuard()
        decode = getincrementaldecoder("utf-8")(errors="replace").decode
        with selectors.SelectSelector() as selector:
            selector.register(self.fileno, selectors.EVENT_READ)
            while not self.exit_event.is_set():
                if selector.select(_TICK_S) and (text := guard.feed(decode(os.read(self.fileno, _READ_BYTES)))):
                    for event in parser.feed(text):
                        self.process_message(event)
                for event in parser.tick():
                    self.process_message(event)
        try:
            list(parser.feed(""))
        except ParseError:
            pass
