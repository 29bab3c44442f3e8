"""Pastes of a terminal that does not mark them: text that comes quicker than a person types.

Owns telling it from typed keys, and marking it as a bracketed paste. Reads nothing itself, and knows no clock: it is
told how long text may have waited, and when a pause came.
"""

from __future__ import annotations

import re

BEGIN = "\x1b[200~"
END = "\x1b[201~"
# What comes within this time of a text came with it.
PAUSE_S = 0.02
# An Enter alone that comes this much behind a text was pressed; inside a paste there is no such gap.
_PRESSED_S = 0.004
_FEW_CHARS = 3
_TYPED_CHARS_PER_S = 20.0
_LONGEST_WAIT_S = 10.0
_LONG_LINE_CHARS = 256
_MOST_HELD_CHARS = 4 * 2**20
# Keys that are no text. An escape may begin a longer sequence: nothing behind it is looked at.
_KEY = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
_NEWLINE_INSIDE = re.compile(r"[^\r\n][\r\n]+[^\r\n]")


class PlainPaste:
    """Holds text back that was not typed until a pause; with a newline inside it is a paste, and so is a long line.

    A newline at its end alone is the Enter key, and what a person can have typed meanwhile stays keys.
    """

    def __init__(self, answer: str) -> None:
        """`answer`: what the terminal writes between any other input, and what never ends a paste."""
        self._answer = answer
        self._held = ""
        self._cut = ""  # maybe the beginning of an answer
        self._is_enter_pressed = False

    @property
    def is_holding(self) -> bool:
        """Whether something waits for more, or for a pause."""
        return bool(self._held or self._cut)

    def feed(self, text: str, waited_s: float) -> str:
        """What the parser gets of a text now; in the `waited_s` before it was read it may have come bit by bit."""
        text, self._cut = self._cut + text, ""
        passed = self._answer * text.count(self._answer)
        text = text.replace(self._answer, "")
        if self._held and text == "\r" and waited_s > _PRESSED_S:
            self._is_enter_pressed = True
            return passed + self.end()
        most_typed = _FEW_CHARS + _TYPED_CHARS_PER_S * min(waited_s, _LONGEST_WAIT_S)
        cut = self._beginning_of_answer(text) if self._held or len(text) > most_typed else ""
        text = text.removesuffix(cut)
        while text:
            key = _KEY.search(text)
            plain, text = (text, "") if key is None else (text[: key.start()], text[key.start() :])
            if self._held or len(plain) > most_typed:
                self._held += plain
            else:
                passed += plain
            if text:
                rest = len(text) if text[0] == "\x1b" else 1
                passed += self.end() + text[:rest]
                text = text[rest:]
        if len(self._held) > _MOST_HELD_CHARS:
            passed += self.end()
        self._cut = cut
        return passed

    def _beginning_of_answer(self, text: str) -> str:
        """The longest end of the text that an answer begins with."""
        sizes = range(len(self._answer) - 1, 0, -1)
        return next((self._answer[:size] for size in sizes if text.endswith(self._answer[:size])), "")

    def end(self) -> str:
        """What the parser gets of what was held, since a pause came or another key."""
        held, self._held = self._held, ""
        behind, self._cut = self._cut, ""
        if self._is_enter_pressed:
            self._is_enter_pressed, behind = False, "\r" + behind
        if _NEWLINE_INSIDE.search(held):
            return BEGIN + held + END + behind
        line = held.rstrip("\r\n")
        if len(line) > _LONG_LINE_CHARS:
            return BEGIN + line + END + held[len(line) :] + behind
        return held + behind
