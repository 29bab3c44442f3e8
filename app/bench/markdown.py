"""Results as Markdown: the table of rows, what a token costs, ratios to another engine, and the environment.

Owns the columns.  A column that would say the same in every row, or nothing, is left out where that tells no less.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from app.bench.numbers import engine_text, model_text, remark, row_title
from app.figures import giga_text, mega_text, range_text, rate_text, ratio_text, share_text
from app.measuring.markdown import environment_lines, grid
from runtime.benchmark.comparison import Comparison
from runtime.benchmark.results import Results, Row

_POSITIONS = 8  # of a draft, in the table; JSON has them all


@dataclass(frozen=True, kw_only=True)
class Column:
    """title, what it says of a row, whether figures stand at the right, and whether it may be left out."""

    title: str
    text: Callable[[Row], str]
    is_figure: bool = False
    may_be_left_out: Callable[[set[str]], bool] = lambda texts: texts == {""}


def _is_uniform(texts: set[str]) -> bool:
    return len(texts) == 1


_COLUMNS = (
    Column(title="engine", text=lambda row: engine_text(row.setting), may_be_left_out=_is_uniform),
    Column(title="model", text=lambda row: model_text(row.setting)),
    Column(title="threads", text=lambda row: str(row.setting.threads), is_figure=True),
    Column(
        title="batch",
        text=lambda row: _or_nothing(row.setting.batch_size),
        is_figure=True,
        may_be_left_out=lambda texts: len(texts - {""}) == 1,
    ),
    Column(
        title="K/V",
        text=lambda row: f"{row.setting.cache_type_k}/{row.setting.cache_type_v}",
        may_be_left_out=lambda texts: texts == {"f16/f16"},
    ),
    Column(title="activations", text=lambda row: _or_nothing(row.setting.activations)),
    Column(
        title="GPU layers",
        text=lambda row: str(row.setting.gpu_layers),
        is_figure=True,
        may_be_left_out=lambda texts: texts == {"0"},
    ),
    Column(
        title="experts on the CPU",
        text=lambda row: str(row.setting.cpu_experts),
        is_figure=True,
        may_be_left_out=lambda texts: texts == {"0"},
    ),
    Column(title="test", text=lambda row: row.workload.name),
    Column(title="depth", text=lambda row: str(row.workload.depth), is_figure=True),
    Column(title="tokens/s", text=lambda row: rate_text(row.tokens_per_s), is_figure=True),
    Column(title="min .. max", text=lambda row: range_text(row.spread), is_figure=True),
    Column(title="of the limit", text=lambda row: _limits(row)),
    Column(title="ITL ms p50 / p95 / p99", text=lambda row: _percentiles(row), is_figure=True),
    Column(title="ms a token: CPU / GPU / copies", text=lambda row: _device_ms(row), is_figure=True),
    Column(title="", text=remark),
)


def markdown(results: Results) -> str:
    """The whole document; "" for no rows."""
    rows = results.rows
    if not rows:
        return ""
    parts = [_table(_COLUMNS, rows), _costs(rows), _ratios(rows), _guesses(rows)]
    parts.append(environment_lines(results.environment))
    return "\n\n".join(filter(None, parts)) + "\n"


def _table(columns: Sequence[Column], rows: Sequence[Row]) -> str:
    kept = [column for column in columns if not column.may_be_left_out({column.text(row) for row in rows})]
    return grid(
        [column.title for column in kept],
        [column.is_figure for column in kept],
        [[column.text(row) for column in kept] for row in rows],
    )


def _or_nothing(value: object) -> str:
    return "" if value is None else str(value)


def _limits(row: Row) -> str:
    return ", ".join(f"{share_text(device.limit_share)} {device.limited_by}" for device in row.devices)


def _device_ms(row: Row) -> str:
    values = (row.cpu_ms_per_token, row.gpu_ms_per_token, row.transfer_ms_per_token)
    return "" if None in values else " / ".join(f"{value:.3f}" for value in values)


def _percentiles(row: Row) -> str:
    values = (row.inter_token_p50_ms, row.inter_token_p95_ms, row.inter_token_p99_ms)
    return "" if None in values else " / ".join(f"{value:.2f}" for value in values)


def _costs(rows: Sequence[Row]) -> str:
    """What a token moves and multiplies on each device, and the limits that were measured beside it."""
    lines = [
        [
            model_text(row.setting),
            str(row.setting.threads),
            _or_nothing(row.setting.activations),
            row.workload.label,
            device.device,
            mega_text(device.moved_bytes_per_token),
            giga_text(device.read_bytes_per_s),
            mega_text(device.byte_multiply_adds_per_token),
            giga_text(device.byte_multiply_adds_per_s),
            mega_text(device.float_multiply_adds_per_token),
            giga_text(device.float_multiply_adds_per_s),
            rate_text(device.limit_tokens_per_s),
        ]
        for row in rows
        for device in row.devices
    ]
    if not lines:
        return ""
    titles = ["model", "threads", "activations", "test", "device", "MB a token", "GB/s read", "M byte multiply-adds"]
    titles += ["G/s", "M float multiply-adds", "G/s", "limit, tokens/s"]
    table = grid(titles, [False, True, False, False, False, *[True] * 7], lines)
    return f"What a token costs, and what the machine gave at most in the same minute:\n\n{table}"


def _ratios(rows: Sequence[Row]) -> str:
    """Tandem against the better variant of another engine."""
    lines = [
        [
            model_text(row.setting),
            str(row.setting.threads),
            _or_nothing(row.setting.activations),
            row.workload.label,
            f"{row.peer_ratio.peer} {row.peer_ratio.variant}",
            f"{ratio_text(row.peer_ratio.ratio.median)} x",
            f"{ratio_text(row.peer_ratio.ratio.least)} .. {ratio_text(row.peer_ratio.ratio.most)}",
        ]
        for row in rows
        if row.peer_ratio is not None
    ]
    if not lines:
        return ""
    titles = ["model", "threads", "activations", "test", "better variant", "Tandem is", "min .. max"]
    table = grid(titles, [False, True, False, False, False, True, True], lines)
    return f"Against the better variant of the other engine, repeat by repeat, measured in turn:\n\n{table}"


def _guesses(rows: Sequence[Row]) -> str:
    """With guesses and without, and where the time of a token went."""
    found = [(row, row.speculation) for row in rows if row.speculation is not None]
    if not found:
        return ""
    lines = [
        [
            row.workload.name,
            rate_text(one.plain_tokens_per_s),
            rate_text(row.tokens_per_s),
            f"{ratio_text(one.ratio.median)} x",
            f"{ratio_text(min(one.prompt_ratios))} .. {ratio_text(max(one.prompt_ratios))}",
            f"{one.accepted} of {one.drafted}",
            " ".join(f"{share * 100:.0f}" for share in one.acceptance_by_position[:_POSITIONS]),
            "" if one.tokens_per_round is None else f"{one.tokens_per_round:.2f}",
            str(one.plain_tokens),
            f"{one.draft_ms_per_token:.1f} / {one.verify_ms_per_token:.1f} / {one.wait_ms_per_token:.1f}",
            f"{one.same_answers} of {one.answers}",
        ]
        for row, one in found
    ]
    titles = ["prompts", "plain, tokens/s", "with guesses", "ratio", "by prompt", "guesses kept", "% kept by position"]
    titles += ["tokens a round", "tokens without a guess", "ms a token: draft / verify / wait", "same answers"]
    table = grid(titles, [False, *[True] * 10], lines)
    reasons = dict.fromkeys(reason for _, one in found for reason in one.reasons)
    parts = ["Every prompt with guesses and without, in turn:", table]
    if reasons:
        parts.append("Guessing stopped for a while:\n" + "\n".join(f"- {reason}" for reason in reasons))
    return "\n\n".join(parts)


def comparison_markdown(comparison: Comparison) -> str:
    """Which rows differ by more than noise, and how that was decided."""
    lines = [
        [
            engine_text(difference.setting),
            model_text(difference.setting),
            str(difference.setting.threads),
            _or_nothing(difference.setting.activations),
            difference.workload.label,
            rate_text(difference.first_tokens_per_s),
            rate_text(difference.second_tokens_per_s),
            ratio_text(difference.interval.ratio) if difference.interval else "",
            f"{difference.interval.low:.3f} .. {difference.interval.high:.3f}" if difference.interval else "",
            difference.verdict,
        ]
        for difference in comparison.differences
    ]
    titles = ["engine", "model", "threads", "activations", "test", "A tokens/s", "B tokens/s", "B / A", "95 %", "B is"]
    table = grid(titles, [False, False, True, False, False, True, True, True, True, False], lines) if lines else ""
    rule = (
        f"B is faster or slower where the whole 95 % interval of B / A lies more than {comparison.margin * 100:g} % "
        f"beyond 1. The interval is Mann and Whitney's, from the repeats alone: among rows where nothing changed, "
        f"about one in twenty misses 1 by chance. The repeats of one run don't see what differs from run to run; "
        f"several runs appended to one JSONL file do."
    )
    only = [
        f"- only in {name}: {row_title(row)}"
        for name, rows in (("A", comparison.only_first), ("B", comparison.only_second))
        for row in rows
    ]
    return "\n\n".join(filter(None, [table, rule, "\n".join(only)])) + "\n"
