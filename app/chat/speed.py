"""How fast a reply comes right now: tokens of the last moments over the time they took."""

from __future__ import annotations

from collections import deque

_SPAN_S = 2.0


class SpeedMeter:
    """Counts tokens as they come and knows the rate over the last two seconds."""

    def __init__(self) -> None:
        self._arrivals: deque[tuple[float, int]] = deque()
        self.num_tokens = 0

    def add(self, num_tokens: int, at_s: float) -> None:
        """So many tokens came at this time (seconds of a steady clock)."""
        self.num_tokens += num_tokens
        self._arrivals.append((at_s, num_tokens))
        while self._arrivals[-1][0] - self._arrivals[0][0] > _SPAN_S:
            self._arrivals.popleft()

    @property
    def tokens_per_s(self) -> float | None:
        """The rate; None before there is an interval to measure. The first arrival only opens it."""
        if len(self._arrivals) < 2:
            return None
        elapsed_s = self._arrivals[-1][0] - self._arrivals[0][0]
        num_tokens = sum(count for _, count in self._arrivals) - self._arrivals[0][1]
        return num_tokens / elapsed_s if elapsed_s > 0 else None
