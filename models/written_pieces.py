"""Vocabularies whose tokens are pieces of text: blanks are written as U+2581, and tokens for single bytes as `<0x0A>`.

Owns that way of writing.  Does not know how text is cut into pieces, nor special tokens.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from models.errors import VocabularyError
from models.special_tokens import BYTE_TEXT, TokenKind

WRITTEN_BLANK = "\u2581"


class WrittenPieces:
    """What single tokens stand for, and the tokens of single bytes: what encoders of such vocabularies share.

    Raises VocabularyError where neither byte tokens nor an unknown token can write down what the vocabulary lacks.
    """

    missing_bytes = b""

    def __init__(self, texts: Sequence[str], kinds: np.ndarray) -> None:
        """Both by id."""
        self._texts = texts
        self._byte_ids: dict[int, int] = {}
        self._bytes: dict[int, int] = {}
        for token_id in np.flatnonzero(kinds == TokenKind.BYTE).tolist():
            if found := BYTE_TEXT.fullmatch(texts[token_id]):
                byte = int(found[1], 16)
                self._byte_ids.setdefault(byte, token_id)
                self._bytes[token_id] = byte
        self._has_all_bytes = len(self._byte_ids) == 256
        unknown = np.flatnonzero(kinds == TokenKind.UNKNOWN)
        self._unknown_id = int(unknown[0]) if len(unknown) else None
        if not self._has_all_bytes and self._unknown_id is None:
            raise VocabularyError(
                f"The vocabulary has {len(self._byte_ids)} of the 256 byte tokens and no unknown token, so that text "
                "with a character it lacks can't be written down: the file is damaged or was not made by a current "
                "converter."
            )

    def byte_id(self, byte: int) -> int:
        """The token of one byte; the unknown token where the vocabulary has none."""
        token_id = self._byte_ids.get(byte, self._unknown_id)
        assert token_id is not None, "the constructor sees to that"
        return token_id

    def token_bytes(self, token_id: int) -> bytes:
        """What a token that was learned (not a special one) stands for."""
        if (byte := self._bytes.get(token_id)) is not None:
            return bytes((byte,))
        return self._texts[token_id].replace(WRITTEN_BLANK, " ").encode("utf-8", "surrogateescape")
