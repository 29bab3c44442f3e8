"""What a pass of a model takes, by its number of tokens: measured, and guessed where nothing was measured.

Owns the measurements.  Does not know what a pass is for.  Medians of the last few passes of a size: a machine that does
something else for a moment does not count.
"""

from __future__ import annotations

from collections import deque
from statistics import median

_KEPT = 9
# From so many measurements on, guesses from other sizes don't count.
_ENOUGH = 3
# A CPU reads its weights once for eight tokens: EPYC (Zen 4), two threads, 4 tokens 1.07 to 1.18, 8 tokens 1.6.
_CURVE = ((1, 1.0), (4, 1.15), (8, 1.6), (16, 3.1))
_LEAST_SHARE = 0.01


class PassCosts:
    """Milliseconds a pass, by its number of tokens."""

    def __init__(self) -> None:
        self._measured: dict[int, deque[float]] = {}
        self._moments: dict[int, int] = {}
        self._estimates: dict[int, float] = {}
        self._num_passes = 0

    @property
    def is_known(self) -> bool:
        """Whether anything was measured."""
        return bool(self._measured)

    def count(self, num_tokens: int) -> int:
        """How many passes of that size count at present."""
        return len(self._measured.get(num_tokens, ()))

    def age(self, num_tokens: int) -> int:
        """How many passes there were since the last one of that size."""
        return self._num_passes - self._moments.get(num_tokens, 0)

    def record(self, num_tokens: int, elapsed_ms: float) -> None:
        """A pass was measured."""
        self._num_passes += 1
        self._moments[num_tokens] = self._num_passes
        self._measured.setdefault(num_tokens, deque(maxlen=_KEPT)).append(elapsed_ms)
        self._estimates.clear()

    def ms(self, num_tokens: int) -> float:
        """What a pass of that many tokens takes; something must have been measured."""
        known = self._estimates.get(num_tokens)
        if known is None:
            known = self._estimates[num_tokens] = self._estimate(num_tokens)
        return known

    def added_ms(self, num_tokens: int, num_more: int) -> float:
        """What num_more tokens add to a pass of num_tokens; never nothing."""
        added = self.ms(num_tokens + num_more) - self.ms(num_tokens)
        return max(added, _LEAST_SHARE * num_more * self.ms(num_tokens))

    def _estimate(self, num_tokens: int) -> float:
        measured = self._measured.get(num_tokens, ())
        others = [size for size in self._measured if size != num_tokens]
        if len(measured) >= _ENOUGH or not others:
            return median(measured)
        nearest = min(others, key=lambda size: abs(size - num_tokens))
        guess = median(self._measured[nearest]) * curve(num_tokens) / curve(nearest)
        return (guess * (_ENOUGH - len(measured)) + sum(measured)) / _ENOUGH


def curve(num_tokens: int) -> float:
    """What a pass of that many tokens takes of a pass of one, as long as it is not known better."""
    for (low, low_cost), (high, high_cost) in zip(_CURVE, _CURVE[1:], strict=False):
        if num_tokens <= high:
            return low_cost + (high_cost - low_cost) * (num_tokens - low) / (high - low)
    last, last_cost = _CURVE[-1]
    return last_cost * num_tokens / last
