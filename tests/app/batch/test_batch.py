"""A batch on a tiny model: what a row gets alone, gone on with after kill -9, bad rows by line, shared prefixes."""

from __future__ import annotations

import csv
import io
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from command_line import run_tandem
from tiny_models import write_tiny_model

ROOT = Path(__file__).resolve().parents[3]
LIMIT_S = 120
SYSTEM = "the quick brown fox jumps over the lazy dog and then the other fox looks at the river " * 8


@dataclass
class Outcome:
    status: int
    stdout: str
    stderr: str


Tandem = Callable[..., Outcome]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("batch models")
    write_tiny_model(folder / "tiny.gguf", metadata={"llama.context_length": 4096})
    write_tiny_model(folder / "other.gguf", seed=5)
    (folder / "settings.toml").touch()
    return folder


@pytest.fixture
def tandem(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Tandem:
    """Run `tandem generate` in this process."""
    monkeypatch.setenv("TANDEM_CONFIG", str(folder / "settings.toml"))

    def run(*arguments: object, model: str = "tiny.gguf") -> Outcome:
        status, out, err = run_tandem("generate", "-m", folder / model, "-t", 1, "-c", 1024, *arguments)
        return Outcome(status=status, stdout=out, stderr=err)

    return run


@pytest.fixture
def environment(folder: Path) -> dict[str, str]:
    """Of a `tandem` in a process of its own."""
    return {
        **{name: value for name, value in os.environ.items() if not name.startswith("TANDEM_")},
        "TANDEM_CONFIG": str(folder / "settings.toml"),
        "PYTHONPATH": str(ROOT),
    }


Start = Callable[[Path, Path], subprocess.Popen[bytes]]


@pytest.fixture
def start(folder: Path, environment: dict[str, str]) -> Iterator[Start]:
    """Begins a batch in a process of its own, from these rows into that file; it does not outlive the test."""
    processes: list[subprocess.Popen[bytes]] = []

    def begin(source: Path, out: Path) -> subprocess.Popen[bytes]:
        processes.append(_started(folder, source, out, environment))
        return processes[-1]

    yield begin
    for process in processes:
        process.kill()
        process.communicate()


def _started(folder: Path, source: Path, out: Path, environment: dict[str, str]) -> subprocess.Popen[bytes]:
    given = ["generate", "-m", str(folder / "tiny.gguf"), "-c", "1024", "-t", "1", "--parallel", "3"]
    command = [sys.executable, "-m", "app", *given, "--jsonl", str(source), "--out", str(out)]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def wait_for_rows(process: subprocess.Popen[bytes], out: Path, wanted: int) -> None:
    """Until that many results are on the disk."""
    deadline = time.monotonic() + LIMIT_S
    while not out.exists() or out.read_bytes().count(b"\n") < wanted:
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.002)


def write_rows(path: Path, rows: Sequence[object]) -> Path:
    path.write_text("".join(f"{row if isinstance(row, str) else json.dumps(row)}\n" for row in rows), "utf-8")
    return path


def results(path: Path) -> dict[Any, dict[str, Any]]:
    values = list(map(json.loads, path.read_text("utf-8").splitlines()))
    assert len({value["id"] for value in values}) == len(values)
    return {value["id"]: value for value in values}


ROWS: list[dict[str, Any]] = [
    {"id": "warm", "prompt": "fox", "seed": 1, "predict": 20, "temp": 1.4},
    {"id": "raw", "prompt": "the dog", "raw": True, "seed": 2, "predict": 3},
    {"id": "logprobs", "prompt": "the fox", "seed": 2, "predict": 4, "logprobs": 2, "prompt_logprobs": 1},
    {"id": "cold", "messages": [{"role": "user", "content": "river"}], "temp": 0, "predict": 12, "seed": 0},
    {"id": "chain", "prompt": "fox", "seed": 3, "predict": 15, "samplers": "temperature;top_k", "dry_multiplier": 0.8},
    {"id": "mirostat", "prompt": "dog", "seed": 3, "predict": 15, "mirostat": 2},
    {"id": "regex", "prompt": "dog", "seed": 4, "regex": "[a-f]{4}"},
    {"id": "schema", "prompt": "dog", "seed": 5, "schema": {"enum": ["yes", 1, None]}},
    {"id": "banned", "prompt": "dog", "seed": 6, "predict": 25, "banned_string": ["a", "th"], "temp": 2},
]


