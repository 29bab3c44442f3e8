"""What a chart shows: panels of bars.

Owns the shape of it.  Does not know where the figures come from, nor terminals or files.
"""

from __future__ import annotations

from dataclasses import dataclass

from runtime.benchmark.statistics import Spread


@dataclass(frozen=True, kw_only=True)
class Bar:
    """limit: what the machine would allow, in tokens/s, if known.  series: whose bar it is.

    figure: what stands at its end; None: the median as a rate.
    """

    label: str
    series: str
    spread: Spread
    limit: float | None
    figure: str | None = None


@dataclass(frozen=True, kw_only=True)
class Panel:
    """Bars that share a scale."""

    title: str
    bars: tuple[Bar, ...]

    @property
    def most(self) -> float:
        """The end of the scale."""
        return max(bar.spread.most for bar in self.bars)
