"""Every rule for words gives the ids that `tokenizers` makes by the rule as it was published.

The reference is written by scripts/make_word_golden.py, with a vocabulary whose merges cross the borders of words.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Regex
from tokenizers.pre_tokenizers import Sequence as Steps
from tokenizers.pre_tokenizers import Split
from words import DATA

from models.pretokenizers import PRE_TOKENIZERS
from models.vocabulary import Vocabulary, load_vocabulary

NORMAL, UNKNOWN, BYTE = 1, 2, 6


@lru_cache
def golden() -> dict[str, Any]:
    return json.loads(gzip.decompress((DATA / "words.json.gz").read_bytes()))


NAMES = tuple(golden()["ids"])


@lru_cache
def vocabulary(name: str) -> Vocabulary:
    writes_bytes = PRE_TOKENIZERS[name].writes_bytes
    tables = golden()["bytes" if writes_bytes else "characters"]
    tokens = tables["tokens"]
    kinds = [NORMAL] * len(tokens) if writes_bytes else [UNKNOWN, *[BYTE] * 256, *[NORMAL] * (len(tokens) - 257)]
    metadata = {"model": "gpt2", "pre": name, "tokens": tokens, "merges": tables["merges"], "token_type": kinds}
    return load_vocabulary({f"tokenizer.ggml.{key}": value for key, value in metadata.items()})


@pytest.mark.parametrize("name", NAMES)
def test_ids_equal_the_published_rule(name: str) -> None:
    texts = golden()["texts"]
    found = [vocabulary(name).encode(text, add_special=False, parse_special=False) for text in texts]
    wrong = [
        (text, ids, expected)
        for text, ids, expected in zip(texts, found, golden()["ids"][name], strict=True)
        if ids != expected
    ]
    assert wrong == []


@pytest.mark.parametrize("name", NAMES)
def test_texts_come_back(name: str) -> None:
    for text in golden()["texts"]:
        ids = vocabulary(name).encode(text, add_special=False, parse_special=False)
        assert vocabulary(name).decode(ids) == text


def test_every_rule_has_a_reference() -> None:
    patterns = {PRE_TOKENIZERS[name].patterns + PRE_TOKENIZERS[name].byte_patterns for name in NAMES}
    without = [name for name, rule in PRE_TOKENIZERS.items() if rule.patterns + rule.byte_patterns not in patterns]
    assert without == []


def test_the_rules_differ_in_the_reference() -> None:
    # Texts that all rules cut alike would prove nothing; these rules say the same in other words.
    alike = {"llama-bpe", "dbrx", "glm4"}, {"gpt-4o", "granite-embed-multi-97m"}, {"qwen2", "bailingmoe"}
    ids = {name: json.dumps(ids) for name, ids in golden()["ids"].items()}
    assert len(set(ids.values())) == len(ids) - sum(len(names) - 1 for names in alike)
    for names in alike:
        assert len({ids[name] for name in names}) == 1


# The steps that cut digits, as published (see scripts/make_word_golden.py).
DIGIT_CUTS = {
    "tiny_aya": [r"\d{1,3}(?=(?:\d{3})*\b)"],
    "superbpe": [r"\p{N}+", r"(?=(\d{3})+(?!\d))"],
    "afmoe": [r"\p{N}+", r"(?=(\p{N}{3})+(?!\p{N}))"],
}


def pieces(patterns: Sequence[str], text: str) -> list[str]:
    steps = [Split(Regex(pattern), behavior="isolated") for pattern in patterns]
    return [piece for piece, _ in Steps(steps).pre_tokenize_str(text)]


@given(text=st.text(alphabet="0123456789\u0663\u00bd\u00b2ab _.\u00e9\n", max_size=30))
@pytest.mark.parametrize("name", DIGIT_CUTS)
def test_digits_are_cut_as_by_the_published_patterns(name: str, text: str) -> None:
    ours = PRE_TOKENIZERS[name].patterns[: 1 if name != "superbpe" else 2]
    assert pieces(ours, text) == pieces(DIGIT_CUTS[name], text)


@pytest.mark.parametrize("end", ["", "a", "."])
@pytest.mark.parametrize("name", DIGIT_CUTS)
def test_long_runs_of_digits_take_no_longer_than_others(name: str, end: str) -> None:
    """By the published patterns 200,000 digits take hours: each digit looks to the end of the run."""
    text = "7" * 200_000 + end
    ids = vocabulary(name).encode(text, add_special=False, parse_special=False)
    assert vocabulary(name).decode(ids) == text


@given(data=st.one_of(st.binary(max_size=40), st.text(max_size=20).map(lambda text: text.encode("utf-8", "replace"))))
@pytest.mark.parametrize("name", ["gemma4", "falcon", "kimi-k2", "superbpe", "deepseek-llm"])
def test_any_bytes_come_back(name: str, data: bytes) -> None:
    ids = vocabulary(name).encode(data, add_special=False, parse_special=False)
    expected = data if name != "gemma4" else data.replace("\u2581".encode(), b" ")
    assert vocabulary(name).decode_bytes(ids) == expected
