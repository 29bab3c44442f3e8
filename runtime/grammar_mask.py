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

    from runtime.token_texts import BannedStrings


# Where a grammar leaves so few tokens, it may leave no way round a banned text behind one of them.
_FEW_TOKENS = 256
_MOST_STEPS = 8


class GrammarMask:
    """A mask of the sampler.  It follows whatever history it is shown: one that was rolled back, too.

    matcher: at its beginning; its token num_tokens stands for the end of the text.  banned: what the answer must not
    hold besides: a token behind which the grammar has nothing but a banned text is forbidden before it is taken.
    """

    def __init__(
        self,
        matcher: LLMatcher,
        *,
        num_prompt: int,
        end_ids: frozenset[int],
        num_tokens: int,
        banned: BannedStrings | None = None,
    ) -> None:
        self._matcher = matcher
        self._banned = banned
        self._num_prompt = num_prompt
        self._end_ids = np.array(sorted(token_id for token_id in end_ids if token_id < num_tokens), dtype=np.int64)
        self._num_tokens = num_tokens
        self._followed: list[int] = []

    def apply(self, row: np.ndarray, history: Sequence[int]) -> None:
        """Sets the logits of what must not follow to -inf.  history: prompt and answer so far."""
        self._follow(history)
        allowed = self._allowed(self._matcher)
        self._check()
        if self._banned is not None and np.count_nonzero(allowed[: self._num_tokens]) <= _FEW_TOKENS:
            self._leave_ways_out(allowed, history, self._banned)
        ends = row[self._end_ids]
        row[~allowed[: self._num_tokens]] = -np.inf
        row[self._end_ids] = ends if allowed[self._num_tokens] else -np.inf

    def _leave_ways_out(self, allowed: np.ndarray, history: Sequence[int], banned: BannedStrings) -> None:
        """Takes those tokens out of `allowed` behind which every way completes a banned text."""
        for token_id in np.flatnonzero(allowed[: self._num_tokens]).tolist():
            if self._is_dead_end(self._matcher, [*history, token_id], banned, _MOST_STEPS):
                allowed[token_id] = False

    def _is_dead_end(self, matcher: LLMatcher, history: list[int], banned: BannedStrings, most_steps: int) -> bool:
        """Whether history's last token, which follows what `matcher` has seen, leaves no way."""
        trial = matcher.deep_copy()
        trial.consume_token(history[-1])
        if banned.would_complete(history, trial.compute_ff_bytes()):
            return True
        if most_steps == 0 or not banned.is_under_way(history):
            return False
        allowed = self._allowed(trial)
        if allowed[self._num_tokens] or np.count_nonzero(allowed) > _FEW_TOKENS:
            return False
        ids = np.flatnonzero(allowed).tolist()
        return all(self._is_dead_end(trial, [*history, token_id], banned, most_steps - 1) for token_id in ids)

    def _allowed(self, matcher: LLMatcher) -> np.ndarray:
        """bool [num_tokens + 1]: what may come next; the last stands for the end."""
        packed = np.frombuffer(matcher.compute_bitmask(), dtype=np.uint8)
        return np.unpackbits(packed, count=self._num_tokens + 1, bitorder="little").view(np.bool_)

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
            self._check()
            if count < len(new_ids):
                raise ConstraintError(
                    f"The answer's token {len(followed)} ({new_ids[count]}) does not follow from its grammar."
                )

    def _check(self) -> None:
        if self._matcher.is_error():
            fault = self._matcher.get_error().partition("\n")[0].rstrip(".")
            raise ConstraintError(f"The answer can't be held to its schema or grammar any more: {fault}.")
