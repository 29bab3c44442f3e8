"""Vocabularies of the SentencePiece kind: from text to ids and from ids to bytes.

Owns the model message that is written for the library from the file's pieces, scores and kinds.  Does not know special
tokens (the text that comes here is plain) or files.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

import numpy as np

from models.errors import VocabularyError
from models.special_tokens import TokenKind
from models.written_pieces import WRITTEN_BLANK, WrittenPieces

if TYPE_CHECKING:
    from sentencepiece import SentencePieceProcessor

_BYTE_PAIRS = 2  # TrainerSpec.ModelType.BPE

# Field numbers of sentencepiece_model.proto, as tag bytes: number << 3 | wire type (0 varint, 2 length, 5 four bytes).
_PIECE, _TRAINER, _NORMALIZER = b"\x0a", b"\x12", b"\x1a"
_PIECE_TEXT, _PIECE_SCORE, _PIECE_KIND = b"\x0a", b"\x15", b"\x18"
_MODEL_TYPE, _BYTE_FALLBACK = b"\x18", b"\x98\x02"
_NORMALIZER_NAME, _ADD_DUMMY_PREFIX, _REMOVE_EXTRA_BLANKS, _ESCAPE_BLANKS = b"\x0a", b"\x18", b"\x20", b"\x28"


class SentencePieceEncoder(WrittenPieces):
    """Plain text to ids and ids to bytes.

    A vocabulary without byte tokens gives the unknown token for what it lacks.  Raises VocabularyError when it has no
    such token either.
    """

    num_lost_merges = 0

    def __init__(
        self,
        *,
        texts: Sequence[str],
        scores: np.ndarray,
        kinds: np.ndarray,
        specials: Collection[int],
        adds_blank: bool,
    ) -> None:
        """texts, scores (float32), kinds: by id.  specials: ids that plain text never becomes.

        adds_blank: a blank is put before a text that stands at the beginning or behind a special token.
        """
        super().__init__(texts, kinds)
        self._adds_blank = adds_blank
        written_kinds = np.where(np.isin(kinds, (TokenKind.NORMAL, TokenKind.BYTE)), kinds, TokenKind.CONTROL)
        written_kinds[list(specials)] = TokenKind.CONTROL
        if not self._has_all_bytes:
            written_kinds[kinds == TokenKind.BYTE] = TokenKind.CONTROL
        self._processor = _processor(
            _model_message(texts, scores, written_kinds, self._unknown_id, byte_fallback=self._has_all_bytes)
        )

    def encode(self, text: str, *, after_special: bool) -> list[int]:
        """The ids of a text without lone surrogates."""
        if self._adds_blank and after_special:
            text = " " + text
        return self._processor.encode_as_ids(text)


def _processor(message: bytes) -> SentencePieceProcessor:
    from sentencepiece import SentencePieceProcessor

    processor = SentencePieceProcessor()
    try:
        processor.LoadFromSerializedProto(message)
    except (RuntimeError, ValueError) as error:
        raise VocabularyError(
            f"The vocabulary can't be used ({error}): the file is damaged or was not made by a current converter."
        ) from None
    return processor


def _model_message(
    texts: Sequence[str], scores: np.ndarray, kinds: np.ndarray, unknown_id: int | None, *, byte_fallback: bool
) -> bytes:
    """A ModelProto: the pieces, byte-pair merging, and a normaliser that changes nothing but the blank's writing.

    kinds: NORMAL, BYTE, and CONTROL for all that plain text must not become.  The library wants texts that are not
    empty and occur once, and exactly one unknown piece.  Pieces that can't be as they are, and the control pieces, get
    a name of their own that no text leads to: the library looks a single character up among the control pieces too.
    """
    pieces = [text.replace(" ", WRITTEN_BLANK).encode("utf-8", "surrogatepass") for text in texts]
    kinds = kinds.copy()
    kinds[_impossible(pieces)] = TokenKind.CONTROL
    # Most pieces are normal, which needs no field for the kind: (head, text, score) from three lists, joined at once.
    heads = [_head(length) for length in range(max(map(len, pieces)) + 1)]
    tails = np.empty((len(texts), 5), np.uint8)
    tails[:, 0] = _PIECE_SCORE[0]
    tails[:, 1:] = scores.astype("<f4")[:, None].view(np.uint8)
    parts: list[bytes] = [b""] * (3 * len(texts))
    parts[0::3] = [heads[len(piece)] for piece in pieces]
    parts[1::3] = pieces
    parts[2::3] = tails.view("V5").ravel().tolist()
    for token_id in np.flatnonzero(kinds != TokenKind.NORMAL).tolist():
        kind = TokenKind.UNKNOWN if token_id == unknown_id else kinds[token_id]
        name = b"\x01piece %d" % token_id if kinds[token_id] == TokenKind.CONTROL else pieces[token_id]
        parts[3 * token_id : 3 * token_id + 3] = (b"", _piece(name, parts[3 * token_id + 2], int(kind)), b"")
    if unknown_id is None:
        parts.append(_piece(b"\x01unknown", _PIECE_SCORE + bytes(4), TokenKind.UNKNOWN))
    trainer = _MODEL_TYPE + _varint(_BYTE_PAIRS) + _BYTE_FALLBACK + _varint(byte_fallback)
    normalizer = _field(_NORMALIZER_NAME, b"identity") + b"".join(
        (_ADD_DUMMY_PREFIX, b"\0", _REMOVE_EXTRA_BLANKS, b"\0", _ESCAPE_BLANKS, b"\1")
    )
    return b"".join((*parts, _field(_TRAINER, trainer), _field(_NORMALIZER, normalizer)))


def _impossible(pieces: Sequence[bytes]) -> list[int]:
    """Where a piece is empty, holds a NUL, or is the same as one before it."""
    if len(set(pieces)) == len(pieces) and b"" not in pieces and not any(b"\0" in piece for piece in pieces):
        return []
    seen = {b""}
    found: list[int] = []
    for token_id, piece in enumerate(pieces):
        if piece in seen or b"\0" in piece:
            found.append(token_id)
        seen.add(piece)
    return found


def _head(text_bytes: int) -> bytes:
    """What stands before the text of a piece that has a score (5 bytes) behind it."""
    opening = _PIECE_TEXT + _varint(text_bytes)
    return _PIECE + _varint(len(opening) + text_bytes + 5) + opening


def _piece(text: bytes, score: bytes, kind: int) -> bytes:
    return _field(_PIECE, b"".join((_field(_PIECE_TEXT, text), score, _PIECE_KIND, bytes((kind,)))))


def _field(tag: bytes, content: bytes) -> bytes:
    return tag + _varint(len(content)) + content


def _varint(number: int) -> bytes:
    if number < 128:
        return bytes((number,))
    return bytes((number & 127 | 128,)) + _varint(number >> 7)
