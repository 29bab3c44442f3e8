"""Vocabularies at their edges: what files forget or get wrong, borders of texts, BOS and EOS, any bytes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from words import CONTROL, UNUSED, USER_DEFINED, byte_pair_metadata, sentence_piece_metadata

from models import merge_signatures
from models.errors import VocabularyError
from models.merge_signatures import KnownMerges, merges_hash
from models.pretokenizers import PRE_TOKENIZERS
from models.vocabulary import Vocabulary, load_vocabulary

BYTE_PAIRS = load_vocabulary(byte_pair_metadata())
PIECES = load_vocabulary(sentence_piece_metadata())
PREFIXED = load_vocabulary(sentence_piece_metadata(changes={"add_space_prefix": True}))


def plain(vocabulary: Vocabulary, text: str | bytes) -> list[int]:
    return vocabulary.encode(text, add_special=False, parse_special=False)


def texts(vocabulary: Vocabulary, ids: list[int]) -> list[str]:
    return [vocabulary.token_text(token_id) for token_id in ids]


@pytest.mark.parametrize("vocabulary", [BYTE_PAIRS, PIECES, PREFIXED], ids=["byte pairs", "pieces", "prefixed"])
@given(data=st.one_of(st.binary(), st.text().map(lambda text: text.encode("utf-8", "surrogatepass"))))
def test_any_bytes_come_back(vocabulary: Vocabulary, data: bytes) -> None:
    expected = data if vocabulary is BYTE_PAIRS else data.replace("\u2581".encode(), b" ")
    assert vocabulary.decode_bytes(plain(vocabulary, data)) == expected


@given(text=st.text(alphabet=st.characters(codec="utf-8")), cut=st.integers(0, 100))
def test_decoding_in_two_halves_is_decoding_at_once(text: str, cut: int) -> None:
    for vocabulary in (BYTE_PAIRS, PIECES):
        ids = plain(vocabulary, text)
        halves = vocabulary.decode_bytes(ids[:cut]) + vocabulary.decode_bytes(ids[cut:])
        assert halves.decode() == vocabulary.decode(ids)


def test_a_long_text_leaves_the_interpreter_to_other_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = load_vocabulary(byte_pair_metadata())._encoder._machine  # type: ignore[attr-defined]
    text = "the quick brown fox, 12 times\n" * 1000
    expected = machine._tokenizer.encode(text, add_special_tokens=False).ids

    class Releasing:
        """The library's, of which `encode` alone holds the interpreter for as long as it takes."""

        encode_batch_fast = staticmethod(machine._tokenizer.encode_batch_fast)

    monkeypatch.setattr(machine, "_tokenizer", Releasing)
    assert machine.encode(text) == expected


@given(st.integers(0, 0x7F), st.integers(0x80, 0xFF))
def test_lone_bytes_become_byte_tokens(ascii_byte: int, high_byte: int) -> None:
    ids = plain(PIECES, bytes((high_byte,)))
    assert texts(PIECES, ids) == [f"<0x{high_byte:02X}>"]
    assert BYTE_PAIRS.decode_bytes(plain(BYTE_PAIRS, bytes((high_byte, ascii_byte)))) == bytes((high_byte, ascii_byte))


def test_half_characters_of_json_strings_are_bytes() -> None:
    assert BYTE_PAIRS.decode_bytes(plain(BYTE_PAIRS, "a\ud83d!")) == b"a\xed\xa0\xbd!"


def test_a_byte_without_a_token_is_encoded_as_the_replacement_character() -> None:
    tokens = ["?" * 3 if text == "ÿ" else text for text in byte_pair_metadata()["tokenizer.ggml.tokens"]]
    vocabulary = load_vocabulary(byte_pair_metadata(changes={"tokens": tokens}))
    assert vocabulary.decode(plain(vocabulary, b"a\xffb")) == "a\ufffdb"
    assert vocabulary.decode(plain(vocabulary, b"a\xfeb")) == "a\ufffdb"
    assert vocabulary.decode_bytes(plain(vocabulary, b"a\xfeb")) == b"a\xfeb"


def test_a_character_whose_byte_has_no_token_is_not_dropped() -> None:
    alphabet_of_1a = chr(256 + 0x1A)
    tokens = ["?" * 3 if text == alphabet_of_1a else text for text in byte_pair_metadata()["tokenizer.ggml.tokens"]]
    vocabulary = load_vocabulary(byte_pair_metadata(changes={"tokens": tokens}))
    assert vocabulary.decode(plain(vocabulary, "a\x1ab")) == "a\ufffdb"


