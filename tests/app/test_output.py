"""The two streams: text apart from everything else, and progress that fits where it is shown."""

from __future__ import annotations

import io
import re

import pytest

from app.errors import AppError, OutputClosedError, Report, UsageError, report_of
from app.output import Console, ProgressBar, shown


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def bar_on(stderr: io.StringIO, unit: str = "bytes") -> tuple[ProgressBar, Clock]:
    clock = Clock()
    return ProgressBar(Console(io.StringIO(), stderr), "Downloading x", unit, clock=clock), clock


def screen_of(written: str) -> str:
    """What stands on the line after carriage returns."""
    line: list[str] = []
    column = 0
    for character in written:
        if character == "\r":
            column = 0
            continue
        line[column : column + 1] = [character]
        column += 1
    return "".join(line).rstrip()


def test_control_characters_become_visible_and_letters_stay() -> None:
    assert shown("a\x1b[0m\x07\x7f\x85") == "a␛[0m␇␡\\x85"
    assert shown("tab\tline\r\nä 漢字 　 👩‍👩‍👧 \u202e") == "tab\tline\r\nä 漢字 　 👩‍👩‍👧 \u202e"


def test_short_work_shows_no_bar() -> None:
    stderr = Terminal()
    bar, clock = bar_on(stderr)
    with bar:
        bar(0, 100)
        clock.now_s += 0.2
        bar(100, 100)
    assert stderr.getvalue() == ""


def test_a_bar_is_redrawn_in_place_without_escape_codes_and_leaves_nothing() -> None:
    stderr = Terminal()
    bar, clock = bar_on(stderr)
    with bar:
        bar(0, 10_000_000)
        clock.now_s += 2.0
        bar(5_000_000, 10_000_000)
        assert (
            screen_of(stderr.getvalue())
            == ("Downloading x  [############............] 50 %  5.0 MB of 10.0 MB  2.5 MB/s"[:79])
        )
        clock.now_s += 0.01
        before = stderr.getvalue()
        bar(5_000_001, 10_000_000)
        assert stderr.getvalue() == before, "drawn at most ten times a second"
        bar(10_000_000, 10_000_000)
        assert "100 %" in screen_of(stderr.getvalue())
    assert screen_of(stderr.getvalue()) == ""
    assert "\x1b" not in stderr.getvalue() and "\n" not in stderr.getvalue()


def test_an_unknown_total_shows_what_is_done() -> None:
    stderr = Terminal()
    bar, clock = bar_on(stderr, "kernels")
    clock.now_s += 1
    bar(3, 0)
    assert screen_of(stderr.getvalue()) == "Downloading x  3 kernels"


def test_where_there_is_no_terminal_long_work_says_a_line_now_and_then() -> None:
    stderr = io.StringIO()
    bar, clock = bar_on(stderr)
    for second in range(25):
        clock.now_s = 100.0 + second
        bar(second * 1000, 25_000)
    bar.close()
    lines = stderr.getvalue().splitlines()
    assert lines == [
        "Downloading x: 8 % (2.0 kB of 25.0 kB)",
        "Downloading x: 48 % (12.0 kB of 25.0 kB)",
        "Downloading x: 88 % (22.0 kB of 25.0 kB)",
    ]


def test_where_there_is_no_terminal_the_end_needs_no_line() -> None:
    stderr = io.StringIO()
    bar, clock = bar_on(stderr)
    clock.now_s += 5
    bar(100, 100)
    assert stderr.getvalue() == ""


def test_a_note_does_not_stand_in_the_bar() -> None:
    stderr = Terminal()
    console = Console(io.StringIO(), stderr)
    console.progress_line("half done")
    console.note("a \x1b[31mnote")
    assert re.fullmatch(r"\rhalf done\r +\ra ␛\[31mnote\n", stderr.getvalue())


def test_nobody_listening_on_stderr_stops_nothing() -> None:
    class Closed(Terminal):
        def write(self, text: str) -> int:
            raise BrokenPipeError

    stdout = io.StringIO()
    for console in (Console(stdout, Closed()), Console(stdout, None)):
        console.note("note")
        console.progress_line("bar")
        console.text("text")
    assert stdout.getvalue() == "texttext"


@pytest.mark.parametrize("error", [BrokenPipeError(), ValueError("I/O operation on closed file")])
def test_nobody_reading_stdout_is_told_to_the_caller(error: Exception) -> None:
    class Closed(io.StringIO):
        def write(self, text: str) -> int:
            raise error

    with pytest.raises(OutputClosedError):
        Console(Closed(), io.StringIO()).text("x")


def test_json_keeps_every_letter_and_sends_no_control_character() -> None:
    stdout = io.StringIO()
    Console(stdout, None).json({"text": "é漢\x1b\n"})
    assert stdout.getvalue() == '{"text": "é漢\\u001b\\n"}\n'


@pytest.mark.parametrize(
    ("error", "report"),
    [
        (AppError("Broken.", hint="mend it."), Report(message="Broken.", hint="mend it.", status=1)),
        (UsageError("Wrong."), Report(message="Wrong.", hint=None, status=2)),
        (FileNotFoundError(2, "No such file", "x"), Report(message="x: No such file.", hint=None, status=1)),
    ],
)
def test_faults_become_a_sentence_a_hint_and_a_status(error: Exception, report: Report) -> None:
    assert report_of(error) == report


def test_faults_of_the_rooms_below_are_sentences_already() -> None:
    from runtime.catalog import DownloadError
    from runtime.errors import EngineError

    for error in (DownloadError("No network."), EngineError("No room.")):
        assert report_of(error) == Report(message=str(error), hint=None, status=1)
    assert report_of(MemoryError()).hint == "choose a smaller model, or a smaller context with --ctx-size."