def test_a_row_gets_what_it_gets_alone(tandem: Tandem, tmp_path: Path) -> None:
    together = tandem("--jsonl", write_rows(tmp_path / "in", ROWS), "--out", tmp_path / "out", "--parallel", 5)
    assert (together.status, together.stdout) == (0, "")
    assert "9 of 9 rows answered" in together.stderr and "tokens/s" in together.stderr
    found = results(tmp_path / "out")
    assert {key: found[key]["finish_reason"] for key in ("warm", "schema")} == {"warm": "length", "schema": "stop"}
    for number, row in enumerate(ROWS):
        alone = tmp_path / f"out {number}"
        assert tandem("--jsonl", write_rows(tmp_path / "one", [row]), "--out", alone, "--parallel", 1).status == 0
        single = results(alone)[row["id"]]
        for key in ("ids", "text", "seed", "finish_reason", "logprobs", "prompt_logprobs"):
            assert single.get(key) == found[row["id"]].get(key)
    assert len(found["logprobs"]["logprobs"]) == 4 and len(found["logprobs"]["logprobs"][0]) == 2
    assert json.loads(found["schema"]["text"]) in ("yes", 1, None)
    assert not any(text in found["banned"]["text"] for text in ("a", "th"))


def test_bad_rows_are_told_by_line_and_the_rest_goes_on(tandem: Tandem, tmp_path: Path) -> None:
    rows = [
        {"id": 1, "prompt": "a", "predict": 2},
        "{",
        {"id": 3, "prompt": "a", "temp": -1},
        {"id": 4, "prompt": "a", "schema": {"items": {"not": {}}}},
        {"id": 5, "prompt": "fox " * 2000},
        {"id": 6, "prompt": "a", "logit_bias": ["99999+1"]},
        {"id": 7, "prompt": "a", "predict": 2},
    ]
    source = write_rows(tmp_path / "in.jsonl", rows)
    done = tandem("--jsonl", source, "--out", tmp_path / "out", "--parallel", 2)
    assert done.status == 1
    assert sorted(results(tmp_path / "out")) == [1, 7]
    for line, fault in (
        (2, "it is no JSON"),
        (3, "--temp"),
        (4, "#/items"),
        (5, "the context window holds 1024"),
        (6, "--logit-bias"),
    ):
        (told,) = [text for text in done.stderr.splitlines() if text.startswith(f"line {line}: ")]
        assert fault in told
    assert "2 of 7 rows answered, 5 bad" in done.stderr

    write_rows(source, [*rows[:1], {"id": 2, "prompt": "mended", "predict": 1}, *rows[2:]])
    again = tandem("--jsonl", source, "--out", tmp_path / "out")
    assert again.status == 1 and "1 of 7 rows answered, 2 were there already, 4 bad" in again.stderr
    assert sorted(results(tmp_path / "out")) == [1, 2, 7]


def test_a_table_given_as_rows_is_told_where_tables_go(tandem: Tandem, tmp_path: Path) -> None:
    source = write_rows(tmp_path / "words.csv", ["word,id", "cat,1", "dog,2"])
    done = tandem("--jsonl", source, "--out", tmp_path / "out")
    assert (done.status, done.stdout, done.stderr.count("\n")) == (1, "", 2)
    assert f"needs a JSON object in every line, and {source} has none" in done.stderr
    assert "a table (CSV) goes with --data FILE" in done.stderr
    assert not (tmp_path / "out").exists()


def test_in_order_when_asked_and_otherwise_as_they_finish(tandem: Tandem, tmp_path: Path) -> None:
    rows = [{"id": number, "prompt": "a", "regex": f"[01]{{{length}}}"} for number, length in enumerate((800, 5, 9))]
    source = write_rows(tmp_path / "in", rows)
    for name, arguments, place in (("a", ["--ordered"], 0), ("b", [], 2)):
        assert tandem("--jsonl", source, "--out", tmp_path / name, "--parallel", 4, *arguments).status == 0
        order = list(results(tmp_path / name))
        assert order[place] == 0 and (place or order == [0, 1, 2])


def test_a_shared_system_text_is_computed_once(tandem: Tandem, tmp_path: Path) -> None:
    rows = [{"id": number, "prompt": str(number), "predict": 2} for number in range(6)]
    source = write_rows(tmp_path / "in", rows)
    assert tandem("--jsonl", source, "--out", tmp_path / "out", "--system", SYSTEM, "--parallel", 6).status == 0
    timings = [value["timings"] for value in results(tmp_path / "out").values()]
    computed = sorted(timing["prompt_tokens"] - timing["reused_tokens"] for timing in timings)
    whole = timings[0]["prompt_tokens"]
    assert computed[-1] == whole and whole > 128
    assert all(count < 128 for count in computed[:-1]), "all but the first begin from its pages"


