"""The terminal that other tests run programs in."""

from __future__ import annotations

import pytest
from terminal import Terminal, TerminalError


def test_screen_keys_and_status() -> None:
    script = "printf 'name? '; read name; printf '\\033[2J\\033[5;3Hhello %s' \"$name\"; read end; exit 3"
    with Terminal(["sh", "-c", script]) as terminal:
        terminal.wait_for(lambda text: "name?" in text, "the question", timeout_s=20)
        terminal.send("Ada\r")
        screen = terminal.wait_for(lambda text: "hello Ada" in text, "the greeting", timeout_s=20)
        assert screen.splitlines()[4] == "  hello Ada"
        assert "name?" not in screen
        terminal.send("\r")
        assert terminal.wait(timeout_s=20) == 3


def test_size_is_what_was_asked_for() -> None:
    with Terminal(["stty", "size"], columns=61, lines=17) as terminal:
        terminal.wait_for(lambda text: "17 61" in text, "the size", timeout_s=20)
        assert terminal.wait(timeout_s=20) == 0


def test_the_error_shows_the_screen_of_a_program_that_ended() -> None:
    with (
        Terminal(["sh", "-c", "echo no luck; exit 4"]) as terminal,
        pytest.raises(TerminalError, match=r"status 4\) before the prompt:\nno luck"),
    ):
        terminal.wait_for(lambda text: "ready" in text, "the prompt", timeout_s=20)


def test_leaving_ends_a_program_that_ignores_the_hangup() -> None:
    with Terminal(["sh", "-c", "trap '' HUP; echo up; while :; do sleep 0.1; done"]) as terminal:
        terminal.wait_for(lambda text: "up" in text, "the start", timeout_s=20)
    assert terminal.wait(timeout_s=0) == 137
