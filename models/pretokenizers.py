"""How byte-pair vocabularies cut a text into words before merging: a table, by the name in `tokenizer.ggml.pre`.

Owns the rules.  Does not know vocabularies, the library that applies the patterns, or how a rule is recovered that a
file does not name (merge_signatures.py).

Each pattern cuts what the patterns before it left; what lies between two matches is a piece as well.  The patterns are
those that the models were trained with, in the syntax of Oniguruma.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

_CONTRACTIONS = "'s|'t|'re|'ve|'m|'ll|'d"
_ANY_CASE_CONTRACTIONS = f"(?i:{_CONTRACTIONS})"
_SPACES = r"|\s+(?!\S)|\s+"
_WORDS = _CONTRACTIONS + r"| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+" + _SPACES
_MARKS_AND_LINES = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"


def _words_and_lines(digits: str, *, opening: str = _ANY_CASE_CONTRACTIONS + "|", spaces: str = _SPACES) -> str:
    """Words with the sign before them, digits by that pattern, signs with the line breaks behind them."""
    return opening + r"[^\r\n\p{L}\p{N}]?\p{L}+|" + digits + _MARKS_AND_LINES + spaces


_SINGLE_DIGITS = _words_and_lines(r"\p{N}")
_THREE_DIGITS = _words_and_lines(r"\p{N}{1,3}")

_CAPITALS = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}HAN]"
_SMALL = r"[\p{Ll}\p{Lm}\p{Lo}\p{M}HAN]"


def _cased_words(digits: str, *, contractions: bool = True, han: bool = True, breaks: str = r"[\r\n/]*") -> str:
    """Words cut where small letters are followed by capitals.  han: Chinese characters may stand in them."""
    ending = _ANY_CASE_CONTRACTIONS + "?" if contractions else ""
    words = rf"[^\r\n\p{{L}}\p{{N}}]?{_CAPITALS}*{_SMALL}+{ending}|[^\r\n\p{{L}}\p{{N}}]?{_CAPITALS}+{_SMALL}*{ending}|"
    marks = r"| ?[^\s\p{L}\p{N}]+" + breaks + r"|\s*[\r\n]+"
    return words.replace("HAN", "" if han else r"&&[^\p{Han}]") + digits + marks + _SPACES


_CJK = "[一-龥\u3040-ゟ゠-ヿ]+"
_SIGN_AND_LETTERS = r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
_MARKED_WORDS = _SIGN_AND_LETTERS + r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+" + _SPACES
_BLOOM_WORDS = r" ?[^(\s|[.,!?…。，、।۔،])]+"
_LETTERS_WITH_CASE = (
    "A-Za-z\u00b5\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u01ba\u01bc-\u01bf\u01c4-\u0293\u0295-\u02af\u0370-\u0373"
    "\u0376\u0377\u037b-\u037d\u037f\u0386\u0388-\u038a\u038c\u038e-\u03a1\u03a3-\u03f5\u03f7-\u0481\u048a-\u052f"
    "\u0531-\u0556\u10a0-\u10c5\u13a0-\u13f5\u13f8-\u13fd\u1c90-\u1cba\u1cbd-\u1cbf\u1d00-\u1d2b\u1d6b-\u1d77"
    "\u1d79-\u1d9a\u1e00-\u1f15\u1f18-\u1f1d\u1f20-\u1f45\u1f48-\u1f4d\u1f50-\u1f57\u1f59\u1f5b\u1f5d"
    "\u1f5f-\u1f7d\u1f80-\u1fb4\u1fb6-\u1fbc\u1fbe\u1fc2-\u1fc4\u1fc6-\u1fcc\u1fd0-\u1fd3\u1fd6-\u1fdb"
    "\u1fe0-\u1fec\u1ff2-\u1ff4\u1ff6-\u1ffc\u2102\u2107\u210a-\u2113\u2115\u2119-\u211d\u2124\u2126\u2128"
    "\u212a-\u212d\u212f-\u2134\u2139\u213c-\u213f\u2145-\u2149\u214e\u2183\u2184\u2c00-\u2c7b\u2c7e-\u2ce4"
    "\u2ceb-\u2cee\u2cf2\u2cf3\ua640-\ua66d\ua680-\ua69b\ua722-\ua76f\ua771-\ua787\ua78b-\ua78e\uab70-\uabbf"
    "\ufb00-\ufb06\ufb13-\ufb17\uff21-\uff3a\uff41-\uff5a\U00010400-\U0001044f\U000104b0-\U000104d3"
    "\U000104d8-\U000104fb\U00010c80-\U00010cb2\U00010cc0-\U00010cf2\U000118a0-\U000118df\U0001e900-\U0001e943"
)


def _threes_from_the_right(digit: str, end: str) -> str:
    """A run of digits that `end` follows, in groups of three counted from its end.

    Published as D{1,3}(?=(?:D{3})*END), which looks to the end of the run from every digit.  Here that is done at its
    first digit alone; each other group begins where the one before it ended (\\G).
    """
    return rf"(?<={digit})\G{digit}{{3}}|(?<!{digit}){digit}{{1,3}}(?=(?:{digit}{{3}})*{end})"


# Published as (?=(\d{3})+(?!\d)): cuts before such groups.  \K makes a cut of the end of the group before it.
_CUTS_BEFORE_THREES = r"(?!\A)(?:\G\d{3}\K(?=\d)|(?=(?:\d{3})+(?!\d)))"
_ASIAN_SCRIPTS = (
    "[\u4e00-\u9fff\u3400-\u4dbf\uf900-\ufaff\u3040-\u309f\u30a0-\u30ff\uff65-\uff9f\u2f00-\u2fdf\u0e40-\u0e7f"
    "\u0e80-\u0eff\u1780-\u17ff\u1000-\u109f\uaa60-\uaa7f\ua9e0-\ua9ff\uac00-\ud7af\u1100-\u11ff]+"
)
_DEEPSEEK_CJK = "[一-龥ࠀ-一가-\ud7ff]+"


@dataclass(frozen=True, kw_only=True)
class PreTokenizer:
    """One rule.

    names: the values of `tokenizer.ggml.pre` that mean it.  patterns: cut the text.  byte_patterns: cut what is left
    once more, when it is written in the alphabet that stands for bytes.  writes_bytes: the vocabulary's words are
    written in that alphabet; without it they are text, with U+2581 for a blank.  ignores_merges: a word that is in
    the vocabulary is one token whatever the merges say.  adds_bos: what holds when the file does not say.  needs_bos:
    its models are lost without BOS, whatever the file says (the first conversions of Gemma 4 say that there is none).
    """

    names: tuple[str, ...]
    patterns: tuple[str, ...]
    byte_patterns: tuple[str, ...] = ()
    writes_bytes: bool = True
    ignores_merges: bool = False
    adds_bos: bool = False
    needs_bos: bool = False


DEFAULT = PreTokenizer(
    names=("default",),
    patterns=(r"[\p{P}\$\+<=>\^~\|]+", _WORDS, r"\p{N}+", r"[0-9][0-9][0-9]"),
)
"""What files say, or mean, that were made without knowing the rule."""

_RULES = (
    DEFAULT,
    PreTokenizer(names=("gemma4",), patterns=(), writes_bytes=False, adds_bos=True, needs_bos=True),
    PreTokenizer(names=("sarvam-moe", "granite-embed-multi-311m"), patterns=(), writes_bytes=False, adds_bos=True),
    PreTokenizer(
        names=(
            *("gpt-2", "gpt2", "phi-2", "mpt", "olmo", "jais", "trillion", "granite-docling", "gigachat", "a.x-4.0"),
            *("mellum", "exaone4", "jina-es", "jina-de", "jina-v2-es", "jina-v2-de", "modern-bert", "jina-v1-en"),
            *("jina-v2-code", "roberta-bpe"),
        ),
        patterns=(_WORDS,),
    ),
    PreTokenizer(
        names=("smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b", "mellum2"),
        patterns=(r"\p{N}", _WORDS),
    ),
    PreTokenizer(
        names=("falcon",),
        patterns=(r"[\p{P}\$\+<=>\^~\|`]+", _WORDS),
        byte_patterns=(r"\p{N}+", r"[0-9][0-9][0-9]"),
    ),
    PreTokenizer(
        names=(
            *("qwen2", "deepseek-r1-qwen", "stablelm2", "hunyuan", "solar-open", "megrez", "grok-2", "kormo"),
            "f2llmv2",
        ),
        patterns=(_SINGLE_DIGITS,),
    ),
    PreTokenizer(
        names=("qwen35",),
        patterns=(
            _ANY_CASE_CONTRACTIONS
            + r"|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+"
            + _SPACES,
        ),
    ),
    PreTokenizer(
        names=(
            "llama-bpe",
            "llama3",
            "llama-v3",
            "falcon3",
            "falcon-h1",
            "pixtral",
            "midm-2.0",
            "lfm2",
            "jina-v5-nano",
        ),
        patterns=(_THREE_DIGITS,),
        ignores_merges=True,
        adds_bos=True,
    ),
    PreTokenizer(names=("dbrx", "smaug-bpe", "chatglm-bpe"), patterns=(_THREE_DIGITS,)),
    PreTokenizer(names=("glm4", "glm5"), patterns=(_THREE_DIGITS,), ignores_merges=True),
    PreTokenizer(
        names=("jais-2",),
        patterns=(
            _words_and_lines(
                r"\p{N}{1,3}",
                spaces="".join(rf"|\s{{{count}}}(?!\S)" for count in (512, 256, 128, 64, 32, 16, 8, 4, "1,2")) + r"|\s",
            ),
        ),
    ),
    PreTokenizer(
        names=("deepseek-llm",),
        patterns=(
            *(r"[\r\n]", rf"\s?[{_LETTERS_WITH_CASE}]+", r"\s?[!-/:-~！-／：-～‘-‟\u3000-。]+", r"\s+$"),
            *(_DEEPSEEK_CJK, r"\p{N}"),
        ),
    ),
    PreTokenizer(
        names=("deepseek-coder",),
        patterns=(r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", _DEEPSEEK_CJK, r"\p{N}"),
    ),
    PreTokenizer(
        names=("deepseek-v3", "hunyuan-dense", "joyai-llm", "hy_v4"),
        patterns=(r"\p{N}{1,3}", _CJK, _MARKED_WORDS),
    ),
    PreTokenizer(
        names=("spark2_5",),
        patterns=(r"\p{N}{1,3}", _CJK, _SIGN_AND_LETTERS + r"| ?[\p{P}\p{S}]+|[\r\n]" + _SPACES, r"\p{N}"),
    ),
    PreTokenizer(
        names=("youtu",),
        patterns=(
            "[가-힣ㄱ-ㆎ]+|[！…“”‘’—：；，、-〿︰-﹏]+|[ㄅ-ㄯ]+|" + _CJK,
            _cased_words(r"\p{N}"),
        ),
        ignores_merges=True,
    ),
    PreTokenizer(
        names=("tekken",),
        patterns=(_cased_words(r"\p{N}", contractions=False),),
        ignores_merges=True,
        adds_bos=True,
    ),
    PreTokenizer(
        names=("gpt-4o", "llama4", "kanana2", "talkie", "minimax-m2"),
        patterns=(_cased_words(r"\p{N}{1,3}"),),
    ),
    PreTokenizer(
        names=("granite-embed-multi-97m",),
        patterns=(_cased_words(r"\p{N}{1,3}"),),
        ignores_merges=True,
    ),
    PreTokenizer(
        names=("tiny_aya", "cohere2moe"),
        patterns=(_threes_from_the_right(r"\d", r"\b"), _cased_words(r"\p{N}{1,3}")),
    ),
    PreTokenizer(
        names=("kimi-k2",),
        patterns=(r"\p{Han}+|" + _cased_words(r"\p{N}{1,3}", han=False, breaks=r"[\r\n]*"),),
    ),
    PreTokenizer(
        names=("afmoe",),
        patterns=(_threes_from_the_right(r"\p{N}", r"(?!\p{N})"), _ASIAN_SCRIPTS, _MARKED_WORDS),
    ),
    PreTokenizer(names=("superbpe",), patterns=(r"\p{N}+", _CUTS_BEFORE_THREES)),
    PreTokenizer(
        names=("bailingmoe", "bailingmoe2", "llada-moe"),
        patterns=(
            r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]" + _SPACES,
        ),
    ),
    PreTokenizer(
        names=("seed-coder",),
        patterns=(
            _ANY_CASE_CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1}| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+" + _SPACES,
        ),
    ),
    PreTokenizer(names=("ufakzeka",), patterns=(_words_and_lines(r"\p{N}", opening=""),)),
    PreTokenizer(names=("minicpm5",), patterns=(r"\p{N}{1,3}", _words_and_lines(r"\p{N}+")), ignores_merges=True),
    PreTokenizer(names=("laguna",), patterns=(r"(?:\r?\n)+(?:(?!\r?\n)(?m:.))*", _SINGLE_DIGITS)),
    PreTokenizer(
        names=("exaone-moe",),
        patterns=(
            _ANY_CASE_CONTRACTIONS
            + r"|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]"
            + _SPACES,
        ),
    ),
    PreTokenizer(names=("bloom", "poro-chat", "gpt3-finnish"), patterns=(_BLOOM_WORDS,)),
    PreTokenizer(names=("viking",), patterns=(_BLOOM_WORDS, r"\p{N}")),
    PreTokenizer(
        names=("chameleon",),
        patterns=(
            *("<sentinel:[0-9]+>", "(IMGIMG)((A|B|C|D|E|F|G|H|I){1,4})Z", r"([\t\n]|    |  )", r"\p{N}"),
            *(r"[\p{P}!-/:-@\[-`{-~]", _WORDS),
        ),
        adds_bos=True,
    ),
)

PRE_TOKENIZERS: Mapping[str, PreTokenizer] = {name: rule for rule in _RULES for name in rule.names}
