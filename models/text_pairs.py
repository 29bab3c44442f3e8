"""Byte-pair vocabularies over text: merging begins with characters, and those without a token become byte tokens.

Owns the blank written as U+2581 and the tokens for single bytes (`<0x0A>`).  Does not know special tokens (the text
that comes here is plain) or files.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import numpy as np

from models.byte_pair import MergingMachine
from models.errors import VocabularyError
from models.pretokenizers import PreTokenizer
from models.sentence_pieces import WRITTEN_BLANK
from models.special_tokens import BYTE_TEXT, TokenKind

_UNKNOWN = "\x01unknown"  # no text leads to it: its first character is a byte token, or unknown itself


class TextPairEncoder:
    """Plain text to ids and ids to bytes.

    A vocabulary without byte tokens gives the unknown token for what it lacks.  Raises VocabularyError when it has no
    such token either, or when the merges are no merges.
    """

    missing_bytes = b""

    def __init__(
        self,
        *,
        texts: Sequence[str],
        merges: Sequence[str],
        kinds: np.ndarray,
        rule: PreTokenizer,
        specials: Collection[int],
    ) -> None:
        """texts, kinds: by id.  merges: 'left right', the first one first.  specials: ids plain text never becomes."""
        self._texts = texts
        self._byte_ids: dict[int, int] = {}
        self._bytes: dict[int, int] = {}
        for token_id in np.flatnonzero(kinds == TokenKind.BYTE).tolist():
            if found := BYTE_TEXT.fullmatch(texts[token_id]):
                self._byte_ids.setdefault(int(found[1], 16), token_id)
                self._bytes[token_id] = int(found[1], 16)
        self._unknown_id = self._unknown(kinds)
        self._machine = MergingMachine(
            vocabulary=self._vocabulary(specials),
            merges=merges,
            rule=rule,
            unknown=None if self._unknown_id is None else _UNKNOWN,
        )
        self.num_lost_merges = self._machine.num_lost_merges

    def encode(self, text: str, *, after_special: bool) -> list[int]:
        """The ids of a text without lone surrogates.  What stands before it makes no difference here."""
        return self._machine.encode(text.replace(" ", WRITTEN_BLANK))

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

    def _unknown(self, kinds: np.ndarray) -> int | None:
        if len(self._byte_ids) == 256:
            return None
        unknown = np.flatnonzero(kinds == TokenKind.UNKNOWN)
        if len(unknown):
            return int(unknown[0])
        raise VocabularyError(
            f"The vocabulary has {len(self._byte_ids)} of the 256 byte tokens and no unknown token, so that text with "
            "a character it lacks can't be written down: the file is damaged or was not made by a current converter."
        )

    def _vocabulary(self, specials: Collection[int]) -> Mapping[str, int]:
        hidden = set(specials)
        vocabulary = {text: token_id for token_id, text in enumerate(self._texts) if token_id not in hidden}
        if self._unknown_id is not None:
            vocabulary[_UNKNOWN] = self._unknown_id
        return vocabulary
