"""The rules that cut text into words: what each makes of the texts in which they differ."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Regex
from tokenizers.pre_tokenizers import Sequence, Split
from words import byte_pair_metadata

from models.pretokenizers import PRE_TOKENIZERS
from models.vocabulary import load_vocabulary

RULES = ("default", "gpt-2", "smollm", "qwen2", "llama-bpe", "dbrx")


def words(name: str, text: str) -> list[str]:
    cuts = [Split(Regex(pattern), behavior="isolated") for pattern in PRE_TOKENIZERS[name].patterns]
    return [word for word, _ in Sequence(cuts).pre_tokenize_str(text)]  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("default", [" ", "123", "456", "7"]),
        ("gpt-2", [" 1234567"]),
        ("smollm", [" ", *"1234567"]),
        ("qwen2", [" ", *"1234567"]),
        ("llama-bpe", [" ", "123", "456", "7"]),
        ("dbrx", [" ", "123", "456", "7"]),
    ],
)
def test_digits(name: str, expected: list[str]) -> None:
    assert words(name, " 1234567") == expected


@pytest.mark.parametrize("name", RULES)
def test_contractions(name: str) -> None:
    assert words(name, "I'm we'll") == ["I", *_apostrophe(name, "m"), " we", *_apostrophe(name, "ll")]
    has_capitals = name in ("qwen2", "llama-bpe", "dbrx")
    capitals = ["'LL"] if has_capitals else ["'", "LL"]
    assert words(name, "WE'LL") == ["WE", *capitals]


def _apostrophe(name: str, rest: str) -> list[str]:
    return ["'", rest] if name == "default" else [f"'{rest}"]


@pytest.mark.parametrize("name", ["gpt-2", "smollm"])
def test_blanks_and_lines_in_the_older_rules(name: str) -> None:
    assert words(name, "a   b \n\n c.\n") == ["a", "  ", " b", " \n\n", " c", ".", "\n"]


@pytest.mark.parametrize("name", ["qwen2", "llama-bpe"])
def test_blanks_and_lines_in_the_newer_rules(name: str) -> None:
    assert words(name, "a   b \n\n c.\n(x)") == ["a", "  ", " b", " \n\n", " c", ".\n", "(x", ")"]


def test_punctuation_stands_alone_by_the_default_rule() -> None:
    assert words("default", "a.b (c)") == ["a", ".", "b", " ", "(", "c", ")"]


@given(st.text())
def test_no_rule_loses_a_character(text: str) -> None:
    for name in RULES:
        assert "".join(words(name, text)) == text


def test_a_whole_word_is_one_token_where_merges_are_ignored() -> None:
    # Its last merge is missing, so that by merges alone the word stays in two.
    merges = byte_pair_metadata()["tokenizer.ggml.merges"]
    joined = next(merge for merge in reversed(merges) if merge.startswith("Ġ"))
    without = [merge for merge in merges if merge != joined]
    text = joined.replace(" ", "").replace("Ġ", " ")
    by_merges = load_vocabulary(byte_pair_metadata("dbrx", changes={"merges": without}))
    by_words = load_vocabulary(byte_pair_metadata("llama-bpe", changes={"merges": without}))
    assert len(by_merges.encode(text, add_special=False, parse_special=False)) == 2
    assert len(by_words.encode(text, add_special=False, parse_special=False)) == 1


def test_a_control_token_is_no_word() -> None:
    vocabulary = load_vocabulary(byte_pair_metadata("llama-bpe", added={"control": 3}))
    ids = vocabulary.encode("control", add_special=False, parse_special=False)
    assert vocabulary.size - 1 not in ids
    assert vocabulary.decode(ids) == "control"
    assert vocabulary.encode("control", add_special=False, parse_special=True) == [vocabulary.size - 1]


def test_every_rule_builds_a_vocabulary() -> None:
    for name in (name for name, rule in PRE_TOKENIZERS.items() if rule.writes_bytes):
        vocabulary = load_vocabulary(byte_pair_metadata(name))
        text = "I'm 1234 the fox\n\n  über 你好"
        assert vocabulary.notes == ()
        assert vocabulary.decode(vocabulary.encode(text, add_special=False, parse_special=False)) == text
