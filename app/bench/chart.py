"""What the chart of a bench shows: the rows as bars, a panel for each kind of test.

Owns the grouping and the labels.  Does not know how it is drawn.
"""

from __future__ import annotations

from collections.abc import Sequence

from app.bench.numbers import engine_text, model_text, threads_text
from app.charts.panels import Bar, Panel
from runtime.benchmark.results import Row

_TITLES = {
    "prefill": "Prompt, tokens/s",
    "decode": "Decode, tokens/s",
    "verify": "Several tokens in one pass, tokens/s",
    "parallel": "Several sequences together, tokens/s",
    "generate": "Decode through the whole engine, tokens/s",
    "guess": "Answers with guesses, tokens/s",
}


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
