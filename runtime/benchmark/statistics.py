"""What a few repeated measurements say: their middle, their spread, and whether two sets of them differ.

Owns the arithmetic.  Does not know what was measured.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from math import comb
from statistics import median

CONFIDENCE = 0.95
_MOST_EXACT = 60  # samples on a side; more add nothing, and the exact distribution grows with the fourth power


@dataclass(frozen=True, kw_only=True)
class Spread:
    """Repeats in one glance.  deviation: the median distance from the median."""

    median: float
    least: float
    most: float
    deviation: float


@dataclass(frozen=True, kw_only=True)
class RatioInterval:
    """How many times larger the second set is than the first: the estimate, and where the truth lies with 95 %."""

    ratio: float
    low: float
    high: float


def spread_of(samples: Sequence[float]) -> Spread:
    """Of one sample or more."""
    middle = median(samples)
    deviation = median(abs(sample - middle) for sample in samples)
    return Spread(median=middle, least=min(samples), most=max(samples), deviation=deviation)


def ratio_interval(first: Sequence[float], second: Sequence[float]) -> RatioInterval | None:
    """Hodges and Lehmann's estimate of second / first, with the interval that belongs to Mann and Whitney's test.

    All pairs' quotients are sorted; the estimate is their median, and the interval goes from the k-th smallest to the
    k-th largest, where k comes from the exact distribution of the U statistic.  No shape of the noise is assumed.
    1 lies outside just when the two-sided test at 5 % calls the sets different.  None: so few samples that no outcome
    could (3 against 3, say; 4 against 4 are enough).
    """
    first, second = first[:_MOST_EXACT], second[:_MOST_EXACT]
    quotients = sorted(b / a for a in first for b in second)
    rank = interval_rank(len(first), len(second))
    if rank == 0:
        return None
    return RatioInterval(ratio=median(quotients), low=quotients[rank - 1], high=quotients[-rank])


@lru_cache
def interval_rank(num_first: int, num_second: int) -> int:
    """The largest k with P(U <= k - 1) <= 2.5 % when nothing differs; 0: there is none."""
    total = comb(num_first + num_second, num_first)
    counts = _u_counts(num_first, num_second)
    limit = (1 - CONFIDENCE) / 2
    return sum(1 for cumulated in accumulate(counts[: len(counts) // 2]) if cumulated / total <= limit)


def _u_counts(num_first: int, num_second: int) -> list[int]:
    """counts[u]: orders of the samples with that U: the coefficients of the Gaussian binomial."""
    size = num_first * num_second + 1
    counts = [1] + [0] * (size - 1)
    for number in range(1, num_first + 1):
        for u in range(size - 1, num_second + number - 1, -1):  # times 1 - q ** (num_second + number)
            counts[u] -= counts[u - num_second - number]
        for u in range(number, size):  # divided by 1 - q ** number
            counts[u] += counts[u - number]
    return counts
