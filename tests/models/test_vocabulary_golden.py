"""The real vocabularies: ids and texts equal to reference answers, any bytes, and what ends a turn."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from words import real_words, reference

from models.gguf_file import open_model_file
from models.vocabulary import Vocabulary, load_vocabulary

NAMES = ("smollm2-135m", "gemma3-270m", "qwen2.5-coder-0.5b")
PathOf = Callable[[str], Path]


@pytest.fixture(params=NAMES, scope="module")
def name(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(scope="module")
def vocabulary(name: str, model_path: PathOf) -> Vocabulary:
    return real_words(model_path(name))[0]


def test_ids_equal_the_reference(name: str, vocabulary: Vocabulary) -> None:
    entries = reference("tokenize", name)
    assert len(entries) == 321
    wrong = [
        (entry["text"], entry["add_special"], entry["parse_special"], entry["ids"], found)
        for entry in entries
        if (
            found := vocabulary.encode(
                entry["text"], add_special=entry["add_special"], parse_special=entry["parse_special"]
            )
        )
        != entry["ids"]
    ]
    assert wrong == []


def test_texts_equal_the_reference(name: str, vocabulary: Vocabulary) -> None:
    entries = [entry for entry in reference("tokenize", name) if "detokenized" in entry]
    assert len(entries) == 107
    assert [vocabulary.decode(entry["ids"]) for entry in entries] == [entry["detokenized"] for entry in entries]


@given(data=st.binary(max_size=60))
def test_any_bytes_come_back(vocabulary: Vocabulary, name: str, data: bytes) -> None:
    ids = vocabulary.encode(data, add_special=False, parse_special=False)
    expected = data.replace("\u2581".encode(), b" ") if name == "gemma3-270m" else data
    if name == "smollm2-135m":  # has no tokens for 21 byte values
        lacking = {0x04, 0x06, 0x13, 0x14, 0x16, 0x1D, 0xC0, 0xC1, 0xF1, 0xF2, *range(0xF5, 0x100)}
        expected = _with_replacements(data, lacking)
    assert vocabulary.decode_bytes(ids) == expected
    assert b"".join(map(vocabulary.token_bytes, ids)) == expected


def _with_replacements(data: bytes, lacking: set[int]) -> bytes:
    """Characters that need a lacking byte, and lacking bytes outside characters, as U+FFFD."""
    text = data.decode("utf-8", "surrogateescape")
    pieces = (character.encode("utf-8", "surrogateescape") for character in text)
    return b"".join("\ufffd".encode() if lacking & set(piece) else piece for piece in pieces)


@given(text=st.text(max_size=40))
def test_any_text_comes_back(vocabulary: Vocabulary, name: str, text: str) -> None:
    data = text.encode("utf-8", "surrogatepass")
    ids = vocabulary.encode(text, add_special=False, parse_special=False)
    if name == "qwen2.5-coder-0.5b":
        assert vocabulary.decode_bytes(ids) == data
    assert ids == vocabulary.encode(data, add_special=False, parse_special=False)


def test_half_a_character_at_each_border(vocabulary: Vocabulary) -> None:
    data = "😀".encode()[2:] + b" and " + "😀".encode()[:3]
    ids = vocabulary.encode(data, add_special=False, parse_special=False)
    assert vocabulary.decode_bytes(ids) == data
    assert vocabulary.decode(ids).startswith("\ufffd")


def test_escaped_bytes_that_make_a_character_are_that_character(vocabulary: Vocabulary) -> None:
    escaped = "".join(chr(0xDC00 + byte) for byte in "é".encode())
    assert vocabulary.encode(f"caf{escaped}", add_special=False, parse_special=False) == vocabulary.encode(
        "café", add_special=False, parse_special=False
    )


@pytest.mark.parametrize(
    ("model", "ends"),
    [
        ("smollm2-135m", {"<|im_end|>", "<|endoftext|>"}),
        ("gemma3-270m", {"<eos>", "<end_of_turn>"}),  # not </s>, which is a tag of HTML there
        ("qwen2.5-coder-0.5b", {"<|im_end|>", "<|endoftext|>"}),
    ],
)
def test_what_ends_a_turn(model: str, ends: set[str], model_path: PathOf) -> None:
    vocabulary = real_words(model_path(model))[0]
    assert {vocabulary.token_text(token_id) for token_id in vocabulary.end_ids} == ends


def test_nothing_is_missing_from_the_real_files(vocabulary: Vocabulary) -> None:
    assert vocabulary.notes == ()


def test_the_two_qwen_files_have_one_vocabulary(model_path: PathOf) -> None:
    small, large = (real_words(model_path(f"qwen2.5-coder-{size}"))[0] for size in ("0.5b", "1.5b"))
    assert small.fingerprint == large.fingerprint
    assert small.fingerprint != real_words(model_path("smollm2-135m"))[0].fingerprint


@pytest.mark.parametrize("model", ["smollm2-135m", "qwen2.5-coder-0.5b"])
def test_a_file_that_forgot_its_rule_is_read_by_its_merges(model: str, model_path: PathOf) -> None:
    with open_model_file(model_path(model)) as file:
        metadata = {key: value for key, value in file.metadata.items() if key != "tokenizer.ggml.pre"}
    vocabulary = load_vocabulary(metadata)
    assert "its merges are those of" in vocabulary.notes[0]
    assert vocabulary.fingerprint == real_words(model_path(model))[0].fingerprint


def test_control_tokens_add_nothing_to_the_text(name: str, vocabulary: Vocabulary) -> None:
    assert vocabulary.control_ids
    for text, token_id in vocabulary.control_ids.items():
        assert vocabulary.token_bytes(token_id) == b""
        assert vocabulary.token_text(token_id) == text
        assert vocabulary.is_control(token_id) and vocabulary.is_special(token_id)
    ordinary = vocabulary.encode("Hello", add_special=False, parse_special=False)[0]
    assert not vocabulary.is_control(ordinary) and not vocabulary.is_special(ordinary)