def test_what_is_done_is_skipped_and_other_questions_are_refused(tandem: Tandem, tmp_path: Path) -> None:
    source = write_rows(tmp_path / "in", [{"id": 1, "prompt": "a"}, {"id": 2, "prompt": "b"}])
    out = tmp_path / "out"
    assert tandem("--jsonl", source, "--out", out, "-n", 4, "-s", 1).status == 0
    before = out.read_bytes()
    again = tandem("--jsonl", source, "--out", out, "-n", 4, "-s", 1)
    assert again.status == 0 and "0 of 2 rows answered, 2 were there already" in again.stderr
    for arguments, model in (((), "tiny.gguf"), (("-n", 4, "-s", 2), "tiny.gguf"), (("-n", 4, "-s", 1), "other.gguf")):
        other = tandem("--jsonl", source, "--out", out, *arguments, model=model)
        assert other.status == 1 and "Line 1 (id 1) has an answer already" in other.stderr
    assert out.read_bytes() == before


def test_a_file_that_is_no_result_is_left_as_it_is(tandem: Tandem, tmp_path: Path) -> None:
    source = tmp_path / "in.jsonl"
    source.write_text('{"prompt": "a"}\n{"prompt": "last"}')
    notes = tmp_path / "notes.txt"
    notes.write_text("one\ntwo\nthree\nfour")
    same, other = tandem("--jsonl", source, "--out", source), tandem("--jsonl", source, "--out", notes)
    assert same.status == 2 and "the file that the rows come from" in same.stderr
    assert other.status == 1 and "something else than the results" in other.stderr
    assert source.read_text().endswith('"last"}') and notes.read_text() == "one\ntwo\nthree\nfour"


def test_text_is_gone_on_with_where_it_was_cut_and_refused_for_other_questions(tandem: Tandem, tmp_path: Path) -> None:
    source = write_rows(tmp_path / "in", [{"prompt": "a"}, "no row", {"prompt": "b"}, {"prompt": "c"}])
    out = tmp_path / "out.txt"
    given = ("--jsonl", source, "--out", out, "-n", 3, "-s", 1, "--parallel", 2)
    assert tandem(*given).status == 1, "one row is bad"
    whole = out.read_bytes()
    assert whole.count(b"\n") == 4 and whole.split(b"\n")[1] == b""
    for cut in (0, 1, whole.rindex(b"\n", 0, -1) + 2, len(whole)):
        out.write_bytes(whole[:cut])
        assert tandem(*given).status == 1 and out.read_bytes() == whole
    other = write_rows(tmp_path / "other", [{"prompt": "a"}, {"prompt": "x"}, {"prompt": "y"}, {"prompt": "z"}])
    refused = tandem("--jsonl", other, *given[2:])
    assert refused.status == 1 and "Line 3 (id 3) has an answer already" in refused.stderr
    fewer = tandem("--jsonl", write_rows(tmp_path / "fewer", [{"prompt": "a"}]), *given[2:])
    assert fewer.status == 1 and "4 answers already, and 1 rows" in fewer.stderr
    assert out.read_bytes() == whole


def test_a_table_fills_a_prompt_and_answers_are_csv_or_text(tandem: Tandem, tmp_path: Path) -> None:
    (tmp_path / "table.csv").write_text('id,animal\nx,fox\ny,"dog, lazy"\n')
    given = ("-p", "The {animal} says {{", "--data", tmp_path / "table.csv", "-n", 6, "-s", 1, "--parallel", 2)
    assert tandem(*given, "--out", tmp_path / "out.csv").status == 0
    rows = list(csv.DictReader(io.StringIO((tmp_path / "out.csv").read_text("utf-8"), newline="")))
    assert {row["id"] for row in rows} == {"x", "y"}
    assert tandem(*given, "--out", tmp_path / "out.txt").status == 0
    single = tandem("-p", "The dog, lazy says {", "-n", 6, "-s", 1, "--json")
    texts = {row["id"]: row["text"] for row in rows}
    assert json.loads(single.stdout)["text"] == texts["y"]
    lines = (tmp_path / "out.txt").read_text("utf-8").split("\n")
    assert [line.replace(r"\n", "\n").replace("\\\\", "\\") for line in lines] == [texts["x"], texts["y"], ""]
    to_stdout = tandem(*given, "--ordered")
    assert [json.loads(line)["text"] for line in to_stdout.stdout.splitlines()] == [texts["x"], texts["y"]]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["-p", "a", "--out", "x"], "--out needs many prompts"),
        (["-p", "a", "--parallel", "2"], "--parallel needs many prompts"),
        (["--jsonl", "x", "-p", "a"], "-p and --jsonl were given"),
        (["--jsonl", "x", "--data", "y"], "--data fills"),
        (["--data", "y"], "none was given"),
        (["--jsonl", "x", "--json"], "--json is for one prompt"),
        (["--jsonl", "x", "--parallel", "0"], "neither auto nor a number"),
        (["-p", "a", "--regex", "a", "--json-object"], "--json-object and --regex don't go together"),
        (["-p", "a", "--regex", ""], "--regex"),
        (["-p", "a", "--samplers", "top_k;nope"], "--samplers"),
        (["-p", "a", "--json-object", "--stop", "x"], "--stop"),
        (["--verify-spec", "-f", "x", "--out", "y"], "--out means nothing beside --verify-spec"),
    ],
)
def test_what_does_not_go_together_is_a_usage_error(tandem: Tandem, arguments: list[str], sentence: str) -> None:
    done = tandem(*arguments)
    assert (done.status, done.stdout) == (2, "")
    # argparse itself writes to the real stderr.
    assert sentence in done.stderr or "--parallel" in arguments


