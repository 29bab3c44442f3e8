"""How the figures of an evaluation are written for people.

Owns the rounding and the words.  Does not know tables or charts.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePath

from runtime.evaluation.results import Row, Setting


def perplexity_text(value: float) -> str:
    """Four decimals below 100: differences of settings lie there."""
    return f"{value:.4f}" if value < 100 else f"{value:.5g}"


def divergence_text(value: float) -> str:
    """Three significant digits; 0 where there is no difference at all."""
    if value == 0:
        return "0"
    return f"{value:.3g}" if value >= 1e-4 else f"{value:.1e}"


def share_text(share: float) -> str:
    """Per cent with two decimals, so that one token in ten thousand is seen."""
    return f"{share * 100:.2f} %"


def probability_text(probability: float | None) -> str:
    """Per cent, or that it was not among the likeliest."""
    return "little" if probability is None else f"{probability * 100:.0f} %"


def model_text(setting: Setting) -> str:
    """The file without its ending, and the adapters that change it."""
    return " + ".join([PurePath(setting.model_file).stem, *setting.adapters])


def cache_text(setting: Setting) -> str:
    """f16/q4_0."""
    return f"{setting.cache_type_k}/{setting.cache_type_v}"


def row_label(row: Row, rows: Sequence[Row]) -> str:
    """What tells a row from its neighbours; the model where nothing does."""
    ways = (cache_text, lambda setting: setting.activations)
    shown = [way(row.setting) for way in ways if len({way(other.setting) for other in rows}) > 1]
    return ", ".join(shown) or model_text(row.setting)
