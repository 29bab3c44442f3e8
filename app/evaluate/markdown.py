"""An evaluation as Markdown: a table to choose from, and where answers part, side by side.

Owns the columns and the words around them.  Does not know JSON or measuring.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from app.evaluate.numbers import (
    cache_text,
    divergence_text,
    model_text,
    perplexity_text,
    probability_text,
    row_label,
    share_text,
)
from app.figures import mega_text, rate_text
from app.measuring.markdown import environment_lines, grid
from runtime.benchmark.results import Environment
from runtime.evaluation.results import Choice, Results, Row, Setting

_SHARED_LETTERS, _OWN_LETTERS = 40, 90
_MOST_COLUMNS = 100  # of a terminal: a wider table becomes two
_LINE_END = "\u23ce"


@dataclass(frozen=True, kw_only=True)
class _Column:
    """A column of the table.  kind: what tells rows apart, how good they are, or what they cost."""

    title: str
    text: Callable[[Row], str]
    kind: Literal["name", "quality", "cost"] = "quality"
    is_figure: bool = True


_COLUMNS = (
    _Column(title="model", text=lambda row: model_text(row.setting), kind="name", is_figure=False),
    _Column(title="K/V", text=lambda row: cache_text(row.setting), kind="name", is_figure=False),
    _Column(title="activations", text=lambda row: row.setting.activations, kind="name", is_figure=False),
    _Column(title="perplexity", text=lambda row: _perplexity(row)),
    _Column(title="/ reference", text=lambda row: _ratio(row)),
    _Column(title="KL mean", text=lambda row: _divergence(row, "mean")),
    _Column(title="KL 99 %", text=lambda row: _divergence(row, "p99")),
    _Column(title="KL max", text=lambda row: _divergence(row, "maximum")),
    _Column(title="same best", text=lambda row: share_text(row.divergence.top1_agreement) if row.divergence else ""),
    _Column(
        title="prompt tok/s",
        text=lambda row: rate_text(row.speed.prefill_tokens_per_s) if row.speed else "",
        kind="cost",
    ),
    _Column(
        title="decode tok/s",
        text=lambda row: rate_text(row.speed.decode_tokens_per_s) if row.speed else "",
        kind="cost",
    ),
    _Column(title="weights MB", text=lambda row: mega_text(row.memory.weights_bytes), kind="cost"),
    _Column(title="KV MB", text=lambda row: mega_text(row.memory.kv_bytes), kind="cost"),
    _Column(title="", text=lambda row: _remark(row), is_figure=False),
)


def markdown(results: Results, environment: Environment, *, text_name: str | None) -> str:
    """The whole document; "" for no rows."""
    rows = results.rows
    if not rows:
        return ""
    parts = [
        _tables(rows),
        _facts(results, text_name),
        *(_partings(row, rows) for row in rows),
        environment_lines(environment),
    ]
    return "\n\n".join(filter(None, parts)) + "\n"


def _tables(rows: Sequence[Row]) -> str:
    """What is the same in all rows in a line, and the rest in a table; in one of quality and one of cost if wide."""
    kept = [column for column in _COLUMNS if {column.text(row) for row in rows} != {""}]
    names = [column for column in kept if column.kind == "name"]
    told = [column for column in names if len({column.text(row) for row in rows}) == 1]
    kept = [column for column in kept if column not in told]
    head = ", ".join(f"{column.title} {column.text(rows[0])}" for column in told)
    table = _table(kept, rows)
    if max(map(len, table.splitlines())) > _MOST_COLUMNS:
        quality, cost = ([c for c in kept if c.kind in ("name", kind)] for kind in ("quality", "cost"))
        table = f"{_table(quality, rows)}\n\n{_table(cost, rows)}"
    return f"{head[:1].upper()}{head[1:]}\n\n{table}" if head else table


def _table(columns: Sequence[_Column], rows: Sequence[Row]) -> str:
    return grid(
        [column.title for column in columns],
        [column.is_figure for column in columns],
        [[column.text(row) for column in columns] for row in rows],
    )


def _perplexity(row: Row) -> str:
    found = row.perplexity
    if found is None:
        return ""
    error = "" if found.standard_error is None else f" \u00b1 {found.standard_error:.2g}"
    return f"{perplexity_text(found.value)}{error}"


def _ratio(row: Row) -> str:
    own, reference = row.perplexity, row.reference_perplexity
    return f"{own.value / reference.value:.4f} x" if own and reference else ""


def _divergence(row: Row, name: str) -> str:
    return divergence_text(getattr(row.divergence, name)) if row.divergence else ""


def _remark(row: Row) -> str:
    if row.is_complete or row.perplexity is None:
        return ""
    return f"stopped after {row.perplexity.num_tokens} tokens"


def _facts(results: Results, text_name: str | None) -> str:
    lines = []
    counted = [row.perplexity.num_tokens for row in results.rows if row.perplexity is not None]
    if counted:
        start = f'start token "{results.start_token}" before each' if results.start_token else "no start token"
        lines.append(
            f"- text: {text_name}, {results.num_tokens} tokens, {max(counted)} of them predicted; windows of "
            f"{results.window} tokens, stride {results.stride}, {start}"
        )
    if results.reference is not None:
        has_divergence = any(row.divergence for row in results.rows)
        unit = "; KL divergences in nats, over the same tokens" if has_divergence else ""
        lines.append(f"- reference: {_described(results.reference)}{unit}")
    setting = results.rows[0].setting
    speed = results.rows[0].speed
    timed = f"; decoding behind {speed.prompt_tokens} tokens, measured once" if speed else ""
    lines.append(
        f"- memory{' and speed' if speed else ''}: a KV cache for {setting.context_size} tokens, "
        f"{setting.threads} threads{timed}"
    )
    return "\n".join(lines)


def _described(setting: Setting) -> str:
    formats = ", ".join(setting.formats)
    return f"{model_text(setting)} ({formats}), K/V {cache_text(setting)}, activations {setting.activations}"


def _partings(row: Row, rows: Sequence[Row]) -> str:
    """The answers of one row that part from the reference's."""
    if not row.partings:
        return ""
    apart = [(number, parting) for number, parting in enumerate(row.partings, 1) if parting.place is not None]
    label, total = row_label(row, rows), len(row.partings)
    if not apart:
        return f"{label}: all {total} greedy answers are the reference's, token by token."
    head = f"{label}: {len(apart)} of {total} greedy answers part from the reference's:"
    lines = [
        [
            f"{number}: {_cut(parting.prompt, _SHARED_LETTERS)}",
            str((parting.place or 0) + 1),
            _cut_front(parting.shared_text, _SHARED_LETTERS),
            _goes_on(parting.own, "the reference"),
            _goes_on(parting.reference, "this one"),
        ]
        for number, parting in apart
    ]
    titles = ["prompt", "at token", "after", "this one goes on", "the reference goes on"]
    return f"{head}\n\n{grid(titles, [False, True, False, False, False], lines)}"


def _goes_on(choice: Choice | None, other: str) -> str:
    if choice is None:
        return "(ends)"
    own, of_other = probability_text(choice.probability), probability_text(choice.of_other)
    text = _cut(choice.continuation or choice.text, _OWN_LETTERS)
    return f"{text} ({own}; {other} {of_other})"


def _cut(text: str, most: int) -> str:
    text = text.replace("\n", _LINE_END)
    return text if len(text) <= most else f"{text[: most - 1]}\u2026"


def _cut_front(text: str, most: int) -> str:
    text = text.replace("\n", _LINE_END)
    return text if len(text) <= most else f"\u2026{text[1 - most :]}"
