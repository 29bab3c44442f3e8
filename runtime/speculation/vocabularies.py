"""Whether two models mean the same by their token ids.

Owns the comparison, by the tokens' text.  Does not know models.  Rows of padding at the end of a vocabulary are no
difference: no text has them, and they are never guessed.
"""

from __future__ import annotations

import re

from models.errors import escaped
from models.vocabulary import Vocabulary

# What converters write into rows without a token, whatever kind they give them.
_PADDING = re.compile(r"\[PAD\d*\]|<pad\d*>|<unused\d+>|<\|reserved_special_token_\d+\|>")


def difference(target: Vocabulary, draft: Vocabulary, *, other: str = "the draft model") -> str | None:
    """A sentence that names the first token that differs; None when a guess of one means the same to the other.

    other: what the second model is called in it.
    """
    shared = min(target.size, draft.size)
    for token_id in range(shared):
        ours, theirs = target.token_text(token_id), draft.token_text(token_id)
        if ours != theirs and not (_is_padding(target, token_id) and _is_padding(draft, token_id)):
            return (
                f'token {token_id} is "{escaped(theirs)}" in {other} and "{escaped(ours)}" in the model: '
                f"their vocabularies differ"
            )
    larger, name = (target, "the model") if target.size > draft.size else (draft, other)
    for token_id in range(shared, larger.size):
        if not _is_padding(larger, token_id):
            return (
                f'token {token_id}, "{escaped(larger.token_text(token_id))}", is in {name} alone: '
                f"their vocabularies differ"
            )
    return None


def _is_padding(vocabulary: Vocabulary, token_id: int) -> bool:
    return vocabulary.is_unused(token_id) or _PADDING.fullmatch(vocabulary.token_text(token_id)) is not None
