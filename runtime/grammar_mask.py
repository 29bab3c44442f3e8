"""Holding an answer to a grammar: which tokens may come next, and whether the answer is whole.

Owns the following of an answer, forwards and back.  Does not know what a grammar is made of (constraints.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from runtime.errors import ConstraintError

if TYPE_CHECKING:
    from llguidance import LLMatcher


class GrammarMask:
    """A mask of the sampler.  It follows whatever history it is shown: one that was rolled back, too.

    matcher: at its beginning; its token num_tokens stands for the end of the text.
    """

    def __init__(self, matcher: LLMatcher, *, num_prompt: int, end_ids: frozenset[int], num_tokens: int) -> None:
        self._matcher = matcher
        self._num_prompt = num_prompt
        self._end_ids = np.array(sorted(token_id for token_id in end_ids if token_id < num_tokens), dtype=np.int64)
        self._num_tokens = num_tokens
        self._followed: list[int] = []

    def apply(self, row: np.ndarray, history: Sequence[int]) -> None:
        """Sets the logits of what must not follow to -inf.  history: prompt and answer so far."""
        self._follow(history)
        packed = np.frombuffer(self._matcher.compute_bitmask(), dtype=np.uint8)
        if self._matcher.is_error():
            fault = self._matcher.get_error().partition("\n")[0]
            raise ConstraintError(f"The answer can't be held to its schema or grammar any more: {fault}")
        allowed = np.unpackbits(packed, count=self._num_tokens + 1, bitorder="little").view(np.bool_)
        ends = row[self._end_ids]
        row[~allowed[: self._num_tokens]] = -np.inf
        row[self._end_ids] = ends if allowed[self._num_tokens] else -np.inf

    def is_whole(self, history: Sequence[int]) -> bool:
        """Whether the answer is complete and nothing can follow."""
        self._follow(history)
        return self._matcher.is_accepting() and self._matcher.is_stopped()

    def _follow(self, history: Sequence[int]) -> None:
        answer = list(history[self._num_prompt :])
        followed = self._followed
        if answer[: len(followed)] != followed:
            common = next(
                (place for place, pair in enumerate(zip(answer, followed, strict=False)) if pair[0] != pair[1]),
                min(len(answer), len(followed)),
            )
            self._matcher.rollback(len(followed) - common)
            del followed[common:]
        new_ids = answer[len(followed) :]
        if new_ids:
            count = self._matcher.try_consume_tokens(new_ids)
            followed += new_ids[:count]
            if count < len(new_ids):
                raise ConstraintError(
                    f"The answer's token {len(followed)} ({new_ids[count]}) does not follow from its grammar."
                )
