"""What the plot of an evaluation shows: for each way of loading its quality, its speed and its memory.

Owns the choice of panels and the labels.  Does not know SVG.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from app.charts.panels import Bar, Panel
from app.evaluate.numbers import divergence_text, perplexity_text, row_label
from app.figures import mega_text, rate_text
from runtime.benchmark.statistics import Spread
from runtime.evaluation.results import Results, Row


def panels(results: Results) -> tuple[Panel, ...]:
    """Those of which there is something to show."""
    made = (
        _panel(results.rows, "Perplexity (the less, the better)", _perplexity),
        _panel(results.rows, "Mean KL divergence from the reference, nats (the less, the better)", _mean),
        _panel(results.rows, "KL divergence that 1 % of the tokens exceed, nats", _p99),
        _panel(results.rows, "Decode, tokens/s", lambda row: row.speed and _plain(row.speed.decode_tokens_per_s)),
        _panel(results.rows, "Prompt, tokens/s", lambda row: row.speed and _plain(row.speed.prefill_tokens_per_s)),
        _panel(results.rows, "KV cache, MB", lambda row: _megabytes(row.memory.kv_bytes)),
    )
    return tuple(panel for panel in made if panel is not None)


Figure = tuple[Spread, str]


def _panel(rows: Sequence[Row], title: str, figure_of: Callable[[Row], Figure | None]) -> Panel | None:
    """None where no row has the figure, or all are 0."""
    bars = tuple(
        Bar(label=row_label(row, rows), series="tandem", spread=figure[0], limit=None, figure=figure[1])
        for row in rows
        if (figure := figure_of(row)) is not None
    )
    return Panel(title=title, bars=bars) if bars and max(bar.spread.most for bar in bars) > 0 else None


def _perplexity(row: Row) -> Figure | None:
    found = row.perplexity
    return found and (_around(found.value, found.standard_error), perplexity_text(found.value))


def _mean(row: Row) -> Figure | None:
    found = row.divergence
    return found and (_around(found.mean, found.mean_standard_error), divergence_text(found.mean))


def _p99(row: Row) -> Figure | None:
    found = row.divergence
    return found and (_around(found.p99, None), divergence_text(found.p99))


def _around(value: float, error: float | None) -> Spread:
    error = error or 0.0
    return Spread(median=value, least=max(0.0, value - error), most=value + error, deviation=error)


def _plain(tokens_per_s: float) -> Figure:
    return _around(tokens_per_s, None), rate_text(tokens_per_s)


def _megabytes(size_bytes: int) -> Figure:
    return _around(size_bytes / 1e6, None), mega_text(size_bytes)
