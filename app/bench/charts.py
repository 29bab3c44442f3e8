"""What a chart shows: panels of bars, made from rows.

Owns the grouping and the labels.  Does not know terminals or SVG.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from app.bench.numbers import engine_text, model_text, threads_text
from runtime.benchmark.results import Row
from runtime.benchmark.statistics import Spread

_TITLES = {
    "prefill": "Prompt, tokens/s",
    "decode": "Decode, tokens/s",
    "verify": "Several tokens in one pass, tokens/s",
    "parallel": "Several sequences together, tokens/s",
    "generate": "Decode through the whole engine, tokens/s",
    "guess": "Answers with guesses, tokens/s",
}


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


def panels(rows: Sequence[Row]) -> tuple[Panel, ...]:
    """One for each kind of test, in the order of the table."""
    kinds = dict.fromkeys(row.workload.test for row in rows)
    return tuple(
        Panel(title=_TITLES[kind], bars=tuple(_bar(row, rows) for row in rows if row.workload.test == kind))
        for kind in kinds
    )


def _bar(row: Row, rows: Sequence[Row]) -> Bar:
    return Bar(
        label=", ".join(_label(row, rows)),
        series=engine_text(row.setting),
        spread=row.spread,
        limit=row.devices[0].limit_tokens_per_s if len(row.devices) == 1 else None,
    )


def _label(row: Row, rows: Sequence[Row]) -> list[str]:
    """The test, and what differs among the rows."""
    setting = row.setting
    words = [row.workload.label, threads_text(setting.threads)]
    differing = {
        model_text(setting): {model_text(other.setting) for other in rows},
        setting.activations: {other.setting.activations for other in rows} - {None},
        f"batch {setting.batch_size}": {other.setting.batch_size for other in rows} - {None},
        f"{setting.cache_type_k}/{setting.cache_type_v}": {
            f"{other.setting.cache_type_k}/{other.setting.cache_type_v}" for other in rows
        },
        engine_text(setting): {engine_text(other.setting) for other in rows},
    }
    is_own = setting.activations is not None
    shown = [text for text, values in differing.items() if text is not None and len(values) > 1]
    return words + [text for text in shown if is_own or not text.startswith("batch ")]