def test_one_answer_can_be_held_to_a_schema(tandem: Tandem, tmp_path: Path) -> None:
    (tmp_path / "schema.json").write_text('{"enum": ["fox", "dog"]}')
    (tmp_path / "grammar.gbnf").write_text('root ::= "fox" | "dog"\n')
    for arguments, texts in (
        (("--json-schema", tmp_path / "schema.json"), ('"fox"', '"dog"')),
        (("--json-schema", ' {"enum": ["fox", "dog"]}'), ('"fox"', '"dog"')),
        (("--regex", "fox|dog"), ("fox", "dog")),
        (("--grammar", tmp_path / "grammar.gbnf"), ("fox", "dog")),
    ):
        done = tandem("-p", "x", *arguments)
        assert done.status == 0 and done.stdout in texts
    refused = tandem("-p", "x", "--json-schema", '{"items": {"uniqueItems": true}}')
    assert (refused.status, refused.stdout) == (1, "") and "at #/items" in refused.stderr
    cut = tandem("-p", "x", "--regex", "[ab]{50}", "-n", 3)
    assert cut.status == 0 and "was cut after 3 tokens, before its schema or grammar was complete" in cut.stderr


def test_the_chain_in_force_is_told(tandem: Tandem) -> None:
    done = tandem("-p", "x", "-n", 1, "-v", "--samplers", "temperature;min_p", "--min-p", "0.2")
    assert "sampler: temperature 0.8, min_p 0.2, draw\n" in done.stderr


def test_an_interrupt_keeps_what_is_done(start: Start, tmp_path: Path) -> None:
    source = write_rows(tmp_path / "in", [{"id": number, "prompt": "a", "regex": "[01]{700}"} for number in range(200)])
    out = tmp_path / "out"
    process = start(source, out)
    wait_for_rows(process, out, 2)
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 130
    assert b"The same command goes on from here." in stderr and b"Traceback" not in stderr
    assert 2 <= len(results(out)) < 200 and out.read_bytes().endswith(b"\n")


def test_killed_and_started_again_it_goes_on(tandem: Tandem, start: Start, tmp_path: Path) -> None:
    rows = [{"id": number, "prompt": f"fox {number}", "predict": 60, "seed": number} for number in range(40)]
    source = write_rows(tmp_path / "in.jsonl", rows)
    out = tmp_path / "out.jsonl"
    process = start(source, out)
    wait_for_rows(process, out, 5)
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=LIMIT_S)
    before = out.read_bytes()
    num_before = before.count(b"\n")
    assert 5 <= num_before < 40
    out.write_bytes(before + b'{"id": 39, "text": "half a rec')
    process = start(source, out)
    stdout, stderr = process.communicate(timeout=LIMIT_S)
    assert (process.returncode, stdout) == (0, b"")
    assert f"{40 - num_before} of 40 rows answered, {num_before} were there already".encode() in stderr
    assert out.read_bytes().startswith(before[: before.rfind(b"\n") + 1])
    assert tandem("--jsonl", source, "--out", tmp_path / "whole", "--parallel", 2).status == 0
    found, expected = results(out), results(tmp_path / "whole")
    assert {key: value["ids"] for key, value in found.items()} == {key: value["ids"] for key, value in expected.items()}
