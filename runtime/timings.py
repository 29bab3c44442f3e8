"""How long an answer took, and where the time went.

Owns the moments and the rates made of them.  Does not know why time passed.
"""

from __future__ import annotations

import time
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Timings:
    """Times of one generation.  None: there was nothing to measure.

    reused_tokens: prompt tokens that came from the prefix cache; hit_rate: their share of the prompt.
    ttft_s: from the call to the first token, waiting for a place included.  prefill_tokens_per_s: prompt tokens that
    were computed, over the time from the first step to the first token.  decode_tokens_per_s: tokens after the first,
    over the time since it.  inter_token_*: percentiles of the time between one token and the next.
    """

    prompt_tokens: int
    reused_tokens: int
    output_tokens: int
    hit_rate: float
    queue_s: float
    ttft_s: float | None
    prefill_tokens_per_s: float | None
    decode_tokens_per_s: float | None
    inter_token_p50_ms: float | None
    inter_token_p95_ms: float | None
    inter_token_p99_ms: float | None
    total_s: float


class Clock:
    """Takes the moments of one generation.  All in seconds of a clock that never goes back."""

    def __init__(self) -> None:
        self._called_s = time.perf_counter()
        self._began_s: float | None = None
        self._prefilled_s: float | None = None
        self._token_moments_s: list[float] = []

    def begin(self) -> None:
        """Its first step begins."""
        if self._began_s is None:
            self._began_s = time.perf_counter()

    def prefilled(self) -> None:
        """The whole prompt was computed."""
        self._prefilled_s = time.perf_counter()

    @property
    def is_prefilled(self) -> bool:
        """Whether the whole prompt was computed once."""
        return self._prefilled_s is not None

    def tick(self) -> None:
        """A token was chosen."""
        self._token_moments_s.append(time.perf_counter())

    def timings(self, *, prompt_tokens: int, reused_tokens: int) -> Timings:
        """All that was measured until now."""
        now_s = time.perf_counter()
        moments_s = self._token_moments_s
        gaps_ms = sorted((later - earlier) * 1e3 for earlier, later in zip(moments_s, moments_s[1:], strict=False))
        began_s = now_s if self._began_s is None else self._began_s
        prefill_s = None if self._prefilled_s is None else self._prefilled_s - began_s
        decode_s = moments_s[-1] - moments_s[0] if gaps_ms else None
        return Timings(
            prompt_tokens=prompt_tokens,
            reused_tokens=reused_tokens,
            output_tokens=len(moments_s),
            hit_rate=reused_tokens / prompt_tokens,
            queue_s=began_s - self._called_s,
            ttft_s=moments_s[0] - self._called_s if moments_s else None,
            prefill_tokens_per_s=_rate(prompt_tokens - reused_tokens, prefill_s),
            decode_tokens_per_s=_rate(len(gaps_ms), decode_s),
            inter_token_p50_ms=percentile(gaps_ms, 50),
            inter_token_p95_ms=percentile(gaps_ms, 95),
            inter_token_p99_ms=percentile(gaps_ms, 99),
            total_s=now_s - self._called_s,
        )


def percentile(ascending: list[float], percent: float) -> float | None:
    """The value that percent of a sorted list lie at or below, interpolated linearly; None for an empty list."""
    if not ascending:
        return None
    place = (len(ascending) - 1) * percent / 100
    below = int(place)
    above = min(below + 1, len(ascending) - 1)
    return ascending[below] + (ascending[above] - ascending[below]) * (place - below)


def _rate(count: int, duration_s: float | None) -> float | None:
    return count / duration_s if duration_s else None
