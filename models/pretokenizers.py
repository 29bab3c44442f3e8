"""How byte-level vocabularies cut a text into words before merging: a table, by the name in `tokenizer.ggml.pre`.

Owns the rules.  Does not know vocabularies or the library that applies the patterns.

Each pattern cuts what the patterns before it left; what lies between two matches is a piece as well.  The patterns are
those that the models were trained with, in the syntax of Oniguruma.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

_CONTRACTIONS = "'s|'t|'re|'ve|'m|'ll|'d"
_ANY_CASE_CONTRACTIONS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_WORDS = _CONTRACTIONS + r"| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_WORDS_AND_LINES = (
    _ANY_CASE_CONTRACTIONS
    + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,DIGITS}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


@dataclass(frozen=True, kw_only=True)
class PreTokenizer:
    """One rule.

    names: the values of `tokenizer.ggml.pre` that mean it.  ignores_merges: a word that is in the vocabulary is one
    token whatever the merges say.  adds_bos: what holds when the file does not say.
    """

    names: tuple[str, ...]
    patterns: tuple[str, ...]
    ignores_merges: bool = False
    adds_bos: bool = False


DEFAULT = PreTokenizer(
    names=("default",),
    patterns=(r"[\p{P}\$\+<=>\^~\|]+", _WORDS, r"\p{N}+", r"[0-9][0-9][0-9]"),
)
"""What files say, or mean, that were made without knowing the rule."""

_RULES = (
    DEFAULT,
    PreTokenizer(names=("gpt-2", "gpt2", "phi-2", "mpt", "olmo", "jais"), patterns=(_WORDS,)),
    PreTokenizer(
        names=("smollm", "starcoder", "refact", "command-r", "codeshell", "exaone"),
        patterns=(r"\p{N}", _WORDS),
    ),
    PreTokenizer(
        names=("qwen2", "deepseek-r1-qwen", "stablelm2", "hunyuan"),
        patterns=(_WORDS_AND_LINES.replace("{1,DIGITS}", ""),),
    ),
    PreTokenizer(
        names=("llama-bpe", "llama3", "llama-v3", "falcon3", "pixtral"),
        patterns=(_WORDS_AND_LINES.replace("DIGITS", "3"),),
        ignores_merges=True,
        adds_bos=True,
    ),
    PreTokenizer(names=("dbrx", "smaug-bpe"), patterns=(_WORDS_AND_LINES.replace("DIGITS", "3"),)),
)

PRE_TOKENIZERS: Mapping[str, PreTokenizer] = {name: rule for rule in _RULES for name in rule.names}
