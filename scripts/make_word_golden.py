"""Writes tests/data/words.json.gz: what `tokenizers` makes of trying texts by the rules models were published with.

Owns the published rules, written as their tokenizer.json files have them (steps of the library, not Tandem's patterns),
and a small vocabulary that merges across every border, so that a cut in another place gives other ids.  Run it from
the root: python scripts/make_word_golden.py
"""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel
from tokenizers.trainers import BpeTrainer

TARGET = Path(__file__).resolve().parents[1] / "tests" / "data" / "words.json.gz"
NUM_TOKENS = 1400

TEXTS = (
    "I'm sure we'll say they've done it; DON'T, I'D, WE'LL and he'S 'tis 'em it's'",
    "1 12 123 1234 12345 1234567 12345678901, 3.14159 x86_64 2024-11-30 1,234,567.89 v2 99abc 123456abc",
    "½ x² 3³ ¼ ٣٤٥٦ १२३४ Ⅷ ⅞ ①②③④ 10⁻³",
    "a  b   c    d     e\tf\t\tg \t h  ",
    "\n\n\n one \n\n two\r\n\r\nthree\r four \n\t five\n ",
    "   \n  \n\n x\n   y",
    " trailing \n",
    "camelCase PascalCase HTTPServer iPhone XMLHttpRequest aBcDeF ÉCOLEÉcole ŁódźŁÓDŹ",
    "snake_case __init__ foo(bar)[1:2]{'a': \"b\"} != == <= => -> ++i; //x /* y */ #!/usr/bin",
    "für naïve café cafe\u0301 e\u0301e\u0301 über Straße ÅNGSTRÖM İstanbul ŉ",
    "em — dash – en… “quotes” ‘single’ «guillemets» ?! ... ,,, ;;; $5 €6 ^~|` a`b",
    "😀 😶\u200d🌫\ufe0f 👩\u200d👩\u200d👧 🇩🇪 ✅ é😀ñ 🦙.cpp",
    "你好世界，我想在apple工作1314151天～ 東京タワーへ行く。ひらがなカタカナ ｶﾀｶﾅ 漢字kanji ㄅㄆㄇ",
    "안녕하세요 세계! 한국어ㅎㅎ ㄱㄴㄷ",
    "مرحبا بالعالم ١٢٣، كيف حالك؟ שלום עולם",
    "नमस्ते दुनिया। हिन्दी में १२३ বাংলা தமிழ் ไทยภาษา ភាសាខ្មែរ",
    "Привет, мир! нещо на Български ΓΕΙΑ ΣΟΥ Κόσμε ǅ ǆ Ა",
    "'''''' ```` \"\"\"\" ...... !!!!!! ?????? ------ ======= ///// \\\\\\",
    " (parens) [brackets] {braces} <tags> </tag> @user #tag %d &amp;",
    "\u00a0non\u00a0breaking\u2003em space\u3000full width\u200bzero",
    "Hello world\nHello World\n\nHELLO  WORLD\n\n\n",
    "def f(x):\n    if x > 10:\n        return x**2\n\n\n# end\n",
    "'ſ it'ſ K 'K",
    "<sentinel:12> IMGIMGABZ \t\n",
    " ",
    "\n",
    "a\u0300\u0301 \u0300alone",
    "！全角：１２３ＡＢＣ、。〈〉",
    "x/y/z\n/\n//\n a/\n\n!/\n",
    "1234567890123 12 1 1234",
    "I'dlike it'sok WE'VEdone l'été",
    "x  12   7     y          z    \n\n\n\nw\n\n 5\n\n  6",
    "",
)

BORDERS = ("          \n\n\n\n 'd", "\n\n\n  ", "'dl 'so 'VEd", "  1   7  12 ", "     y    z")
LINES = (*TEXTS, *(8 * BORDERS), *(" ".join(text.split()) for text in TEXTS), *(text.lower() for text in TEXTS))

CONTRACTIONS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
QWEN2 = CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
CL100K = QWEN2.replace(r"|\p{N}|", r"|\p{N}{1,3}|")
O200K = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
    r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
