"""From the bytes of tokens to text that may be shown: incremental UTF-8 and stop texts.

Owns what is held back and when it is let go.  Does not know tokens, vocabularies or why a generation ends.

However the bytes are cut, the text is the same: a stop is the one whose last character comes first, and of those
that end together the longest.
"""

from __future__ import annotations

import codecs
from collections.abc import Sequence


class TextStream:
    """Bytes in, text out.  Text that could become a stop text is held back until it can't.

    Work for each push grows with what is pushed and with what is held back, never with the whole text.
    """

    def __init__(self, stops: Sequence[str] = ()) -> None:
        assert all(stops), "a stop text is not empty"
        self._stops = tuple(dict.fromkeys(stops))
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._held = ""
        self._pieces: list[str] = []
        self.stop_text: str | None = None

    @property
    def text(self) -> str:
        """Everything released so far."""
        if len(self._pieces) > 1:
            self._pieces = ["".join(self._pieces)]
        return self._pieces[0] if self._pieces else ""

    def push(self, data: bytes) -> str:
        """The text that these bytes release, perhaps none.  After a stop nothing more comes."""
        return self._release(self._decoder.decode(data)) if self.stop_text is None else ""

    def finish(self) -> str:
        """What was still held back, at the end of the answer; half a character becomes U+FFFD."""
        if self.stop_text is not None:
            return ""
        released = self._release(self._decoder.decode(b"", final=True))
        if self.stop_text is None:
            self._pieces.append(self._held)
            released += self._held
            self._held = ""
        return released

    def _release(self, new_text: str) -> str:
        if self._stops and new_text:
            new_text = self._without_stop(self._held + new_text)
        if new_text:
            self._pieces.append(new_text)
        return new_text

    def _without_stop(self, text: str) -> str:
        found = [(text.index(stop) + len(stop), -len(stop), stop) for stop in self._stops if stop in text]
        if found:
            end, _, stop = min(found)
            self.stop_text = stop
            self._held = ""
            return text[: end - len(stop)]
        num_held = self._possible_stop(text)
        self._held = text[len(text) - num_held :]
        return text[: len(text) - num_held]

    def _possible_stop(self, text: str) -> int:
        """How many characters at the end of the text could be the beginning of a stop."""
        longest = 0
        for stop in self._stops:
            for length in range(min(len(stop) - 1, len(text)), longest, -1):
                if text.endswith(stop[:length]):
                    longest = length
                    break
        return longest