def test_text_of_a_control_token_is_that_token_only_when_asked_for() -> None:
    for vocabulary, text in ((BYTE_PAIRS, "<|im_end|>"), (PIECES, "<end_of_turn>")):
        token_id = vocabulary.special_id(text)
        assert vocabulary.encode(text, add_special=False, parse_special=True) == [token_id]
        ids = plain(vocabulary, text)
        assert token_id not in ids
        assert vocabulary.decode(ids) == text


def test_user_defined_tokens_are_found_in_any_text() -> None:
    assert texts(BYTE_PAIRS, plain(BYTE_PAIRS, "<think>x")) == ["<think>", "x"]
    assert BYTE_PAIRS.decode(plain(BYTE_PAIRS, "<think>x")) == "<think>x"


def test_the_longest_user_defined_token_is_taken() -> None:
    added = {"\n": USER_DEFINED, "\n\n": USER_DEFINED, "\n\n\n": USER_DEFINED, "  ": USER_DEFINED}
    vocabulary = load_vocabulary(sentence_piece_metadata(added=added))
    assert texts(vocabulary, plain(vocabulary, "\n\n\n\n\nthe  ")) == [
        "\n\n\n",
        "\n\n",
        *texts(PIECES, plain(PIECES, "the")),
        "  ",
    ]


def test_written_blanks_are_read_as_blanks_not_as_runs() -> None:
    vocabulary = load_vocabulary(sentence_piece_metadata(added={"  ": USER_DEFINED}))
    assert texts(vocabulary, plain(vocabulary, "\u2581\u2581")) == ["\u2581", "\u2581"]
    assert texts(vocabulary, plain(vocabulary, "  ")) == ["  "]


def test_a_blank_is_put_before_a_text_and_behind_special_tokens() -> None:
    ids = PREFIXED.encode("the<end_of_turn>the", add_special=True, parse_special=True)
    assert texts(PREFIXED, ids) == ["<bos>", "\u2581the", "<end_of_turn>", "\u2581the"]
    assert PREFIXED.decode(ids) == "thethe"
    assert PREFIXED.encode("", add_special=False, parse_special=True) == []


@pytest.mark.parametrize("add_bos", [None, True, False])
@pytest.mark.parametrize("text", ["the fox", "<bos>the fox", "<bos><bos>the fox", ""])
def test_a_prompt_has_one_bos_or_none(text: str, add_bos: bool | None) -> None:
    ids = PIECES.encode_prompt(text, add_bos=add_bos)
    wanted = text.startswith("<bos>") or add_bos is not False
    assert ids.count(2) == wanted
    assert ids[wanted:] == plain(PIECES, text.replace("<bos>", ""))


def test_a_prompt_gets_no_bos_where_the_file_wants_none() -> None:
    assert BYTE_PAIRS.encode_prompt("the fox") == plain(BYTE_PAIRS, "the fox")
    without = load_vocabulary(byte_pair_metadata(changes={"bos_token_id": None, "add_bos_token": True}))
    assert without.bos_id is None and without.add_bos is False
    assert without.encode_prompt("the fox", add_bos=True) == plain(without, "the fox")


@pytest.mark.parametrize(
    ("changes", "around"), [({"add_eos_token": True}, (False, True)), ({"add_bos_token": True}, (True, False))]
)
def test_add_special_puts_bos_and_eos_around(changes: dict[str, Any], around: tuple[bool, bool]) -> None:
    vocabulary = load_vocabulary(byte_pair_metadata(changes=changes))
    ids = vocabulary.encode("fox", add_special=True, parse_special=False)
    expected = [0] * around[0] + plain(vocabulary, "fox") + [2] * around[1]
    assert ids == expected


def test_what_holds_when_the_file_says_nothing_of_bos() -> None:
    silent = {"add_bos_token": None}
    assert load_vocabulary(sentence_piece_metadata(changes=silent)).add_bos is True
    assert load_vocabulary(byte_pair_metadata(changes=silent)).add_bos is False
    assert load_vocabulary(byte_pair_metadata("llama-bpe", changes=silent)).add_bos is True


@pytest.mark.parametrize("kind", [CONTROL, USER_DEFINED, 1])
@pytest.mark.parametrize("text", ["<|eot_id|>", "<|end|>", "<end_of_turn>", "<｜end▁of▁sentence｜>"])
def test_tokens_that_end_a_turn_are_known_whatever_the_file_forgot(text: str, kind: int) -> None:
    vocabulary = load_vocabulary(byte_pair_metadata(added={text: kind}))
    token_id = vocabulary.special_id(text)
    assert token_id in vocabulary.end_ids
    assert token_id is not None and vocabulary.is_control(token_id)


