"""The two streams: text apart from everything else, and nothing in either that steers a terminal."""

from __future__ import annotations

import errno
import io
import re

import pytest
from streams import Terminal

from app.errors import AppError, OutputClosedError, Report, UsageError, report_of
from app.output import Console, shown


def test_control_characters_become_visible_and_letters_stay() -> None:
    assert shown("a\x1b[0m\x07\x7f\x85") == "a␛[0m␇␡\\x85"
    assert shown("tab\tline\r\nä 漢字 　 👩‍👩‍👧 \u202e") == "tab\tline\r\nä 漢字 　 👩‍👩‍👧 \u202e"


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


def test_a_full_stdout_is_told_by_its_name() -> None:
    class Full(io.StringIO):
        def flush(self) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(AppError, match=r"^Standard output can't be written: No space left on device\.$"):
        Console(Full(), io.StringIO()).text("text")
