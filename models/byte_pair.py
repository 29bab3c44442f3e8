"""Byte-level byte-pair vocabularies: from text to ids and from ids to bytes.

Owns the alphabet that stands for bytes and the building of the merging machine.  Does not know special tokens (the
text that comes here is plain) or files.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING

from models.errors import VocabularyError, quoted
from models.pretokenizers import PreTokenizer

if TYPE_CHECKING:
    from tokenizers import Tokenizer
    from tokenizers.models import BPE

Merge = tuple[str, str]
_BROKEN = re.compile("[\ud800-\udfff]")  # bytes that were not UTF-8: no text leads to such a token


@cache
def byte_alphabet() -> Mapping[int, str]:
    """The character that stands for each byte in the tokens' texts (GPT-2's choice).

    A byte that is a printable Latin-1 character stands for itself, the others for U+0100 onwards in order.
    """
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = (byte for byte in range(256) if byte not in printable)
    return {**{byte: chr(byte) for byte in printable}, **{byte: chr(256 + idx) for idx, byte in enumerate(others)}}


@cache
def _bytes_of_characters() -> Mapping[str, int]:
    return {character: byte for byte, character in byte_alphabet().items()}


_LONG_TEXT = 4096


class MergingMachine:
    """Cuts a text into words and merges within them.  num_lost_merges: those of tokens that are not there.

    Raises VocabularyError when the merges are no merges.
    """

    def __init__(
        self, *, vocabulary: Mapping[str, int], merges: Sequence[str], rule: PreTokenizer, unknown: str | None = None
    ) -> None:
        """vocabulary: ids by text.  merges: 'left right', the first one first.  unknown: the text of the token for what
        has none; where the rule writes text, what has none becomes byte tokens if it is None."""
        known = dict(vocabulary)
        pairs = _split_merges(merges)
        self.num_lost_merges = 0
        try:
            model = _machine(known, pairs, rule, unknown)
        except Exception:  # the library raises a bare Exception for a merge of what is not in the vocabulary
            known = {text: token_id for text, token_id in known.items() if not _BROKEN.search(text)}
            kept = [pair for pair in pairs if {*pair, "".join(pair)} <= known.keys()]
            self.num_lost_merges = len(pairs) - len(kept)
            model = _machine(known, kept, rule, unknown)
        self._tokenizer = _tokenizer(model, rule)

    def encode(self, text: str) -> list[int]:
        """The ids of a text without lone surrogates."""
        if len(text) > _LONG_TEXT:  # which takes seconds: other threads go on meanwhile, and offsets are left out
            return self._tokenizer.encode_batch_fast([text], add_special_tokens=False)[0].ids
        return self._tokenizer.encode(text, add_special_tokens=False).ids


class BytePairEncoder:
    """Plain text to ids and ids to bytes.  missing_bytes: those without a token.

    Raises VocabularyError when the merges are no merges.
    """

    def __init__(
        self, *, texts: Sequence[str], merges: Sequence[str], rule: PreTokenizer, specials: Collection[int]
    ) -> None:
        """texts: by id.  merges: 'left right', the first one first.  specials: ids that plain text never becomes."""
        self._texts = texts
        vocabulary = {text: token_id for token_id, text in enumerate(texts)}
        for token_id in specials:
            if vocabulary.get(texts[token_id]) == token_id:
                del vocabulary[texts[token_id]]
        self._byte_ids = {
            byte: vocabulary[character] for byte, character in byte_alphabet().items() if character in vocabulary
        }
        self.missing_bytes = bytes(byte for byte in range(256) if byte not in self._byte_ids)
        self._machine = MergingMachine(vocabulary=vocabulary, merges=merges, rule=rule)
        self.num_lost_merges = self._machine.num_lost_merges

    def encode(self, text: str, *, after_special: bool) -> list[int]:
        """The ids of a text without lone surrogates.  What stands before it makes no difference here.

        Characters with a byte that has no token, which the library would drop, are encoded as U+FFFD.
        """
        if lacking := self.missing_bytes:
            data = text.encode()
            if len(data.translate(None, lacking)) < len(data):
                text = "".join("\ufffd" if set(character.encode()) & {*lacking} else character for character in text)
        return self._machine.encode(text)

    def byte_id(self, byte: int) -> int:
        """The token of one byte that is not missing."""
        return self._byte_ids[byte]

    def token_bytes(self, token_id: int) -> bytes:
        """What a token that was learned (not a special one) stands for."""
        table = _bytes_of_characters()
        try:
            return bytes([table[character] for character in self._texts[token_id]])
        except KeyError:  # a token that was added to the vocabulary as it is written
            return self._texts[token_id].encode("utf-8", "surrogateescape")


def _split_merges(merges: Sequence[str]) -> list[Merge]:
    pairs = [tuple(merge.split(" ")) for merge in merges]
    for idx, pair in enumerate(pairs):
        if len(pair) != 2:
            raise VocabularyError(
                f"Merge {idx} in tokenizer.ggml.merges is {quoted(merges[idx])}, and two tokens with one blank "
                "between them were expected: the file is damaged or of a kind that is not supported."
            )
    return pairs  # pyright: ignore[reportReturnType]  (the loop has checked the lengths)


def _machine(vocabulary: dict[str, int], pairs: list[Merge], rule: PreTokenizer, unknown: str | None) -> BPE:
    from tokenizers.models import BPE

    if rule.writes_bytes:
        return BPE(vocabulary, pairs, ignore_merges=rule.ignores_merges)
    falls_back = unknown is None
    return BPE(vocabulary, pairs, ignore_merges=rule.ignores_merges, byte_fallback=falls_back, unk_token=unknown)


def _tokenizer(model: BPE, rule: PreTokenizer) -> Tokenizer:
    from tokenizers import Regex, Tokenizer
    from tokenizers.pre_tokenizers import ByteLevel, Sequence, Split

    def cuts(patterns: Sequence[str]) -> list[Split]:
        return [Split(Regex(pattern), behavior="isolated") for pattern in patterns]

    tokenizer = Tokenizer(model)
    # The words are bytes written in the alphabet above; the first cuts see the text itself.
    writing = [ByteLevel(add_prefix_space=False, use_regex=False)] if rule.writes_bytes else []
    steps = [*cuts(rule.patterns), *writing, *cuts(rule.byte_patterns)]
    if steps:
        tokenizer.pre_tokenizer = Sequence(steps)  # pyright: ignore[reportAttributeAccessIssue]
    return tokenizer