TEKKEN = O200K.replace("(?i:'s|'t|'re|'ve|'m|'ll|'d)?", "").replace("{1,3}", "")
YOUTU = O200K.replace("{1,3}", "")
KIMI = r"[\p{Han}]+|" + O200K.replace(r"\p{M}]", r"\p{M}&&[^\p{Han}]]").replace(r"[\r\n/]*", r"[\r\n]*")
DEEPSEEK_3 = (
    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
SPARK = DEEPSEEK_3.replace(r"+[\r\n]*|\s*[\r\n]+|", r"+|[\r\n]|")
KANA = "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+"
ASIA = (
    "[\u4e00-\u9fff\u3400-\u4dbf\uf900-\ufaff\u3040-\u309f\u30a0-\u30ff\uff65-\uff9f\u2f00-\u2fdf\u0e40-\u0e7f"
    "\u0e80-\u0eff\u1780-\u17ff\u1000-\u109f\uaa60-\uaa7f\ua9e0-\ua9ff\uac00-\ud7af\u1100-\u11ff]+"
)
DEEPSEEK_CJK = "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+"
BLOOM = " ?[^(\\s|[.,!?\u2026\u3002\uff0c\u3001\u0964\u06d4\u060c])]+"
JAIS_BLANKS = "".join(rf"\s{{{count}}}(?!\S)|" for count in (512, 256, 128, 64, 32, 16, 8, 4, "1,2")) + r"\s{1}"
GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"

BYTES: dict[str, Any] = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
WORDS = {**BYTES, "use_regex": True}
DIGITS = {"type": "Digits", "individual_digits": True}


def split(pattern: str, behavior: str = "Isolated") -> dict[str, Any]:
    """A step that cuts by a pattern."""
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": behavior, "invert": False}


def letters_with_case() -> str:
    """The class of letters in DeepSeek LLM's rule: those with a case, as the library's older Unicode has them."""
    from models.pretokenizers import PRE_TOKENIZERS  # too long to be written down twice

    return PRE_TOKENIZERS["deepseek-llm"].patterns[1]


def rules() -> dict[str, list[dict[str, Any]]]:
    """The steps of each published rule, by the name that GGUF files give it."""
    return {
        "gpt-2": [WORDS],
        "smollm": [DIGITS, WORDS],
        "falcon": [
            {"type": "Punctuation", "behavior": "Contiguous"},
            WORDS,
            {"type": "Digits", "individual_digits": False},
            split("[0-9][0-9][0-9]"),
        ],
        "default": [split(r"[\p{P}\$\+<=>\^~\|]+"), split(GPT2), split(r"\p{N}+"), split("[0-9][0-9][0-9]"), BYTES],
        "qwen2": [split(QWEN2), BYTES],
        "qwen35": [
            split(
                CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+"
                r"|\s+(?!\S)|\s+"
            ),
            BYTES,
        ],
        "llama-bpe": [split(CL100K), BYTES],
        "dbrx": [split(CL100K), BYTES],
        "glm4": [split(CL100K), BYTES],
        "jais-2": [split(CL100K.replace(r"\s+(?!\S)|\s+", JAIS_BLANKS)), BYTES],
        "deepseek-llm": [
            *(split(r"[\r\n]"), split(letters_with_case())),
            split("\\s?[!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3000-\u3002]+"),
            *(split(r"\s+$"), split(DEEPSEEK_CJK), DIGITS, BYTES),
        ],
        "deepseek-coder": [
            *(split(r"[\r\n]"), split(r"\s?\p{L}+"), split(r"\s?\p{P}+"), split(DEEPSEEK_CJK), DIGITS, BYTES)
        ],
        "deepseek-v3": [split(r"\p{N}{1,3}"), split(KANA), split(DEEPSEEK_3), BYTES],
        "spark2_5": [split(r"\p{N}{1,3}"), split(KANA), split(SPARK), DIGITS, BYTES],
        "youtu": [
            split(
                "[\uac00-\ud7a3\u3131-\u318e]+|[\uff01\u2026\u201c\u201d\u2018\u2019\u2014\uff1a\uff1b\uff0c"
                "\u3001-\u303f\ufe30-\ufe4f]+|[\u3105-\u312f]+|" + KANA
            ),
            *(split(YOUTU), BYTES),
        ],
        "tekken": [split(TEKKEN), BYTES],
        "gpt-4o": [split(O200K), BYTES],
        "granite-embed-multi-97m": [split(O200K), BYTES],
        "tiny_aya": [split(r"\d{1,3}(?=(?:\d{3})*\b)"), split(O200K), BYTES],
        "kimi-k2": [split(KIMI), BYTES],
        # As llama.cpp has it: the published file was not at hand.
        "afmoe": [split(r"\p{N}+"), split(r"(?=(\p{N}{3})+(?!\p{N}))"), split(ASIA), split(DEEPSEEK_3), BYTES],
        "superbpe": [split(r"\p{N}+"), split(r"(?=(\d{3})+(?!\d))"), BYTES],
        "bailingmoe": [
            split(
                r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)"
                r"|\s+"
            ),
            BYTES,
        ],
        "seed-coder": [
            split(CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1}| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|\s+(?!\S)|\s+"),
            BYTES,
        ],
        "ufakzeka": [split(QWEN2.removeprefix(CONTRACTIONS + "|")), BYTES],
        "minicpm5": [split(r"\p{N}{1,3}"), split(QWEN2.replace(r"|\p{N}|", r"|\p{N}+|")), BYTES],
        "laguna": [split(r"(?:\r?\n)+(?!\r?\n)", "MergedWithNext"), split(QWEN2), BYTES],
        "exaone-moe": [
            split(
                CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]?"
                r"|\s*[\r\n]|\s+(?!\S)|\s+"
            ),
            BYTES,
        ],
        "bloom": [split(BLOOM), BYTES],
        "viking": [split(BLOOM), DIGITS, BYTES],
        "chameleon": [
            *(split("<sentinel:[0-9]+>"), split("(IMGIMG)((A|B|C|D|E|F|G|H|I){1,4})Z"), split("([\\t\\n]|    |  )")),
            *(DIGITS, {"type": "Punctuation", "behavior": "Isolated"}, WORDS),
        ],
    }


