"""The tokens of a vocabulary by what they add to a text, and texts that must not appear in an answer.

Owns the search for tokens by their bytes, made when it is first needed.  Does not know samplers or grammars.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Callable, Sequence
from functools import cached_property

import numpy as np

TokenBytes = Callable[[int], bytes]


class TokenTexts:
    """token_bytes: what each of num_tokens tokens adds to a text; control tokens add nothing.  Any thread may ask."""

    def __init__(self, token_bytes: TokenBytes, *, num_tokens: int) -> None:
        self.token_bytes = token_bytes
        self.num_tokens = num_tokens
        self._holding: dict[bytes, np.ndarray] = {}
        self._lock = threading.Lock()

    def holding(self, text: bytes) -> np.ndarray:
        """int64 [n]: the tokens that hold the whole text."""
        with self._lock:
            found = self._holding.get(text)
            if found is None:
                ids = [token_id for token_id, piece in self._sorted if text in piece]
                found = self._holding[text] = np.array(sorted(ids), dtype=np.int64)
            return found

    def beginning(self, text: bytes) -> np.ndarray:
        """int64 [n]: the tokens that begin with the text."""
        with self._lock:
            start = bisect_left(self._sorted, text, key=_piece)
            ids: list[int] = []
            for token_id, piece in self._sorted[start:]:
                if not piece.startswith(text):
                    break
                ids.append(token_id)
            return np.array(ids, dtype=np.int64)

    @cached_property
    def _sorted(self) -> list[tuple[int, bytes]]:
        pieces = ((token_id, self.token_bytes(token_id)) for token_id in range(self.num_tokens))
        return sorted(((token_id, piece) for token_id, piece in pieces if piece), key=_piece)


class BannedStrings:
    """Forbids the tokens that would complete one of the strings: a mask of the sampler.

    What is forbidden depends on the answer so far alone: an answer may be rolled back and go on.
    """

    def __init__(self, strings: Sequence[str], texts: TokenTexts, *, num_prompt: int) -> None:
        self._strings = [text.encode("utf-8", "surrogateescape") for text in strings]
        self._texts = texts
        self._num_prompt = num_prompt
        self._reach = max(map(len, self._strings), default=1) - 1
        self._always = np.unique(np.concatenate([texts.holding(text) for text in self._strings]))

    def apply(self, row: np.ndarray, history: Sequence[int]) -> None:
        """Sets the logits of what must not follow to -inf.  history: prompt and answer so far."""
        row[self._always] = -np.inf
        tail = self._tail(history)
        for text in self._strings:
            for length in range(1, min(len(text), len(tail) + 1)):
                if tail.endswith(text[:length]):
                    row[self._texts.beginning(text[length:])] = -np.inf

    def would_complete(self, history: Sequence[int], more: bytes) -> bool:
        """Whether one of the strings would stand in the answer, were `more` to follow history."""
        text = self._tail(history) + more
        return any(string in text for string in self._strings)

    def is_under_way(self, history: Sequence[int]) -> bool:
        """Whether the answer ends with the beginning of one of the strings."""
        tail = self._tail(history)
        return any(
            tail.endswith(string[:length])
            for string in self._strings
            for length in range(1, min(len(string), len(tail) + 1))
        )

    def _tail(self, history: Sequence[int]) -> bytes:
        """As many of the answer's last bytes as a string could begin with."""
        tail = b""
        for place in range(len(history) - 1, self._num_prompt - 1, -1):
            if len(tail) >= self._reach:
                break
            tail = self._texts.token_bytes(history[place]) + tail
        return tail[-self._reach :] if self._reach else b""


def _piece(entry: tuple[int, bytes]) -> bytes:
    return entry[1]
