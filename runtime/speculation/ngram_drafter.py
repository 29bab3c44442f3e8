"""Guesses from the text so far: what followed the last time that its end stood there.

Owns the indexes of the sequences.  Does not know models or costs.  A guess costs no pass; how much to trust one
depends on how long the match is, every token that was right making it longer by one.
"""

from __future__ import annotations

from collections.abc import Sequence

from runtime.sequence import TokenSequence
from runtime.speculation.drafter import Guess, Run, Wish
from runtime.speculation.suffix_index import SuffixIndex

# A grade for matches of 2, 3, 4, 5 to 6, 7 to 9, 10 to 15, 16 to 31 tokens, and for longer ones.
_LENGTHS = (3, 4, 5, 7, 10, 16, 32)
_PRIOR = (0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.85, 0.9)


class NgramDrafter:
    """Looks the text's end up in the text; see Drafter."""

    name = "guesses from the text"
    prior = _PRIOR
    costs = None
    context_size = None

    def __init__(self) -> None:
        self._indexes: dict[TokenSequence, SuffixIndex] = {}

    def num_unread(self, sequence: TokenSequence, window: int | None) -> int:
        return 0

    def propose(self, wishes: Sequence[Wish], run: Run) -> list[Guess]:
        return [self._propose(wish) for wish in wishes]

    def guess_ahead(self, wishes: Sequence[Wish], run: Run) -> list[Guess]:
        return []

    def forget(self, sequence: TokenSequence) -> None:
        self._indexes.pop(sequence, None)

    def close(self) -> None:
        self._indexes.clear()

    def _propose(self, wish: Wish) -> Guess:
        token_ids = wish.sequence.ids
        match = self._indexes.setdefault(wish.sequence, SuffixIndex()).match(token_ids)
        guess = Guess()
        if match is None:
            return guess
        grade = 0
        period = len(token_ids) - match.end
        for index in range(wish.most):
            while grade < len(_LENGTHS) and match.length + index >= _LENGTHS[grade]:
                grade += 1
            # A match that runs into the end of the text repeats: the guess goes on with itself.
            guess.append(token_ids[match.end + index % period], grade)
            if guess.token_ids[-1] in wish.end_ids:
                break
        return guess
