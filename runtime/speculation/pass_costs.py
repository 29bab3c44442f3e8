"""What a pass of a model takes, by its number of tokens: measured, and guessed where nothing was measured.

Owns the measurements.  Does not know what a pass is for.  A machine that other programs use is fast and slow by turns:
so every pass is measured in plain passes of the model (the pace), and a plain pass in milliseconds.  Of both, medians
of the last few count.
"""

from __future__ import annotations

from collections import deque
from statistics import median

_KEPT = 9
_KEPT_PLAIN = 5
# From so many measurements on, guesses from other sizes don't count.
_ENOUGH = 3
_LEAST_SHARE = 0.01
_MOST_SURPRISE = 1.5
_LEAST_MS = 1e-6
# Older measurements than so many passes don't count, if there are others.
_FRESH_PASSES = 200
# What reading a token of a prompt takes of a pass over one, as long as it was not measured.
_READING_SHARE = 0.15
_KEPT_READINGS = 5
# A CPU computes four tokens together, then eight: EPYC (Zen 4), two threads, on a busy machine, so that drafts stay
# short until longer ones are known to be cheap.  (Tokens up to this, cost.)
_CURVE = ((1, 1.0), (4, 1.5), (8, 2.6), (12, 3.9), (16, 5.1))


class Pace:
    """How fast the machine is at present: milliseconds of a pass of the model over one token."""

    def __init__(self) -> None:
        self._measured_ms: deque[float] = deque(maxlen=_KEPT_PLAIN)
        self.ms = 0.0

    @property
    def is_known(self) -> bool:
        """Whether anything was measured."""
        return bool(self._measured_ms)

    def record(self, elapsed_ms: float) -> None:
        """A pass was measured."""
        self._measured_ms.append(elapsed_ms)
        self.ms = max(median(self._measured_ms), _LEAST_MS)


class PassCosts:
    """What a pass takes, by its number of tokens; in milliseconds of the pace at the moment of asking.

    usual_share: what a pass over one token takes of one of the model, as long as it was not measured.
    """

    def __init__(self, pace: Pace, usual_share: float = 1.0) -> None:
        self.pace = pace
        self.usual_share = usual_share
        self._measured: dict[int, deque[tuple[int, float]]] = {}  # (number of the pass, its time in plain passes)
        self._estimates: dict[int, float] = {}
        self._num_passes = 0
        self._readings: deque[float] = deque(maxlen=_KEPT_READINGS)  # a token's time in plain passes

    @property
    def is_known(self) -> bool:
        """Whether anything was measured."""
        return bool(self._measured)

    def count(self, num_tokens: int) -> int:
        """How many passes of that size count at present."""
        return len(self._measured.get(num_tokens, ()))

    @property
    def largest(self) -> int:
        """The most tokens that a measured pass had."""
        return max(self._measured, default=0)

    def age(self, num_tokens: int) -> int:
        """How many passes there were since the last one of that size."""
        measured = self._measured.get(num_tokens)
        return self._num_passes - (measured[-1][0] if measured else 0)

    def record_plain(self, num_tokens: int, elapsed_ms: float) -> None:
        """A pass without drafts was measured; it sets the pace."""
        usual = 1.0 if num_tokens == 1 else self._share(num_tokens) if self.is_known else curve(num_tokens)
        self.pace.record(elapsed_ms / usual)
        self.record(num_tokens, elapsed_ms)

    def record(self, num_tokens: int, elapsed_ms: float) -> None:
        """A pass was measured.  The pace must be known."""
        self._num_passes += 1
        measured = self._measured.setdefault(num_tokens, deque(maxlen=_KEPT))
        measured.append((self._num_passes, max(elapsed_ms, _LEAST_MS) / self.pace.ms))
        while len(measured) > _ENOUGH and self._num_passes - measured[0][0] > _FRESH_PASSES:
            measured.popleft()
        self._estimates.clear()

    def record_reading(self, num_tokens: int, elapsed_ms: float) -> None:
        """A pass read so many tokens of a prompt."""
        self._readings.append(elapsed_ms / num_tokens / self.pace.ms)

    def reading_ms(self, pass_ms: float) -> float:
        """What it takes to read a token of a prompt; pass_ms: a pass over a token."""
        return median(self._readings) * self.pace.ms if self._readings else _READING_SHARE * pass_ms

    def ms(self, num_tokens: int) -> float:
        """What a pass of that many tokens takes; something must have been measured."""
        return self._share(num_tokens) * self.pace.ms

    def added_ms(self, num_tokens: int, num_more: int) -> float:
        """What num_more tokens add to a pass of num_tokens; never nothing."""
        added = self.ms(num_tokens + num_more) - self.ms(num_tokens)
        return max(added, _LEAST_SHARE * num_more * self.ms(num_tokens))

    def _share(self, num_tokens: int) -> float:
        known = self._estimates.get(num_tokens)
        if known is None:
            known = self._estimates[num_tokens] = self._estimate(num_tokens)
        return known

    def _estimate(self, num_tokens: int) -> float:
        measured = self._times(num_tokens)
        others = [size for size in self._measured if size != num_tokens]
        if len(measured) >= _ENOUGH or not others:
            return median(measured) if measured else curve(num_tokens)
        usual = curve(num_tokens)
        likest = min(others, key=lambda size: (abs(curve(size) - usual), abs(size - num_tokens)))
        guess = median(self._times(likest)) * usual / curve(likest)
        # One measurement alone may be another program's doing.
        return median([guess, *(min(time, _MOST_SURPRISE * guess) for time in measured)])

    def _times(self, num_tokens: int) -> list[float]:
        return [time for _, time in self._measured.get(num_tokens, ())]


def curve(num_tokens: int) -> float:
    """What a pass of that many tokens takes of a pass of one, as long as it is not known better."""
    for most_tokens, cost in _CURVE:
        if num_tokens <= most_tokens:
            return cost
    most_tokens, cost = _CURVE[-1]
    return cost * num_tokens / most_tokens
