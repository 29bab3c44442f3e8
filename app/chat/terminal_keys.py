"""Characters from the terminal to keys and pastes.

Owns what Textual's parser gets wrong: Alt+B and Alt+F would be taken for Ctrl and an arrow, Alt and a letter that is
held down for text, and what follows an escape inside a paste for keys (Enter sends, Ctrl+Q leaves). Knows nothing of
what keys do.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable

from textual import events
from textual._xterm_parser import XTermParser
from textual.keys import Keys
from textual.message import Message

from app.chat.plain_paste import BEGIN, END

_ESCAPE_PICTURE = "\u241b"
# What a terminal answers when it is asked for its state: it has taken all that was written before the question.
QUESTION = "\x1b[5n"
ANSWER = "\x1b[0n"
# What comes within this time of an escape came with it.
_TOGETHER_S = 0.02
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
        if sequence == ANSWER:
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
        self._seen = ""  # outside a paste: passed on already, and maybe the beginning of BEGIN
        self._held = ""  # inside a paste: maybe the beginning of END

    @property
    def is_inside(self) -> bool:
        """Whether the end of a paste is still to come."""
        return self._is_inside

    def feed(self, piece: str) -> str:
        """What the parser gets for this piece."""
        passed = ""
        while piece:
            if self._is_inside:
                text, self._held = self._held + piece, ""
                pasted, end, piece = text.partition(END)
                if end:
                    self._is_inside = False
                else:
                    self._held = _beginning_at_end(pasted, END)
                    pasted = pasted.removesuffix(self._held)
                passed += pasted.replace("\x1b", _ESCAPE_PICTURE) + end
            else:
                before, begin, rest = (self._seen + piece).partition(BEGIN)
                if begin:
                    passed += (before + begin)[len(self._seen) :]
                    self._is_inside, self._seen, piece = True, "", rest
                else:
                    self._seen = _beginning_at_end(before, BEGIN)
                    passed, piece = passed + piece, ""
        return passed


def _beginning_at_end(text: str, mark: str) -> str:
    """The longest end of the text that a mark begins with."""
    return next((mark[:size] for size in range(len(mark) - 1, 0, -1) if text.endswith(mark[:size])), "")
