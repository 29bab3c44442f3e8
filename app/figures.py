"""How figures are written for people: rates, ratios, shares, amounts.

Owns the rounding.  Does not know what was measured.
"""

from __future__ import annotations

from runtime.benchmark.statistics import Spread


def rate_text(tokens_per_s: float) -> str:
    """Four significant digits, no more than two decimals."""
    if tokens_per_s >= 1000:
        return f"{tokens_per_s:.0f}"
    return f"{tokens_per_s:.1f}" if tokens_per_s >= 100 else f"{tokens_per_s:.2f}"


def range_text(spread: Spread) -> str:
    """From the least to the most."""
    return f"{rate_text(spread.least)} .. {rate_text(spread.most)}"


def ratio_text(ratio: float) -> str:
    """1.36."""
    return f"{ratio:.2f}" if ratio < 100 else f"{ratio:.0f}"


def share_text(share: float) -> str:
    """Per cent."""
    return f"{share * 100:.0f} %"


def giga_text(per_s: float) -> str:
    """Milliards."""
    return f"{per_s / 1e9:.1f}" if per_s < 100e9 else f"{per_s / 1e9:.0f}"


def mega_text(count: float) -> str:
    """Millions."""
    return f"{count / 1e6:.1f}" if count < 100e6 else f"{count / 1e6:.0f}"
