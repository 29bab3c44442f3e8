"""Two sets of results side by side: which rows belong together, and whether they differ by more than noise.

Owns the rule.  A row is called faster or slower when the whole 95 % interval of the ratio (statistics.py: Mann and
Whitney's test on the repeats, no shape of the noise assumed) lies beyond 1 by at least the margin: what other
places in memory make.  Rows that occur several times in a file are pooled, so that several runs in one file
bring what differs between runs into the noise.  Does not know files or formats.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple, dataclass
from statistics import median
from typing import Literal

from runtime.benchmark.results import Row, Setting
from runtime.benchmark.statistics import RatioInterval, ratio_interval
from runtime.benchmark.workloads import Workload

MARGIN = 0.01

Verdict = Literal["faster", "slower", "within noise", "too few repeats"]
_Key = tuple[object, ...]


@dataclass(frozen=True, kw_only=True)
class Difference:
    """One pair of rows.  interval: second / first, None when there are too few repeats to say."""

    setting: Setting
    workload: Workload
    first_tokens_per_s: float
    second_tokens_per_s: float
    first_repeats: int
    second_repeats: int
    interval: RatioInterval | None
    verdict: Verdict


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """All pairs, and what only one side has.  margin: the rule's."""

    differences: tuple[Difference, ...]
    only_first: tuple[Row, ...]
    only_second: tuple[Row, ...]
    margin: float


def compare(first: Sequence[Row], second: Sequence[Row], *, margin: float = MARGIN) -> Comparison:
    """Pairs rows with the same engine, model, setting and test, in the first side's order."""
    first_by_key, second_by_key = _pooled(first), _pooled(second)
    return Comparison(
        differences=tuple(
            _difference(rows, second_by_key[key], margin) for key, rows in first_by_key.items() if key in second_by_key
        ),
        only_first=tuple(rows[0] for key, rows in first_by_key.items() if key not in second_by_key),
        only_second=tuple(rows[0] for key, rows in second_by_key.items() if key not in first_by_key),
        margin=margin,
    )


def _pooled(rows: Sequence[Row]) -> dict[_Key, list[Row]]:
    found: dict[_Key, list[Row]] = {}
    for row in rows:
        found.setdefault(_key(row), []).append(row)
    return found


def _key(row: Row) -> _Key:
    """Where the file lies and what it is called do not matter; what stands in it does."""
    setting = row.setting
    return (
        *astuple(row.workload),
        setting.engine,
        setting.variant,
        setting.model_fingerprint,
        setting.threads,
        setting.batch_size,
        setting.cache_type_k,
        setting.cache_type_v,
        setting.activations,
        setting.isa,
        setting.gpu_layers,
        setting.cpu_experts,
    )


def _difference(first: list[Row], second: list[Row], margin: float) -> Difference:
    first_samples = [sample for row in first for sample in row.tokens_per_s_samples]
    second_samples = [sample for row in second for sample in row.tokens_per_s_samples]
    interval = ratio_interval(first_samples, second_samples)
    return Difference(
        setting=first[0].setting,
        workload=first[0].workload,
        first_tokens_per_s=_middle(first),
        second_tokens_per_s=_middle(second),
        first_repeats=len(first_samples),
        second_repeats=len(second_samples),
        interval=interval,
        verdict=_verdict(interval, margin),
    )


def _middle(rows: list[Row]) -> float:
    return median([sample for row in rows for sample in row.tokens_per_s_samples])


def _verdict(interval: RatioInterval | None, margin: float) -> Verdict:
    if interval is None:
        return "too few repeats"
    if interval.low >= 1 + margin:
        return "faster"
    return "slower" if interval.high <= 1 - margin else "within noise"
