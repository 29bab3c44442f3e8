"""Results as JSON, JSON lines and CSV, and back from the first two.

Owns the files' shape.  The names of values are those of runtime.benchmark.results.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from app.errors import AppError
from runtime.benchmark.comparison import Comparison, Difference
from runtime.benchmark.results import (
    Environment,
    Results,
    Row,
    read_environment,
    read_row,
    results_values,
    row_values,
)

_MACHINE_COLUMNS = ("cpu_name", "isa", "num_cores", "memory_total_bytes")


def line_values(row: Row, environment: Environment) -> dict[str, Any]:
    """A line of JSONL: a row that tells its environment itself."""
    return {**row_values(row), "environment": asdict(environment)}


def json_text(results: Results) -> str:
    """One object, for people too."""
    return json.dumps(results_values(results), ensure_ascii=False, indent=1) + "\n"


def csv_text(results: Results) -> str:
    """A header and a line for each row; several values in one cell are separated by blanks."""
    lines = [_flat(row, results.environment) for row in results.rows]
    names = list(dict.fromkeys(name for line in lines for name in line))
    out = io.StringIO()
    writer = csv.DictWriter(out, names, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(lines)
    return out.getvalue()


def _flat(row: Row, environment: Environment) -> dict[str, Any]:
    """Devices' values get the device's name before them; the ratio's become three."""
    values = row_values(row)
    devices, ratio, guessing = values.pop("devices"), values.pop("peer_ratio"), values.pop("speculation")
    flat = {name: _cell(value) for name, value in values.items()}
    for device in devices:
        flat |= {f"{device['device']}_{name}": value for name, value in device.items() if name != "device"}
    if ratio is not None:
        flat["peer_variant"] = f"{ratio['peer']} {ratio['variant']}"
        flat |= {f"peer_ratio_{name}": value for name, value in ratio["ratio"].items()}
    if guessing is not None:
        flat |= {f"guessing_ratio_{name}": value for name, value in guessing.pop("ratio").items()}
        flat |= {f"guessing_{name}": _cell(value) for name, value in guessing.items()}
    flat |= {f"machine_{name}": environment.machine.get(name) for name in _MACHINE_COLUMNS}
    flat |= {f"version_{name}": version for name, version in environment.versions.items()}
    return flat | {"load_start": environment.load_start, "load_end": environment.load_end}


def _cell(value: object) -> object:
    return " ".join(str(part) for part in value) if isinstance(value, list | tuple) else value


def comparison_values(comparison: Comparison) -> dict[str, Any]:
    """A comparison as JSON has it."""
    return {
        "margin": comparison.margin,
        "differences": [difference_values(difference) for difference in comparison.differences],
        "only_first": [row_values(row) for row in comparison.only_first],
        "only_second": [row_values(row) for row in comparison.only_second],
    }


def difference_values(difference: Difference) -> dict[str, Any]:
    """One pair, flat."""
    values = asdict(difference)
    setting, workload, interval = values.pop("setting"), values.pop("workload"), values.pop("interval") or {}
    ratios = {f"ratio_{name}" if name != "ratio" else name: interval.get(name) for name in ("ratio", "low", "high")}
    return {**setting, **workload, **values, **ratios}


def comparison_csv(comparison: Comparison) -> str:
    """A header and a line for each pair."""
    lines = [difference_values(difference) for difference in comparison.differences]
    out = io.StringIO()
    writer = csv.DictWriter(out, list(lines[0]) if lines else [], lineterminator="\n")
    if lines:
        writer.writeheader()
        writer.writerows(lines)
    return out.getvalue()


def read_results(path: Path) -> tuple[tuple[Row, ...], tuple[Environment, ...]]:
    """Rows and environments of a JSON or JSONL file.  Raises AppError for what is neither."""
    try:
        text = path.expanduser().read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise AppError(f"The results {path} can't be read: {reason}.") from error
    try:
        entries = _entries(text)
        rows = tuple(read_row(row) for entry in entries for row in entry.get("rows", (entry,)))
        environments = tuple(read_environment(entry["environment"]) for entry in entries)
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise AppError(
            f"{path} is no result of `tandem bench`: {_fault(error)}.",
            hint="`tandem bench --format json` or `--format jsonl` writes such files.",
        ) from error
    if not rows:
        raise AppError(f"{path} has no rows.")
    return rows, environments


def _fault(error: Exception) -> str:
    """What such a file has instead of a result, in a person's words."""
    match error:
        case json.JSONDecodeError():
            return "it is no JSON, or was cut off"
        case RecursionError():
            return "it is nested too deeply"
        case KeyError():
            return f"it lacks {error.args[0]!r}"
        case ValueError():
            return str(error)
        case _:
            return "a value in it is of another kind than bench writes"


def _entries(text: str) -> list[Mapping[str, Any]]:
    """One JSON object, or one a line."""
    try:
        return [json.loads(text)]
    except ValueError:
        return [json.loads(line) for line in text.splitlines() if line.strip()]
