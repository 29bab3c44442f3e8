"""`tandem bench --compare`: two files in, a verdict for each pair out."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path

import pytest
from bench_rows import ENVIRONMENT, SETTING, make_row

from app.bench.arguments import CompareRequest
from app.bench.compare_command import run
from app.bench.documents import json_text
from app.errors import AppError
from app.output import Console
from runtime.benchmark.results import Environment, Results, Row

SLOW = make_row(100.0, 101.0, 99.0, 100.5, 99.5)
FAST = make_row(150.0, 151.0, 149.0, 150.5, 149.5)


def compared(
    folder: Path,
    first: Row = SLOW,
    second: Row = FAST,
    *,
    format: str = "md",
    environments: tuple[Environment, Environment] = (ENVIRONMENT, ENVIRONMENT),
) -> tuple[int, str, str]:
    for name, row, environment in (("a", first, environments[0]), ("b", second, environments[1])):
        results = Results(environment=environment, rows=(row,))
        (folder / f"{name}.json").write_text(json_text(results), encoding="utf-8")
    out, err = io.StringIO(), io.StringIO()
    request = CompareRequest(first=folder / "a.json", second=folder / "b.json", format=format)
    return run(request, Console(out, err)), out.getvalue(), err.getvalue()


def test_a_table_says_which_is_faster(tmp_path: Path) -> None:
    status, stdout, stderr = compared(tmp_path)
    assert (status, stderr) == (0, "")
    assert "faster" in stdout and "95 % interval" in stdout


@pytest.mark.parametrize("format", ["json", "jsonl", "csv"])
def test_programs_can_read_it(tmp_path: Path, format: str) -> None:
    _, stdout, _ = compared(tmp_path, format=format)
    if format == "csv":
        assert stdout.count("\n") == 2 and "faster" in stdout
        return
    values = json.loads(stdout)
    difference = values["differences"][0] if format == "json" else values
    assert difference["verdict"] == "faster"


def test_nothing_in_common_is_a_failure(tmp_path: Path) -> None:
    with pytest.raises(AppError, match="no test in common"):
        compared(tmp_path, second=make_row(setting=replace(SETTING, threads=7)))


def test_other_machines_and_busy_ones_are_warned_about(tmp_path: Path) -> None:
    other = replace(ENVIRONMENT, machine={**ENVIRONMENT.machine, "cpu_name": "Another"}, load_start=5.0)
    status, stdout, stderr = compared(tmp_path, environments=(ENVIRONMENT, other))
    assert status == 0 and "faster" in stdout
    assert "warning: the processors differ: A Processor and Another." in stderr
    assert "warning: B was measured on a busy machine (load 5 on 2 cores)." in stderr
