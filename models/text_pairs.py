"""Byte-pair vocabularies over text: merging begins with characters, and those without a token become byte tokens.

Owns what the merging machine is told.  Does not know special tokens (the text that comes here is plain) or files.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np

from models.byte_pair import MergingMachine
from models.pretokenizers import PreTokenizer
from models.written_pieces import WRITTEN_BLANK, WrittenPieces

_UNKNOWN = "\x01unknown"  # no text leads to it: its first character is a byte token, or unknown itself


class TextPairEncoder(WrittenPieces):
    """Plain text to ids and ids to bytes.

    A vocabulary without byte tokens gives the unknown token for what it lacks.  Raises VocabularyError when it has no
    such token either, or when the merges are no merges.
    """

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
        super().__init__(texts, kinds)
        hidden = set(specials)
        vocabulary = {text: token_id for token_id, text in enumerate(texts) if token_id not in hidden}
        if not self._has_all_bytes:
            assert self._unknown_id is not None, "WrittenPieces sees to that"
            vocabulary[_UNKNOWN] = self._unknown_id
        self._machine = MergingMachine(
            vocabulary=vocabulary, merges=merges, rule=rule, unknown=None if self._has_all_bytes else _UNKNOWN
        )
        self.num_lost_merges = self._machine.num_lost_merges

    def encode(self, text: str, *, after_special: bool) -> list[int]:
        """The ids of a text without lone surrogates.  What stands before it makes no difference here."""
        return self._machine.encode(text.replace(" ", WRITTEN_BLANK))
