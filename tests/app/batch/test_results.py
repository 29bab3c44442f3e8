"""The file of results: whole records whatever was cut off, in order when asked, one run at a time."""

from __future__ import annotations

import csv
import errno
import io
import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.batch.formats import COLUMNS, Format, FormatName, format_for
from app.batch.progress import BatchProgress, duration_text
from app.batch.results import InOrder, Record, ResultsFile
from app.batch.rows import Row
from app.errors import AppError
from app.output import Console
from runtime import Completion, GenerateOptions
from runtime.timings import Clock

TEXTS = ['plain "quoted", text', "two\nlines\r\nand a \\n", "", "é\u2028\ttab", '"', "a\n\nb"]
TIMINGS = Clock().timings(prompt_tokens=1, reused_tokens=0)
NAMES: tuple[FormatName, ...] = ("jsonl", "csv", "text")


def completion(text: str) -> Completion:
    return Completion(
        text=text,
        ids=(1, 2),
        prompt_ids=(5,),
        finish_reason="stop",
        stop_text=None,
        timings=TIMINGS,
        logprobs=(),
        prompt_logprobs=(),
        notes=(),
        seed=7,
    )


def row(line: int, row_id: str | int) -> Row:
    return Row(line=line, id=row_id, prompt="x", options=GenerateOptions(), meta={"n": line})


def written(format: Format, texts: list[str]) -> str:
    records = [
        format.record(row(line, f"id {line}"), completion(text), f"key{line}") for line, text in enumerate(texts)
    ]
    return format.begin() + "".join(records)


@pytest.mark.parametrize("name", NAMES)
@given(texts=st.lists(st.sampled_from(TEXTS), max_size=5), data=st.data())
def test_what_is_cut_anywhere_is_read_to_its_last_whole_record(
    name: FormatName, texts: list[str], data: st.DataObject
) -> None:
    format = format_for(name, None)
    content = written(format, texts).encode()
    ends = [len(written(format, texts[:count]).encode()) for count in range(len(texts) + 1)]
    cut = data.draw(st.integers(0, len(content)))
    known = format.read(content[:cut])
    whole = [count for count, end in enumerate(ends) if end <= cut]
    assert known.end == (ends[whole[-1]] if whole else 0)
    assert known.num_records == (whole[-1] if whole else 0)
    if not format.is_positional:
        assert known.requests == {f"id {line}": f"key{line}" for line in range(known.num_records)}


def test_the_formats_can_be_read_by_others() -> None:
    for value, text in zip(
        map(json.loads, written(format_for("jsonl", None), TEXTS).split("\n")[:-1]), TEXTS, strict=True
    ):
        assert value["text"] == text and value["finish_reason"] == "stop" and value["ids"] == [1, 2]
        assert value["meta"] == {"n": TEXTS.index(text)} and value["seed"] == 7
    header, *rows = csv.reader(io.StringIO(written(format_for("csv", None), TEXTS), newline=""))
    assert tuple(header) == COLUMNS and [line[1] for line in rows] == TEXTS
    lines = written(format_for("text", None), TEXTS).split("\n")[:-1]
    assert lines[1] == r"two\nlines\r\nand a \\n" and len(lines) == len(TEXTS)


def test_the_format_follows_the_name() -> None:
    expected: tuple[tuple[FormatName, str], ...] = (
        ("jsonl", ".jsonl"),
        ("jsonl", ""),
        ("csv", ".CSV"),
        ("text", ".txt"),
    )
    for name, suffix in expected:
        assert type(format_for(None, Path(f"out{suffix}"))) is type(format_for(name, None))


