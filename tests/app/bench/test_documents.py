"""Results in every format: what a program reads out of them is what was put in."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from bench_rows import DECODE, ENVIRONMENT, GUESSES, GUESSING, RATIO, make_row, peer_row

from app.bench.documents import (
    comparison_csv,
    comparison_values,
    csv_text,
    json_text,
    line_values,
    read_results,
)
from app.bench.markdown import comparison_markdown, markdown
from app.errors import AppError
from runtime.benchmark.comparison import compare
from runtime.benchmark.results import Results
from runtime.benchmark.workloads import Workload

ROWS = (
    make_row(peer_ratio=RATIO),
    peer_row(100.0, 110.0, 120.0),
    peer_row(140.0, 150.0, 160.0, variant="--repack 0"),
    make_row(5.0, workload=Workload(test="verify", output_tokens=8, width=4), step_time_ratio=1.25, is_complete=False),
    make_row(workload=Workload(test="parallel", output_tokens=8, width=8), step_time_ratio=2.0),
    make_row(
        workload=Workload(test="generate", prompt_tokens=512, output_tokens=128),
        ttft_s=0.25,
        overhead_ms=0.125,
        inter_token_p50_ms=3.0,
        inter_token_p95_ms=4.0,
        inter_token_p99_ms=5.5,
    ),
)
RESULTS = Results(environment=ENVIRONMENT, rows=ROWS)


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def jsonl(rows: tuple[Any, ...] = ROWS) -> str:
    return "".join(json.dumps(line_values(row, ENVIRONMENT)) + "\n" for row in rows)


def table_lines(text: str) -> list[list[str]]:
    """The cells of the first table."""
    lines = text.split("\n\n")[0].splitlines()
    assert len({len(line) for line in lines}) == 1, "columns are aligned"
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_json_and_json_lines_come_back(tmp_path: Path) -> None:
    whole = read_results(write(tmp_path / "a.json", json_text(RESULTS)))
    assert whole == (ROWS, (ENVIRONMENT,))
    lines = read_results(write(tmp_path / "a.jsonl", jsonl()))
    assert lines == (ROWS, (ENVIRONMENT,) * len(ROWS))
    assert read_results(write(tmp_path / "one.jsonl", jsonl(ROWS[:1])))[0] == ROWS[:1]


def test_several_results_in_one_file_of_lines(tmp_path: Path) -> None:
    assert read_results(write(tmp_path / "a.jsonl", jsonl() + jsonl()))[0] == ROWS + ROWS


def test_csv_has_a_line_for_each_row() -> None:
    lines = list(csv.DictReader(io.StringIO(csv_text(RESULTS))))
    assert len(lines) == len(ROWS)
    first, second = lines[:2]
    assert (first["engine"], first["test_name"], float(first["tokens_per_s"])) == ("tandem", "decode 128", 300.0)
    assert [float(sample) for sample in first["tokens_per_s_samples"].split()] == [290.0, 300.0, 320.0]
    assert float(first["cpu_limit_share"]) == 0.81 and first["cpu_limited_by"] == "memory"
    assert (first["peer_variant"], float(first["peer_ratio_median"])) == ("llama.cpp --repack 0", 2.0)
    assert (first["machine_cpu_name"], first["version_numpy"], first["load_end"]) == ("A Processor", "2.4.6", "1.9")
    assert second["cpu_limit_share"] == second["peer_variant"] == second["activations"] == ""


def test_markdown_shows_every_row() -> None:
    text = markdown(RESULTS)
    titles, rule, *lines = table_lines(text)
    assert titles[:2] == ["engine", "model"] and "batch" not in titles and "K/V" not in titles
    assert all(set(cell) <= set("-:") for cell in rule)
    cells = [dict(zip(titles, line, strict=True)) for line in lines]
    assert [line["engine"] for line in cells[:3]] == ["tandem", "llama.cpp default", "llama.cpp --repack 0"]
    assert (cells[0]["test"], cells[0]["tokens/s"], cells[0]["min .. max"]) == ("decode 128", "300.0", "290.0 .. 320.0")
    assert cells[0]["of the limit"] == "81 % memory" and cells[1]["of the limit"] == ""
    assert cells[3][""] == "1.25 x the time of one token, stopped after 1 repeat"
    assert cells[4][""] == "4.00 x the tokens/s of one"
    assert cells[5][""] == "first token after 0.250 s, 0.12 ms a token beside the device"
    assert cells[5]["ITL ms p50 / p95 / p99"] == "3.00 / 4.00 / 5.50"
    assert "2.00 x" in text and "1.90 .. 2.10" in text
    assert "- CPU: A Processor, 2 cores, avx512" in text and "- load: 0.1 at the start, 1.9 at the end" in text
    assert "python 3.11.7, numpy 2.4.6" in text


def test_markdown_of_tandem_alone_names_no_engine() -> None:
    text = markdown(Results(environment=ENVIRONMENT, rows=(make_row(),)))
    assert "engine" not in table_lines(text)[0] and "other engine" not in text
    assert markdown(Results(environment=ENVIRONMENT, rows=())) == ""


def test_names_with_bars_stay_in_their_column() -> None:
    row = make_row(setting=ROWS[0].setting.__class__(**{**asdict(ROWS[0].setting), "model_file": "a|b.gguf"}))
    assert r"a\|b" in markdown(Results(environment=ENVIRONMENT, rows=(row,)))


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "has no rows"),
        ("hello", "is no result of `tandem bench`: it is no JSON, or was cut off"),
        ("[]", "is no result of `tandem bench`: a value in it is of another kind than bench writes"),
        ("{}", "is no result of `tandem bench`: it lacks 'devices'"),
        ('{"environment": {}, "rows": []}', "is no result of `tandem bench`: a value in it is of another kind"),
        ('{"rows": [{}]}', "is no result of `tandem bench`: it lacks 'devices'"),
        (json_text(RESULTS)[:-20], "is no result of `tandem bench`: it is no JSON, or was cut off"),
        (jsonl() + "{", "is no result of `tandem bench`: it is no JSON, or was cut off"),
        ("[" * 100_000, "is no result of `tandem bench`: it is nested too deeply"),
    ],
)
def test_what_is_no_result_is_refused_without_a_word_of_python(tmp_path: Path, text: str, sentence: str) -> None:
    with pytest.raises(AppError, match=sentence) as caught:
        read_results(write(tmp_path / "a.json", text))
    assert "Error" not in str(caught.value)


def test_a_file_that_is_missing_or_binary_is_refused(tmp_path: Path) -> None:
    with pytest.raises(AppError, match="can't be read: No such file"):
        read_results(tmp_path / "a.json")
    (tmp_path / "b.json").write_bytes(b"\xff\xfe")
    with pytest.raises(AppError, match="it is not UTF-8"):
        read_results(tmp_path / "b.json")


SLOW = [100.0, 101.0, 99.0, 100.5, 99.5]
FAST = [150.0, 151.0, 149.0, 150.5, 149.5]


def test_a_comparison_in_every_format() -> None:
    only = make_row(workload=Workload(test="prefill", prompt_tokens=8))
    comparison = compare([make_row(*SLOW), only], [make_row(*FAST)])
    titles, _, line = table_lines(comparison_markdown(comparison))
    cells = dict(zip(titles, line, strict=True))
    assert (cells["A tokens/s"], cells["B tokens/s"], cells["B / A"], cells["B is"]) == (
        "100.0",
        "150.0",
        "1.50",
        "faster",
    )
    assert "only in A: a-model-q4_k_m, prefill 8, 2 threads, balanced" in comparison_markdown(comparison)
    values = json.loads(json.dumps(comparison_values(comparison)))
    (difference,) = values["differences"]
    assert (difference["verdict"], difference["ratio"]) == ("faster", pytest.approx(1.5))
    assert difference["ratio_low"] < 1.5 < difference["ratio_high"]
    assert values["only_first"][0]["test"] == "prefill" and values["only_second"] == []
    (row,) = csv.DictReader(io.StringIO(comparison_csv(comparison)))
    assert (row["verdict"], float(row["ratio"])) == ("faster", pytest.approx(1.5))


def test_a_comparison_of_too_few_repeats_shows_no_interval() -> None:
    comparison = compare([make_row(1.0, workload=DECODE)], [make_row(2.0, workload=DECODE)])
    assert "too few repeats" in comparison_markdown(comparison)
    assert comparison_values(comparison)["differences"][0]["ratio"] is None


def test_what_guessing_brought_stands_in_every_format(tmp_path: Path) -> None:
    rows = (make_row(workload=GUESSING, speculation=GUESSES, devices=()), make_row())
    results = Results(environment=ENVIRONMENT, rows=rows)
    text = markdown(results)
    assert "2.00 x of 150.0 without guesses, all answers the same" in text
    section = text[text.index("Every prompt with guesses and without, in turn:") :]
    cells = [cell.strip() for cell in section.splitlines()[4].strip("|").split("|")]
    assert cells == ["edits x 64, temp 0.8, small", "150.0", "300.0", "2.00 x", "0.97 .. 3.25", "30 of 40"] + [
        *("88 50", "4.00", "12", "1.2 / 2.5 / 1.8", "6 of 6")
    ]
    assert "Guessing stopped for a while:\n- guesses do not pay" in section
    differing = asdict(GUESSES) | {"ratio": GUESSES.ratio, "same_answers": 5}
    changed = make_row(workload=GUESSING, speculation=type(GUESSES)(**differing))
    assert "ANSWERS DIFFER" in markdown(Results(environment=ENVIRONMENT, rows=(changed,)))
    line = next(csv.DictReader(io.StringIO(csv_text(results))))
    assert (line["guessing_ratio_median"], line["guessing_acceptance_by_position"]) == ("2.0", "0.875 0.5")
    assert (line["draft"], line["prompt_set"], line["temperature"]) == ("small", "edits", "0.8")
    assert read_results(write(tmp_path / "r.json", json_text(results)))[0] == rows
