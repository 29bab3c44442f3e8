"""Progress that fits where it is shown: in place on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import io

from streams import Terminal

from app.output import Console
from app.progress import ProgressBar, ProgressBars


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


def test_the_bar_says_how_long_it_takes_still() -> None:
    err = io.StringIO()
    moments = iter([0.0, 1.0, 30.0, 60.0, 100.0])
    bar = ProgressBar(
        Console(io.StringIO(), err), "Reading", "tokens", shows_time_left=True, clock=lambda: next(moments)
    )
    for done in (0, 100, 200, 300):
        bar(done, 1000)
    assert "Reading: 10 % (100 of 1000 tokens), 4 min left" in err.getvalue()
    assert "Reading: 30 % (300 of 1000 tokens), 4 min left" in err.getvalue()


def test_another_title_takes_the_last_bar_away() -> None:
    class Screen:
        is_stderr_terminal = False

        def __init__(self) -> None:
            self.said: list[str] = []

        def columns(self) -> int:
            return 80

        def note(self, text: str) -> None:
            self.said.append(text)

        def progress_line(self, text: str) -> None:
            self.said.append(text)

        def clear_progress_line(self) -> None:
            self.said.append("clear")

    screen = Screen()
    with ProgressBars(screen) as bars:
        bars.show("one", "tokens", 1, 10)
        bars.show("one", "tokens", 2, 10)
        assert screen.said == []
        bars.show("two", "tokens", 1, 10)
        assert screen.said == ["clear"]
    assert screen.said == ["clear", "clear"]