@pytest.mark.parametrize("name", NAMES)
def test_a_file_is_gone_on_with_after_its_last_whole_record(tmp_path: Path, name: FormatName) -> None:
    format = format_for(name, None)
    path = tmp_path / "结果 out"
    whole = written(format, TEXTS)
    for cut in range(0, len(whole.encode()), len(whole) // 13):
        path.write_bytes(whole.encode()[:cut])
        with ResultsFile(path, format) as file:
            if format.is_positional:
                assert file.known.keys == tuple(f"key{line}" for line in range(file.known.num_records))
            for line in range(file.known.num_records, len(TEXTS)):
                file.append(format.record(row(line, f"id {line}"), completion(TEXTS[line]), f"key{line}"), f"key{line}")
        assert path.read_bytes() == whole.encode()


def test_what_is_not_ours_stays(tmp_path: Path) -> None:
    format = format_for("jsonl", None)
    path = tmp_path / "out.jsonl"
    ours = written(format, ["yes"])
    path.write_text(f'{{"mine": 1}}\nnothing\n{ours}')
    with ResultsFile(path, format) as file:
        assert file.known.requests == {"id 0": "key0"}
        file.append("{}\n", "key")
    assert path.read_text() == f'{{"mine": 1}}\nnothing\n{ours}{{}}\n'


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("jsonl", "my notes\nwithout a last line end"),
        ("jsonl", "my notes"),
        ("jsonl", '{"id": "q1", "prompt": "a question"}\n{"id": "q2", "prompt": "another"}'),
        ("jsonl", '{"id": "q1", "prompt": "a question"}'),
        ("jsonl", '{"mine": 1}\n'),
        ("csv", "a,b\n1,2\nx,y"),
        ("csv", 'one, "open quote'),
        ("csv", "id,prompt\n"),
        ("text", "one\ntwo\nthree\nfour"),
        ("text", "one\n"),
        ("text", "my last words"),
    ],
)
def test_a_file_of_something_else_is_left_as_it_is(tmp_path: Path, name: FormatName, content: str) -> None:
    path = tmp_path / "precious"
    path.write_text(content)
    with pytest.raises(AppError, match="something else than the results"):
        ResultsFile(path, format_for(name, None))
    assert path.read_text() == content
    assert [file.name for file in tmp_path.iterdir()] == ["precious"]


@pytest.mark.parametrize("more", ["another line\n", "half a line"])
def test_text_that_somebody_added_to_is_left_as_it_is(tmp_path: Path, more: str) -> None:
    path = tmp_path / "out.txt"
    with ResultsFile(path, format_for("text", None)) as file:
        file.append("an answer\n", "key")
    with path.open("a") as file:
        file.write(more)
    with pytest.raises(AppError, match="something else than the results"):
        ResultsFile(path, format_for("text", None))
    assert path.read_text() == f"an answer\n{more}"


def test_a_record_that_breaks_off_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a disk does that fills up within a record: the first part is written, the next one fails."""
    path = tmp_path / "out.jsonl"
    write, room = os.write, [25]

    def write_until_full(descriptor: int, data: bytes) -> int:
        if not room[0]:
            raise OSError(errno.ENOSPC, "No space left on device")
        count = write(descriptor, data[: room[0]])
        room[0] -= count
        return count

    monkeypatch.setattr(os, "write", write_until_full)
    with ResultsFile(path, format_for("jsonl", None)) as file:
        file.append('{"id": 1, "a": 2}\n', "one")
        with pytest.raises(AppError, match="No space left"):
            file.append('{"id": 2, "a": 2}\n', "two")
    assert path.read_text() == '{"id": 1, "a": 2}\n'


def test_results_go_into_a_pipe(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    with ResultsFile(pipe, format_for("jsonl", None)) as file:
        file.append("{}\n", "key")
    assert os.read(reader, 100) == b"{}\n"
    os.close(reader)


def test_two_runs_do_not_share_a_file(tmp_path: Path) -> None:
    format = format_for("jsonl", None)
    with ResultsFile(tmp_path / "out", format), pytest.raises(AppError, match="Another run is writing"):
        ResultsFile(tmp_path / "out", format)
    ResultsFile(tmp_path / "out", format).close()
    with pytest.raises(AppError, match="can't be written"):
        ResultsFile(tmp_path / "none" / "out", format)


@given(st.permutations(range(6)))
def test_records_go_out_in_order(arrivals: list[int]) -> None:
    order = InOrder({10 + place: place for place in range(6)})
    gone = [one.text for place in arrivals for one in order.add(10 + place, Record(text=str(place), key="key"))]
    assert gone == ["0", "1", "2", "3", "4", "5"]


def test_progress_tells_rows_rate_and_time_left() -> None:
    now = [100.0]
    stderr = io.StringIO()
    progress = BatchProgress(Console(None, stderr), 8, clock=lambda: now[0])
    progress.update(0, 0)
    assert stderr.getvalue() == "", "nothing is said at once"
    now[0] += 20
    progress.update(2, 500)
    progress.update(3, 600)
    assert stderr.getvalue() == "2 of 8 rows, 25.0 tokens/s, 1:00 min left\n"
    now[0] += 20
    progress.update(8, 2000)
    assert stderr.getvalue().splitlines()[1] == "8 of 8 rows, 75.0 tokens/s"


def test_durations_read_well() -> None:
    assert [duration_text(value) for value in (0.4, 59, 185, 3729)] == ["0 s", "59 s", "3:05 min", "1:02:09 h"]
