"""What a file's metadata says about its tokens, checked and completed.

Owns the keys of `tokenizer.ggml`, their defaults, and what is done about files that forgot something.  Does not know
how text becomes ids.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from models.errors import VocabularyError, quoted
from models.gguf_values import MetadataValue
from models.merge_signatures import known_merges
from models.pretokenizers import DEFAULT, PRE_TOKENIZERS, PreTokenizer
from models.special_tokens import BARRED, BYTE_TEXT, END_TEXTS, END_TEXTS_OF_CONTROLS, TokenKind

Metadata = Mapping[str, MetadataValue]
Algorithm = Literal["byte pairs", "text pairs", "sentence pieces"]

_PREFIX = "tokenizer.ggml."
_KINDS = ("gpt2", "gemma4", "llama")
_RULES_OF_KINDS: Mapping[str, str] = {"gemma4": "gemma4"}
"""Kinds that mean a rule for words; files of these need not name it."""
_END_KEYS = ("eos_token_id", "eot_token_id", "eom_token_id")
_ROLE_KEYS = (*_END_KEYS, "bos_token_id", "unknown_token_id", "padding_token_id")
_DAMAGED = "the file is damaged or was not made by a current converter."
_SPECIAL_DEFAULTS = {"bos_token_id": 1, "eos_token_id": 2}  # of the SentencePiece kind, where these are control tokens


@dataclass(frozen=True, kw_only=True)
class TokenTables:
    """The tokens by id, and what the file says of their use.

    kinds: int32 [size], values of TokenKind.  scores: float32 [size], empty for pairs.  merges: empty for sentence
    pieces.  adds_blank: a blank is put before a text.  end_ids: tokens that end a turn or a text.  notes: sentences for
    the user.
    """

    algorithm: Algorithm
    rule: PreTokenizer
    texts: Sequence[str]
    kinds: np.ndarray
    scores: np.ndarray
    merges: Sequence[str]
    bos_id: int | None
    eos_id: int | None
    add_bos: bool
    add_eos: bool
    adds_blank: bool
    end_ids: frozenset[int]
    notes: tuple[str, ...]


def read_token_tables(metadata: Metadata) -> TokenTables:
    """Raises VocabularyError where the metadata lacks a table or contradicts itself."""
    notes: list[str] = []
    kind = _vocabulary_kind(metadata)
    texts = _strings(metadata, "tokens")
    roles = _roles(metadata, len(texts), notes)
    kinds = _kinds(metadata, texts, roles, notes)
    is_pairs = kind != "llama"
    merges = _strings(metadata, "merges") if is_pairs else ()
    rule = _rule(metadata, kind, merges, notes) if is_pairs else DEFAULT
    if not is_pairs:
        for key, default in _SPECIAL_DEFAULTS.items():
            if _PREFIX + key not in metadata and default < len(texts) and kinds[default] == TokenKind.CONTROL:
                roles[key] = default
    bos_id, eos_id = roles.get("bos_token_id"), roles.get("eos_token_id")
    return TokenTables(
        algorithm=_algorithm(rule) if is_pairs else "sentence pieces",
        rule=rule,
        texts=texts,
        kinds=kinds,
        scores=np.empty(0, np.float32) if is_pairs else _numbers(metadata, "scores", len(texts), np.float32),
        merges=merges,
        bos_id=bos_id,
        eos_id=eos_id,
        add_bos=_adds_bos(metadata, rule, rule.adds_bos if is_pairs else True, notes) and bos_id is not None,
        add_eos=_flag(metadata, "add_eos_token", False) and eos_id is not None,
        adds_blank=not is_pairs and _flag(metadata, "add_space_prefix", True),
        end_ids=_end_ids(texts, kinds, roles),
        notes=tuple(notes),
    )


def _vocabulary_kind(metadata: Metadata) -> str:
    name = _checked(metadata, "model", str, "a string")
    if name not in _KINDS:
        raise VocabularyError(
            f"The vocabulary is of the kind {quoted(name)} (tokenizer.ggml.model), and Tandem reads "
            f"{', '.join(map(quoted, _KINDS[:-1]))} and {quoted(_KINDS[-1])}: choose another model."
        )
    return name


def _algorithm(rule: PreTokenizer) -> Algorithm:
    return "byte pairs" if rule.writes_bytes else "text pairs"


def _rule(metadata: Metadata, kind: str, merges: Sequence[str], notes: list[str]) -> PreTokenizer:
    name = _RULES_OF_KINDS.get(kind, metadata.get(_PREFIX + "pre"))
    if isinstance(name, str) and name in PRE_TOKENIZERS:
        return PRE_TOKENIZERS[name]
    if name is None:
        problem = "The file does not say how its vocabulary cuts text into words (tokenizer.ggml.pre is missing)"
    else:
        rule = quoted(str(name))
        problem = f"The file cuts text into words by a rule that Tandem does not know (tokenizer.ggml.pre is {rule})"
    if (found := known_merges(merges)) is not None:
        notes.append(f"{problem}: its merges are those of {found.family}, so the rule {found.rule!r} is used.")
        return PRE_TOKENIZERS[found.rule]
    notes.append(
        f"{problem}: the default rule is used, numbers, blanks and punctuation may become other tokens than in "
        "training, and answers may be worse. A newer conversion of the model, or another model, avoids that."
    )
    return DEFAULT


def _kinds(metadata: Metadata, texts: Sequence[str], roles: Mapping[str, int], notes: list[str]) -> np.ndarray:
    """int32 [size].  Tokens that end a turn are control tokens, whatever the file says."""
    if _PREFIX + "token_type" in metadata:
        kinds = _numbers(metadata, "token_type", len(texts), np.int32)
    else:
        kinds = np.full(len(texts), TokenKind.NORMAL, np.int32)
        for token_id, text in enumerate(texts):
            if BARRED.fullmatch(text):
                kinds[token_id] = TokenKind.CONTROL
            elif BYTE_TEXT.fullmatch(text):
                kinds[token_id] = TokenKind.BYTE
        kinds[[roles[key] for key in _ROLE_KEYS if key in roles]] = TokenKind.CONTROL
        notes.append(
            "The file does not say which of its tokens are control tokens (tokenizer.ggml.token_type is missing): they "
            "are guessed from their names, and one that was missed may show up in answers as text."
        )
    for text in END_TEXTS.intersection(texts):
        kinds[texts.index(text)] = TokenKind.CONTROL
    return kinds


def _roles(metadata: Metadata, size: int, notes: list[str]) -> dict[str, int]:
    """The tokens that the file names for a purpose, by key."""
    roles: dict[str, int] = {}
    for key in _ROLE_KEYS:
        if _PREFIX + key not in metadata:
            continue
        token_id = _checked(metadata, key, int, "a whole number")
        if 0 <= token_id < size:
            roles[key] = token_id
        else:
            notes.append(
                f"The file names token {token_id} as its {key.removesuffix('_id')}, and has only the tokens 0 to "
                f"{size - 1}: that is left out, and an answer may not end where it should."
            )
    return roles


def _end_ids(texts: Sequence[str], kinds: np.ndarray, roles: Mapping[str, int]) -> frozenset[int]:
    named = {roles[key] for key in _END_KEYS if key in roles}
    known = {
        texts[token_id]: token_id
        for token_id in np.flatnonzero(kinds == TokenKind.CONTROL).tolist()
        if texts[token_id] in END_TEXTS or texts[token_id] in END_TEXTS_OF_CONTROLS
    }
    # Where a turn is made of several messages, <|end|> ends a message, and these two the turn.
    if {"<|return|>", "<|call|>"} <= known.keys():
        known.pop("<|end|>", None)
    return frozenset(named | set(known.values()))


def _strings(metadata: Metadata, key: str) -> list[str]:
    values = _checked(metadata, key, list, "a list of strings")
    if set(map(type, values)) != {str}:
        raise VocabularyError(f"{_PREFIX}{key} should be a list of strings that is not empty, and is not: {_DAMAGED}")
    return values


def _numbers(metadata: Metadata, key: str, size: int, dtype: type[np.generic]) -> np.ndarray:
    values = np.asarray(_checked(metadata, key, (list, np.ndarray), "a list of numbers"))
    if values.ndim != 1 or values.dtype.kind not in "iuf":
        raise VocabularyError(f"{_PREFIX}{key} should be a list of numbers and is not: {_DAMAGED}")
    if len(values) != size:
        raise VocabularyError(f"{_PREFIX}{key} has {len(values)} entries, and there are {size} tokens: {_DAMAGED}")
    return values.astype(dtype)


def _adds_bos(metadata: Metadata, rule: PreTokenizer, default: bool, notes: list[str]) -> bool:
    says = _flag(metadata, "add_bos_token", default)
    if rule.needs_bos and not says:
        notes.append(
            "The file says that no BOS token stands before a text (tokenizer.ggml.add_bos_token), and models with this "
            "vocabulary need one: it is put there."
        )
    return says or rule.needs_bos


def _flag(metadata: Metadata, key: str, default: bool) -> bool:
    return _checked(metadata, key, bool, "true or false") if _PREFIX + key in metadata else default


def _checked(metadata: Metadata, key: str, expected: type | tuple[type, ...], meaning: str) -> Any:
    value = metadata.get(_PREFIX + key)
    if value is None:
        raise VocabularyError(f"The file has no {_PREFIX}{key}, so text can't be turned into tokens: {_DAMAGED}")
    if not isinstance(value, expected) or (expected is int and isinstance(value, bool)):
        raise VocabularyError(f"{_PREFIX}{key} should be {meaning}, and is {quoted(str(value))}: {_DAMAGED}")
    return value
