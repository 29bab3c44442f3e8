"""How fast a reply comes right now: tokens of the last moments over the time they took."""

from __future__ import annotations

from collections import deque

_SPAN_S = 2.0
# Tokens that a guess brought come all at once: the time between them says nothing.
_BURST_S = 0.01


class SpeedMeter:
    """Counts tokens as they come and knows the rate over the last two seconds, or over a last step that took longer."""

    def __init__(self) -> None:
        self._arrivals: deque[tuple[float, int]] = deque()
        self.num_tokens = 0

    def add(self, num_tokens: int, at_s: float) -> None:
        """So many tokens came at this time (seconds of a steady clock)."""
        self.num_tokens += num_tokens
        arrivals = self._arrivals
        if arrivals and at_s - arrivals[-1][0] < _BURST_S:
            began_at_s, before = arrivals.pop()
            arrivals.append((began_at_s, before + num_tokens))
        else:
            arrivals.append((at_s, num_tokens))
        # One that is older stays, so that a slow reply has an interval too.
        while len(arrivals) > 2 and arrivals[-1][0] - arrivals[1][0] >= _SPAN_S:
            arrivals.popleft()

    def pause(self) -> None:
        """Nothing was written for a while: that time is no part of the rate."""
        self._arrivals.clear()

    @property
    def tokens_per_s(self) -> float | None:
        """The rate; None before there is an interval to measure. The first arrival only opens it."""
        if len(self._arrivals) < 2:
            return None
        elapsed_s = self._arrivals[-1][0] - self._arrivals[0][0]
        return sum(count for _, count in list(self._arrivals)[1:]) / elapsed_s