def test_a_closing_tag_of_html_ends_no_turn() -> None:
    vocabulary = load_vocabulary(byte_pair_metadata(added={"</s>": USER_DEFINED}))
    assert vocabulary.special_id("</s>") not in vocabulary.end_ids
    assert load_vocabulary(byte_pair_metadata(added={"</s>": CONTROL})).special_id("</s>") == BYTE_PAIRS.size
    assert BYTE_PAIRS.size in load_vocabulary(byte_pair_metadata(added={"</s>": CONTROL})).end_ids


def test_the_eot_and_eom_of_the_metadata_end_a_turn() -> None:
    changes = {"eot_token_id": 7, "eom_token_id": 8}
    assert {7, 8, 2} <= load_vocabulary(byte_pair_metadata(changes=changes)).end_ids


def test_the_end_of_a_message_ends_no_turn_of_several_messages() -> None:
    several = load_vocabulary(
        byte_pair_metadata(added={"<|end|>": CONTROL, "<|return|>": CONTROL, "<|call|>": CONTROL})
    )
    assert several.special_id("<|end|>") not in several.end_ids
    assert several.special_id("<|return|>") in several.end_ids


@pytest.mark.parametrize("name", [None, "a-rule-of-tomorrow"])
def test_an_unknown_rule_for_words_is_told(name: str | None) -> None:
    (note,) = load_vocabulary(byte_pair_metadata(name)).notes
    assert "tokenizer.ggml.pre" in note and "answers may be worse" in note
    assert name is None or name in note


