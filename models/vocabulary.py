"""A model's vocabulary: text or bytes to token ids and back.

Owns which tokens are special, what bytes they stand for, and what stands at the borders of a text.  Does not know
metadata (token_tables.py), templates, chats, or how plain text is merged (byte_pair.py, text_pairs.py,
sentence_pieces.py).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Protocol

import numpy as np

from models.byte_pair import BytePairEncoder
from models.errors import VocabularyError
from models.gguf_values import MetadataValue
from models.sentence_pieces import SentencePieceEncoder
from models.special_tokens import END_TEXTS_OF_CONTROLS, TokenFinder, TokenKind
from models.text_pairs import TextPairEncoder
from models.token_tables import TokenTables, read_token_tables

_SURROGATE = re.compile("[\ud800-\udfff]")
_SURROGATE_OR_TEXT = re.compile("[\ud800-\udfff]|[^\ud800-\udfff]+")
_CONTROL_KINDS = (TokenKind.CONTROL, TokenKind.UNKNOWN)
_SPECIAL_KINDS = (*_CONTROL_KINDS, TokenKind.USER_DEFINED)


class TextEncoder(Protocol):
    """How plain text becomes ids: one for each kind of vocabulary.

    missing_bytes: those without a token.  num_lost_merges: merges of tokens that are not there.
    """

    @property
    def num_lost_merges(self) -> int: ...
    @property
    def missing_bytes(self) -> bytes: ...
    def encode(self, text: str, *, after_special: bool) -> list[int]: ...
    def byte_id(self, byte: int) -> int: ...
    def token_bytes(self, token_id: int) -> bytes: ...


class Vocabulary:
    """The tokens of one model.

    bos_id, eos_id: None where the file names none.  add_bos, add_eos: does `add_special` add them?  end_ids: tokens at
    which a turn or a text ends.  notes: sentences for the user on what was missing and what it may cost.
    """

    def __init__(self, tables: TokenTables, encoder: TextEncoder, notes: Sequence[str]) -> None:
        self._tables = tables
        self._texts = tables.texts
        self._kinds = tables.kinds
        self._encoder = encoder
        self.bos_id = tables.bos_id
        self.eos_id = tables.eos_id
        self.add_bos = tables.add_bos
        self.add_eos = tables.add_eos
        self.end_ids = tables.end_ids
        self.notes = tuple(notes)
        self._bytes: dict[int, bytes] = {}

    @property
    def size(self) -> int:
        """How many tokens there are, padding included."""
        return len(self._texts)

    @cached_property
    def control_ids(self) -> Mapping[str, int]:
        """Control and unknown tokens by their text."""
        return self._ids_of_kinds(_CONTROL_KINDS)

    @cached_property
    def user_defined_ids(self) -> Mapping[str, int]:
        """Tokens that stand for their text wherever it occurs, by their text."""
        return self._ids_of_kinds((TokenKind.USER_DEFINED,))

    @cached_property
    def fingerprint(self) -> str:
        """The same for vocabularies that make the same ids of every text."""
        import hashlib

        tables = self._tables
        patterns = (*tables.rule.patterns, "", *tables.rule.byte_patterns)
        rule = (tables.algorithm, *patterns, f"{tables.rule.ignores_merges} {tables.adds_blank}")
        digest = hashlib.sha256()
        for texts in (tables.texts, tables.merges, rule):
            digest.update("\0".join(texts).encode("utf-8", "surrogatepass") + b"\0\0")
        digest.update(tables.kinds.astype("<i4").tobytes())
        digest.update(tables.scores.astype("<f4").tobytes())
        return digest.hexdigest()[:32]

    def encode(self, text: str | bytes, *, add_special: bool, parse_special: bool) -> list[int]:
        """The ids of a text.

        add_special: put BOS and EOS around it where the file asks for them.  parse_special: text that reads like a
        control token becomes that token; without it, it stays text.  Bytes that are not UTF-8 (in a string: lone
        surrogates, as the `surrogateescape` error handler leaves them) become byte tokens.  What a vocabulary has no
        token for is encoded as U+FFFD (SmolLM2 lacks some control characters and bytes that no text has).
        """
        text = _as_text(text)
        finder = self._prompt_finder if parse_special else self._text_finder
        ids = self.encode_parts(finder.split(text))
        if add_special and self.add_bos and self.bos_id is not None:
            ids.insert(0, self.bos_id)
        if add_special and self.add_eos and self.eos_id is not None:
            ids.append(self.eos_id)
        return ids

    def encode_prompt(self, text: str | bytes, *, add_bos: bool | None = None, parse_special: bool = True) -> list[int]:
        """The ids of a text that a model is to go on from: with one BOS if there is to be one, and no EOS.

        add_bos: None does what the file asks for.  A BOS that the text itself begins with is the one.
        """
        ids = self.encode(text, add_special=False, parse_special=parse_special)
        return self.with_one_bos(ids, add_bos=add_bos)

    def with_one_bos(self, ids: list[int], *, add_bos: bool | None = None) -> list[int]:
        """The ids with one BOS in front: added if it is wanted and not there, and several made one."""
        bos_id = self.bos_id
        if bos_id is None:
            return ids
        start = 0
        while ids[start : start + 1] == [bos_id]:
            start += 1
        wanted = self.add_bos if add_bos is None else add_bos
        return [bos_id, *ids[start:]] if wanted or start else ids

    def encode_parts(self, parts: Iterable[str | int], *, after_special: bool = True) -> list[int]:
        """The ids of stretches of plain text, in which nothing is a special token, and of tokens between them.

        after_special: what stands before the first part is a special token or nothing.
        """
        ids: list[int] = []
        for part in parts:
            if isinstance(part, int):
                ids.append(part)
                after_special = self.is_special(part)
            elif part:
                ids += self._encode_plain(part, after_special=after_special)
                after_special = False
        return ids

    def split_special(self, text: str, *, guard: str, guarded: Collection[str]) -> Iterator[str | int]:
        """The text cut at its special tokens; those among `guarded` that stand behind the guard are text."""
        return self._special_finder.split(text, guard=guard, guarded=guarded)

    def decode(self, ids: Iterable[int]) -> str:
        """The text of a whole sequence.  Bytes that are not UTF-8 become U+FFFD."""
        return self.decode_bytes(ids).decode("utf-8", errors="replace")

    def decode_bytes(self, ids: Iterable[int]) -> bytes:
        """The bytes of a whole sequence: what `encode` was given, without control tokens."""
        if not self._tables.adds_blank:
            return b"".join(map(self.token_bytes, ids))
        pieces: list[bytes] = []
        after_special = True
        for token_id in ids:
            piece = self.token_bytes(token_id)
            is_special = self.is_special(token_id)
            pieces.append(piece.removeprefix(b" ") if after_special and not is_special else piece)
            after_special = is_special
        return b"".join(pieces)

    def token_bytes(self, token_id: int) -> bytes:
        """What a token adds to the text; nothing if it is a control token or padding."""
        found = self._bytes.get(token_id)
        if found is None:
            found = self._bytes[token_id] = self._make_token_bytes(token_id)
        return found

    def token_text(self, token_id: int) -> str:
        """The token as the file writes it."""
        self._check(token_id)
        return self._texts[token_id]

    def is_control(self, token_id: int) -> bool:
        """Is it a token that steers and is no text?"""
        return self._kind(token_id) in _CONTROL_KINDS

    def is_unused(self, token_id: int) -> bool:
        """Is it a row that fills the vocabulary up, which no text has?"""
        return self._kind(token_id) == TokenKind.UNUSED

    def is_special(self, token_id: int) -> bool:
        """Is it a token that is found in a text as it stands, before anything is merged?"""
        return self._kind(token_id) in _SPECIAL_KINDS

    def special_id(self, text: str) -> int | None:
        """The control or user-defined token that is written so."""
        return self.control_ids.get(text, self.user_defined_ids.get(text))

    @cached_property
    def _special_finder(self) -> TokenFinder:
        return TokenFinder({**self.user_defined_ids, **self.control_ids})

    @cached_property
    def _prompt_finder(self) -> TokenFinder:
        ends = {text: self._texts.index(text) for text in END_TEXTS_OF_CONTROLS.intersection(self._texts)}
        return TokenFinder({**ends, **self.user_defined_ids, **self.control_ids})

    @cached_property
    def _text_finder(self) -> TokenFinder:
        texts = self.user_defined_ids.items()
        return TokenFinder({text: token_id for text, token_id in texts if text not in END_TEXTS_OF_CONTROLS})

    def _ids_of_kinds(self, kinds: Collection[int]) -> dict[str, int]:
        ids: dict[str, int] = {}
        for token_id in np.flatnonzero(np.isin(self._kinds, list(kinds))).tolist():
            ids.setdefault(self._texts[token_id], token_id)
        return ids

    def _encode_plain(self, text: str, *, after_special: bool) -> list[int]:
        if not text.isascii() and _SURROGATE.search(text):
            return self._encode_broken(text, after_special=after_special)
        return self._encoder.encode(text, after_special=after_special)

    def _encode_broken(self, text: str, *, after_special: bool) -> list[int]:
        """The ids of a text with bytes that are not UTF-8."""
        # Once round through bytes, so that escaped bytes that make up a character are that character.
        text = _as_text(_as_bytes(text))
        lacking = self._encoder.missing_bytes
        text = _SURROGATE.sub(lambda found: "\ufffd" if ord(found[0]) - 0xDC00 in lacking else found[0], text)
        ids: list[int] = []
        for stretch in _SURROGATE_OR_TEXT.findall(text):
            if _SURROGATE.match(stretch):
                ids.append(self._encoder.byte_id(ord(stretch) - 0xDC00))
            else:
                ids += self._encode_plain(stretch, after_special=after_special)
            after_special = False
        return ids

    def _kind(self, token_id: int) -> int:
        self._check(token_id)
        return int(self._kinds[token_id])

    def _check(self, token_id: int) -> None:
        if not 0 <= token_id < len(self._texts):
            last_id = len(self._texts) - 1
            raise VocabularyError(f"There is no token {token_id}: the vocabulary has the tokens 0 to {last_id}.")

    def _make_token_bytes(self, token_id: int) -> bytes:
        kind = self._kind(token_id)
        if kind in (*_CONTROL_KINDS, TokenKind.UNUSED):
            return b""
        if kind == TokenKind.USER_DEFINED:
            return self._texts[token_id].encode("utf-8", "surrogateescape")
        return self._encoder.token_bytes(token_id)


def load_vocabulary(metadata: Mapping[str, MetadataValue]) -> Vocabulary:
    """The vocabulary in a file's metadata.  Raises VocabularyError where it is incomplete or of an unknown kind."""
    tables = read_token_tables(metadata)
    not_text = (TokenKind.CONTROL, TokenKind.UNKNOWN, TokenKind.UNUSED)
    specials = np.flatnonzero(np.isin(tables.kinds, not_text)).tolist()
    notes = list(tables.notes)
    encoder = _encoder(tables, specials)
    if encoder.num_lost_merges:
        notes.append(
            f"{encoder.num_lost_merges} of the {len(tables.merges)} merges in the file are of tokens that it lacks "
            "and are left out: some words may become other tokens than in training."
        )
    return Vocabulary(tables, encoder, notes)


def _encoder(tables: TokenTables, specials: Collection[int]) -> TextEncoder:
    match tables.algorithm:
        case "byte pairs":
            return BytePairEncoder(texts=tables.texts, merges=tables.merges, rule=tables.rule, specials=specials)
        case "text pairs":
            return TextPairEncoder(
                texts=tables.texts, merges=tables.merges, kinds=tables.kinds, rule=tables.rule, specials=specials
            )
        case "sentence pieces":
            return SentencePieceEncoder(
                texts=tables.texts,
                scores=tables.scores,
                kinds=tables.kinds,
                specials=specials,
                adds_blank=tables.adds_blank,
            )


def _as_text(text: str | bytes) -> str:
    return text.decode("utf-8", "surrogateescape") if isinstance(text, bytes) else text


def _as_bytes(text: str) -> bytes:
    """The bytes of a text whose lone surrogates are escaped bytes (U+DC80 to U+DCFF) or half characters (any other)."""
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return b"".join(_character_bytes(character) for character in text)


def _character_bytes(character: str) -> bytes:
    is_escaped_byte = "\udc80" <= character <= "\udcff"
    return character.encode("utf-8", "surrogateescape" if is_escaped_byte else "surrogatepass")
