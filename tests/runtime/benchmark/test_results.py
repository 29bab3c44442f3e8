"""Rows to plain values and back."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from bench_rows import ENVIRONMENT, GUESSES, GUESSING, RATIO, make_row, peer_row

from runtime.benchmark.results import Results, read_environment, read_row, results_values, row_values
from runtime.benchmark.workloads import Workload

ROWS = [
    make_row(),
    make_row(1.0, peer_ratio=RATIO, is_complete=False),
    make_row(workload=Workload(test="verify", output_tokens=8, width=4, depth=7), step_time_ratio=1.2),
    make_row(ttft_s=0.1, overhead_ms=0.2, inter_token_p50_ms=3.0, inter_token_p95_ms=4.0, inter_token_p99_ms=5.0),
    peer_row(),
    make_row(workload=GUESSING, speculation=GUESSES, devices=()),
]


@pytest.mark.parametrize("row", ROWS)
def test_a_row_comes_back_from_json(row: Any) -> None:
    assert read_row(json.loads(json.dumps(row_values(row)))) == row


def test_an_environment_comes_back_from_json() -> None:
    values = json.loads(json.dumps(results_values(Results(environment=ENVIRONMENT, rows=tuple(ROWS)))))
    assert read_environment(values["environment"]) == ENVIRONMENT
    assert [read_row(row) for row in values["rows"]] == ROWS


def test_the_names_that_scripts_rely_on() -> None:
    values = row_values(ROWS[0])
    assert values["tokens_per_s"] == 300.0
    assert (values["tokens_per_s_least"], values["tokens_per_s_most"]) == (290.0, 320.0)
    assert (values["engine"], values["test"], values["test_name"], values["repeats"]) == (
        "tandem",
        "decode",
        "decode 128",
        3,
    )
    assert values["devices"][0]["limit_share"] == 0.81


@pytest.mark.parametrize("spoilt", [{"tokens_per_s_samples": []}, {"tokens_per_s_samples": [1.0, 0.0]}])
def test_a_row_without_rates_is_refused(spoilt: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="repeats"):
        read_row({**row_values(ROWS[0]), **spoilt})


@pytest.mark.parametrize("name", ["devices", "engine", "tokens_per_s_samples", "test"])
def test_a_row_that_lacks_something_is_refused(name: str) -> None:
    values = row_values(ROWS[0])
    del values[name]
    with pytest.raises((KeyError, TypeError)):
        read_row(values)


def test_values_that_a_later_version_adds_are_passed_over() -> None:
    assert read_row({**row_values(ROWS[0]), "new": 1}) == replace(ROWS[0])


def test_a_row_from_before_guesses_were_measured_is_read() -> None:
    values = row_values(ROWS[0])
    for name in ("speculation", "draft", "prompt_set", "temperature"):
        del values[name]
    assert read_row(values) == ROWS[0]
