"""Sums over the positions of a text: perplexity, and the spread of the distances.

Owns the statistics.  Does not know how a position's figures came about.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

QUANTILES = (50.0, 90.0, 95.0, 99.0, 99.9)


@dataclass(frozen=True, kw_only=True)
class Perplexity:
    """e to the mean of minus ln p over num_tokens tokens.

    standard_error: of `value`, as if the tokens' surprises were independent (they are nearly: it is a guide).
    """

    value: float
    mean_nll: float
    standard_error: float | None
    num_tokens: int


@dataclass(frozen=True, kw_only=True)
class Divergence:
    """Of num_positions KL divergences, in nats.  quantiles: pairs of per cent and value.

    mean_standard_error: of the mean.  top1_agreement: the share of positions where both find the same token likeliest.
    worst_position: the index of the largest among the counted positions.
    """

    mean: float
    mean_standard_error: float | None
    p99: float
    maximum: float
    quantiles: tuple[tuple[float, float], ...]
    top1_agreement: float
    num_positions: int
    worst_position: int


def perplexity_of(nlls: Sequence[float]) -> Perplexity:
    """Of at least one token."""
    values = np.asarray(nlls, np.float64)
    mean = float(values.mean())
    with np.errstate(over="ignore"):
        value = float(np.exp(mean))
    error = _error_of_mean(values)
    return Perplexity(
        value=value,
        mean_nll=mean,
        standard_error=None if error is None else value * error,
        num_tokens=len(values),
    )


def divergence_of(kls: Sequence[float], agreements: Sequence[bool]) -> Divergence:
    """Of at least one position.  Quantiles are interpolated linearly."""
    values = np.asarray(kls, np.float64)
    found = [float(value) for value in np.percentile(values, QUANTILES)]
    return Divergence(
        mean=float(values.mean()),
        mean_standard_error=_error_of_mean(values),
        p99=found[QUANTILES.index(99.0)],
        maximum=float(values.max()),
        quantiles=tuple(zip(QUANTILES, found, strict=True)),
        top1_agreement=sum(agreements) / len(agreements),
        num_positions=len(values),
        worst_position=int(values.argmax()),
    )


def _error_of_mean(values: np.ndarray) -> float | None:
    return float(values.std(ddof=1)) / math.sqrt(len(values)) if len(values) > 1 else None
