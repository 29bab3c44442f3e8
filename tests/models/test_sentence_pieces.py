"""Vocabularies of the SentencePiece kind whose pieces the library would not take as they are."""

from __future__ import annotations

import gzip
import io
import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sentencepiece import SentencePieceProcessor, SentencePieceTrainer
from words import DATA

from models.errors import VocabularyError
from models.sentence_pieces import SentencePieceEncoder
from models.special_tokens import TokenKind

NORMAL, UNKNOWN, CONTROL, BYTE = TokenKind.NORMAL, TokenKind.UNKNOWN, TokenKind.CONTROL, TokenKind.BYTE
BYTES = [(f"<0x{byte:02X}>", 0.0, BYTE) for byte in range(256)]
Piece = tuple[str, float, TokenKind]
TEXTS: list[str] = json.loads(gzip.decompress((DATA / "words.json.gz").read_bytes()))["texts"]


def encoder(pieces: list[Piece], *, adds_blank: bool = False) -> SentencePieceEncoder:
    texts, scores, kinds = zip(*pieces, strict=True)
    specials = [idx for idx, kind in enumerate(kinds) if kind in (CONTROL, UNKNOWN)]
    return SentencePieceEncoder(
        texts=texts,
        scores=np.array(scores, np.float32),
        kinds=np.array(kinds, np.int32),
        specials=specials,
        adds_blank=adds_blank,
    )


def ids(found: SentencePieceEncoder, text: str) -> list[int]:
    return found.encode(text, after_special=True)


def test_the_best_score_is_merged_first() -> None:
    letters: list[Piece] = [(letter, -9.0, NORMAL) for letter in "abc"]
    left = encoder([*BYTES, *letters, ("ab", -1.0, NORMAL), ("bc", -2.0, NORMAL)])
    right = encoder([*BYTES, *letters, ("ab", -2.0, NORMAL), ("bc", -1.0, NORMAL)])
    assert ids(left, "abc") == [259, 258]
    assert ids(right, "abc") == [256, 260]


def test_doubled_empty_and_steering_pieces_do_no_harm() -> None:
    pieces: list[Piece] = [
        *BYTES,
        ("a", -1.0, NORMAL),
        ("a", -1.0, NORMAL),
        ("", 0.0, NORMAL),
        ("", 0.0, CONTROL),
        ("b", 0.0, CONTROL),
        ("\x00", -1.0, CONTROL),
    ]
    found = encoder(pieces)
    assert ids(found, "a") == [256]
    assert ids(found, "ab\x00") == [256, ord("b"), 0]


def test_several_unknown_pieces_and_long_ones() -> None:
    long = "a" * 300
    pieces: list[Piece] = [*BYTES, ("<unk>", 0.0, UNKNOWN), ("<unk2>", 0.0, UNKNOWN), (long, -1.0, NORMAL)]
    found = encoder(pieces)
    assert found.token_bytes(258) == long.encode()
    assert ids(found, "é") == list("é".encode())


def test_what_is_lacking_is_unknown_where_there_are_no_byte_tokens() -> None:
    found = encoder([("<unk>", 0.0, UNKNOWN), ("a", -1.0, NORMAL), *BYTES[:5]])
    assert ids(found, "aéa") == [1, 0, 1]
    assert found.byte_id(0xFF) == 0
    assert found.byte_id(2) == 4


def test_neither_bytes_nor_an_unknown_token_is_refused() -> None:
    with pytest.raises(VocabularyError, match="255 of the 256 byte tokens"):
        encoder([*BYTES[:255], ("a", -1.0, NORMAL)])


def test_a_blank_in_a_piece_is_a_written_blank() -> None:
    found = encoder([*BYTES, ("\u2581", -2.0, NORMAL), ("a", -3.0, NORMAL), ("\u2581a", -1.0, NORMAL)])
    assert ids(found, " a") == [258]
    assert found.token_bytes(258) == b" a"
    spelled = encoder([*BYTES, (" ", -2.0, NORMAL), ("a", -3.0, NORMAL), (" a", -1.0, NORMAL)])
    assert ids(spelled, " a") == [258]


def test_the_blank_before_a_text() -> None:
    found = encoder([*BYTES, ("\u2581", -2.0, NORMAL), ("a", -3.0, NORMAL)], adds_blank=True)
    assert found.encode("a", after_special=True) == [256, 257]
    assert found.encode("a", after_special=False) == [257]


@given(st.text(alphabet=st.characters(codec="utf-8")))
def test_blanks_are_kept_one_by_one(text: str) -> None:
    found = encoder([*BYTES, ("\u2581", -2.0, NORMAL), ("\u2581\u2581", -1.0, NORMAL)])
    spaced = f"  {text}   x "
    assert b"".join(map(found.token_bytes, ids(found, spaced))) == spaced.replace("\u2581", " ").encode()


def trained(*, adds_blank: bool) -> SentencePieceProcessor:
    """A small model of the library's own, as Llama's is: byte pairs, bytes for what is lacking, nothing normalised."""
    model = io.BytesIO()
    options: dict[str, Any] = {
        **{"model_type": "bpe", "vocab_size": 700, "byte_fallback": True, "normalization_rule_name": "identity"},
        **{"add_dummy_prefix": adds_blank, "remove_extra_whitespaces": False, "minloglevel": 3, "num_threads": 1},
        **{"split_by_unicode_script": False, "split_digits": True, "allow_whitespace_only_pieces": True},
    }
    lines = [text.replace("\n", " ") for text in TEXTS if text.strip()] * 3
    SentencePieceTrainer.train(sentence_iterator=iter(lines), model_writer=model, **options)
    return SentencePieceProcessor(model_proto=model.getvalue())


@pytest.mark.parametrize("adds_blank", [True, False])
def test_ids_equal_a_model_of_the_librarys_own(adds_blank: bool) -> None:
    reference = trained(adds_blank=adds_blank)
    pieces: list[Piece] = []
    for idx in range(reference.get_piece_size()):
        tests = {CONTROL: reference.is_control, UNKNOWN: reference.is_unknown, BYTE: reference.is_byte}
        kind = next((kind for kind, holds in tests.items() if holds(idx)), NORMAL)
        pieces.append((reference.id_to_piece(idx), reference.get_score(idx), kind))
    ours = encoder(pieces, adds_blank=adds_blank)
    for text in TEXTS:
        if text:
            assert ids(ours, text) == reference.encode(text), text
            assert b"".join(map(ours.token_bytes, ids(ours, text))).decode() == " " * adds_blank + text
