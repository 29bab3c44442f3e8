"""How often guessed tokens are right, by their grade: measured, and shrunk towards a prior.

Owns the counts.  Does not know drafters or costs.  What was seen lately counts more; what is seen of one grade says
something about the others too: a drafter that is wrong where it is sure is not believed where it is less so.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from operator import mul

_PRIOR_TOKENS = 4.0
_GRADE_TOKENS = 3.0
_FADING = 0.98  # of all counts, with each token judged


class Acceptance:
    """Chances that a token is right, given that all before it in its draft were."""

    def __init__(self, prior: Sequence[float]) -> None:
        self._prior = tuple(prior)
        # Of a drafter worth the name most guesses are sure.
        weights = range(1, len(prior) + 1)
        self._prior_mean = sum(map(mul, prior, weights)) / sum(weights)
        self._judged = [0.0] * len(prior)
        self._right = [0.0] * len(prior)

    def record(self, grade: int, *, is_right: bool) -> None:
        """A token was judged."""
        for counts in (self._judged, self._right):
            counts[:] = [count * _FADING for count in counts]
        self._judged[grade] += 1
        self._right[grade] += is_right

    def chance(self, grade: int) -> float:
        """That a token of this grade is right."""
        expected = min(0.999, self._prior[grade] * self._scale())
        return (self._right[grade] + _GRADE_TOKENS * expected) / (self._judged[grade] + _GRADE_TOKENS)

    def chance_of_all(self, grades: Sequence[int]) -> float:
        """That tokens of these grades are right, one after the other."""
        return prod(map(self.chance, grades))

    @property
    def mean(self) -> float:
        """That the next token is right, before its grade is known."""
        num_judged = sum(self._judged)
        return (sum(self._right) + _PRIOR_TOKENS * self._prior_mean) / (num_judged + _PRIOR_TOKENS)

    def forget_most(self) -> None:
        """Believes little of what was seen: the text may be another kind now."""
        for counts in (self._judged, self._right):
            counts[:] = [count * 0.1 for count in counts]

    def _scale(self) -> float:
        """How much better than the prior all tokens together did."""
        expected = sum(prior * count for prior, count in zip(self._prior, self._judged, strict=True))
        return (sum(self._right) + _PRIOR_TOKENS) / (expected + _PRIOR_TOKENS)