@pytest.mark.parametrize("name", [None, "a-rule-of-tomorrow"])
def test_a_rule_is_recovered_from_merges_that_are_known(name: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    merges = byte_pair_metadata()["tokenizer.ggml.merges"]
    known = {merges_hash(merges): KnownMerges(family="Fox 1", rule="llama-bpe")}
    monkeypatch.setattr(merge_signatures, "_BY_HASH", known)
    vocabulary = load_vocabulary(byte_pair_metadata(name, changes={"add_bos_token": None}))
    (note,) = vocabulary.notes
    assert "tokenizer.ggml.pre" in note and "Fox 1" in note and "'llama-bpe'" in note
    assert vocabulary.add_bos is True  # as that rule has it
    text = "12345 foxes\n\n"
    assert plain(vocabulary, text) == plain(load_vocabulary(byte_pair_metadata("llama-bpe")), text)
    other = load_vocabulary(byte_pair_metadata(name, changes={"merges": merges[:-1]}))
    assert "the default rule is used" in other.notes[0]


def test_every_known_vocabulary_names_a_rule() -> None:
    assert {found.rule for found in merge_signatures._BY_HASH.values()} <= PRE_TOKENIZERS.keys()


@pytest.mark.parametrize("says", [True, False, None])
def test_a_model_that_needs_bos_gets_it_whatever_the_file_says(says: bool | None) -> None:
    metadata: dict[str, Any] = {"model": "gemma4", "tokens": ["<bos>", "a", "b", "ab"], "token_type": [3, 1, 1, 1]}
    metadata |= {"merges": ["a b"], "bos_token_id": 0, "unknown_token_id": 0, "add_bos_token": says}
    found = load_vocabulary(
        {f"tokenizer.ggml.{key}": value for key, value in metadata.items() if value is not None}
        | {"tokenizer.ggml.tokens": [*metadata["tokens"], "<unk>"], "tokenizer.ggml.token_type": [3, 1, 1, 1, 2]}
    )
    assert found.encode_prompt("ab") == [0, 3] and found.encode_prompt("<bos>ab") == [0, 3]
    assert len(found.notes) == (says is False) and all("add_bos_token" in note for note in found.notes)


def test_text_pairs_fall_back_on_the_unknown_token_where_bytes_are_missing() -> None:
    metadata = {"model": "gemma4", "tokens": ["<unk>", "a", "b", "ab", "\u2581"], "token_type": [2, 1, 1, 1, 1]}
    found = load_vocabulary({f"tokenizer.ggml.{key}": value for key, value in {**metadata, "merges": ["a b"]}.items()})
    assert plain(found, "ab éa") == [3, 4, 0, 1]
    assert plain(found, b"a\xff") == [1, 0]
    without = {**metadata, "token_type": [1, 1, 1, 1, 1], "merges": ["a b"]}
    with pytest.raises(VocabularyError, match="0 of the 256 byte tokens"):
        load_vocabulary({f"tokenizer.ggml.{key}": value for key, value in without.items()})


def test_missing_kinds_are_guessed_and_told() -> None:
    vocabulary = load_vocabulary(byte_pair_metadata(changes={"token_type": None}))
    (note,) = vocabulary.notes
    assert "tokenizer.ggml.token_type" in note
    assert {"<|im_start|>", "<|im_end|>", "<|endoftext|>"} <= vocabulary.control_ids.keys()
    pieces = load_vocabulary(sentence_piece_metadata(changes={"token_type": None}))
    assert pieces.decode_bytes(plain(pieces, b"the \xff")) == b"the \xff"
    assert {"<bos>", "<eos>"} <= pieces.control_ids.keys()


def test_a_role_outside_the_vocabulary_is_left_out_and_told() -> None:
    vocabulary = load_vocabulary(byte_pair_metadata(changes={"eos_token_id": 99_999}))
    assert vocabulary.eos_id is None
    assert "99999" in vocabulary.notes[0] and "eos_token" in vocabulary.notes[0]


def test_merges_of_tokens_that_are_not_there_are_told() -> None:
    merges = byte_pair_metadata()["tokenizer.ggml.merges"]
    vocabulary = load_vocabulary(byte_pair_metadata(changes={"merges": [*merges, "q x", "nowhere at"]}))
    assert "2 of the 122 merges" in vocabulary.notes[0]
    assert plain(vocabulary, "the fox") == plain(BYTE_PAIRS, "the fox")


def test_padding_is_no_text() -> None:
    vocabulary = load_vocabulary(byte_pair_metadata(added={"[PAD1]": UNUSED}))
    assert vocabulary.token_bytes(vocabulary.size - 1) == b""
    assert not vocabulary.is_control(vocabulary.size - 1)
    assert vocabulary.decode(vocabulary.encode("[PAD1]", add_special=False, parse_special=True)) == "[PAD1]"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"model": None}, "tokenizer.ggml.model"),
        ({"model": "t5"}, "'t5'"),
        ({"model": "\x1b[2Jbert"}, r"\x1b[2Jbert"),
        ({"model": 3}, "should be a string"),
        ({"tokens": None}, "tokenizer.ggml.tokens"),
        ({"tokens": []}, "tokenizer.ggml.tokens"),
        ({"tokens": [1, 2]}, "tokenizer.ggml.tokens"),
        ({"merges": None}, "tokenizer.ggml.merges"),
        ({"merges": ["one two three"]}, "Merge 0"),
        ({"merges": ["one"]}, "'one'"),
        ({"token_type": [1, 2, 3]}, "3 entries"),
        ({"token_type": ["a"] * 381}, "list of numbers"),
        ({"bos_token_id": "one"}, "whole number"),
        ({"add_bos_token": 1}, "true or false"),
    ],
)
def test_contradictions_are_refused(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(VocabularyError) as caught:
        load_vocabulary(byte_pair_metadata(changes=changes))
    assert words in str(caught.value)
    assert "\x1b" not in str(caught.value)


@pytest.mark.parametrize("scores", [None, np.zeros(3, np.float32)])
def test_pieces_without_scores_are_refused(scores: np.ndarray | None) -> None:
    with pytest.raises(VocabularyError, match="scores"):
        load_vocabulary(sentence_piece_metadata(changes={"scores": scores}))


@pytest.mark.parametrize("token_id", [-1, 381, 1 << 40])
def test_an_id_that_is_no_token_is_refused(token_id: int) -> None:
    assert BYTE_PAIRS.size == 381
    for ask in (BYTE_PAIRS.token_bytes, BYTE_PAIRS.token_text, BYTE_PAIRS.is_control):
        with pytest.raises(VocabularyError, match="0 to 380"):
            ask(token_id)


def test_the_fingerprint_tells_vocabularies_apart() -> None:
    variants = [
        byte_pair_metadata(),
        byte_pair_metadata("smollm"),
        byte_pair_metadata(added={"x" * 9: 1}),
        byte_pair_metadata(changes={"token_type": [1] * 381}),
        byte_pair_metadata(changes={"merges": byte_pair_metadata()["tokenizer.ggml.merges"][:-1]}),
        sentence_piece_metadata(),
        sentence_piece_metadata(changes={"add_space_prefix": True}),
    ]
    assert len({load_vocabulary(metadata).fingerprint for metadata in variants}) == len(variants)
    assert load_vocabulary(byte_pair_metadata()).fingerprint == BYTE_PAIRS.fingerprint