def trained(*, over_bytes: bool) -> tuple[list[str], list[str]]:
    """Tokens and merges of a vocabulary whose merges cross the borders of words, over bytes or over characters."""
    tokenizer = Tokenizer(BPE())
    lines = list(LINES)
    alphabet: list[str] = []
    if over_bytes:
        tokenizer.pre_tokenizer = ByteLevel(add_prefix_space=False, use_regex=False)
        alphabet = ByteLevel.alphabet()
    else:
        lines = [line.replace(" ", "\u2581") for line in lines]
    trainer = BpeTrainer(vocab_size=NUM_TOKENS, initial_alphabet=alphabet, show_progress=False, max_token_length=8)
    tokenizer.train_from_iterator([*lines, *lines], trainer)
    model = json.loads(tokenizer.to_str())["model"]
    tokens = sorted(model["vocab"], key=model["vocab"].__getitem__)
    return tokens, [" ".join(merge) for merge in model["merges"]]


def ids_by(steps: list[dict[str, Any]], tokens: list[str], merges: list[str]) -> list[list[int]]:
    """The ids of all texts by a rule."""
    model = {"type": "BPE", "vocab": dict(zip(tokens, range(len(tokens)), strict=True)), "merges": merges}
    document = {"version": "1.0", "model": model, "pre_tokenizer": {"type": "Sequence", "pretokenizers": steps}}
    return _encoded(document)


def ids_of_text(tokens: list[str], merges: list[str]) -> list[list[int]]:
    """The ids of all texts by Gemma 4's rule: blanks written as U+2581, then nothing but merges and byte tokens."""
    model = {
        **{"type": "BPE", "vocab": dict(zip(tokens, range(len(tokens)), strict=True)), "merges": merges},
        **{"byte_fallback": True, "fuse_unk": True, "unk_token": "<unk>"},
    }
    normalizer = {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"}
    cut = {"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious", "invert": False}
    return _encoded({"version": "1.0", "model": model, "normalizer": normalizer, "pre_tokenizer": cut})


def _encoded(document: dict[str, Any]) -> list[list[int]]:
    whole = {"normalizer": None, "post_processor": None, "decoder": None, "added_tokens": [], **document}
    tokenizer = Tokenizer.from_str(json.dumps({**whole, "truncation": None, "padding": None}))
    return [tokenizer.encode(text, add_special_tokens=False).ids for text in TEXTS]


def main() -> None:
    """Writes the file."""
    tokens, merges = trained(over_bytes=True)
    text_tokens, text_merges = trained(over_bytes=False)
    text_tokens = ["<unk>", *(f"<0x{byte:02X}>" for byte in range(256)), *text_tokens]
    content = {
        "texts": TEXTS,
        "bytes": {"tokens": tokens, "merges": merges},
        "characters": {"tokens": text_tokens, "merges": text_merges},
        "ids": {name: ids_by(steps, tokens, merges) for name, steps in rules().items()}
        | {"gemma4": ids_of_text(text_tokens, text_merges)},
    }
    data = json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode()
    TARGET.write_bytes(gzip.compress(data, 9, mtime=0))
    print(f"{TARGET}: {len(content['ids'])} rules, {len(TEXTS)} texts, {TARGET.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
