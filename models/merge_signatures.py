"""Recovering the rule for words that a file does not name, from the merges of its vocabulary.

Owns the list of merges that are known.  Does not know what the rules are (pretokenizers.py).

The merges were learned once, with one rule, and every model with that vocabulary has all of them in the same order: a
hash of the whole list is certain where a guess from names or sizes is not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256


@dataclass(frozen=True, kw_only=True)
class KnownMerges:
    """family: whose vocabulary it is.  rule: a value of `tokenizer.ggml.pre`."""

    family: str
    rule: str


def _known(family: str, rule: str) -> KnownMerges:
    return KnownMerges(family=family, rule=rule)


_BY_HASH: Mapping[str, KnownMerges] = {
    "0cd100e0ab7dbd83": _known("Llama 3", "llama-bpe"),
    "bbeef245f0b03a96": _known("Qwen 2 and 3", "qwen2"),
    "04e3597d7996f292": _known("GPT-2", "gpt-2"),
    "0a1f07b1d32153dc": _known("GPT-NeoX, Pythia and OLMo", "gpt-2"),
    "aea6ed50becdb3be": _known("SmolLM", "smollm"),
    "8715d8d6d92d1b0c": _known("StarCoder 2", "starcoder"),
    "da302fc35c8c3284": _known("Refact and StarCoder", "refact"),
    "1101bfa1f9e8faaa": _known("Command R", "command-r"),
    "26a620e10c7991c8": _known("Falcon", "falcon"),
    "cb5bed793622288a": _known("DeepSeek LLM", "deepseek-llm"),
    "3c86e94c54c92cfe": _known("DeepSeek Coder", "deepseek-coder"),
}
"""By the first 16 digits of the SHA-256 of the merges, joined by line breaks."""


def merges_hash(merges: Sequence[str]) -> str:
    """What the list above is looked up by."""
    return sha256("\n".join(merges).encode("utf-8", "surrogatepass")).hexdigest()[:16]


def known_merges(merges: Sequence[str]) -> KnownMerges | None:
    """Whose vocabulary these merges are, if that is certain."""
    return _BY_HASH.get(merges_hash(merges))
