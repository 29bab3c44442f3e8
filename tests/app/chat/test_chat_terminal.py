"""The real chat in a real terminal with a small model: paste, stream, stop, kill, reopen."""

import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

from terminal import Terminal

ROOT = Path(__file__).resolve().parents[3]
PATIENCE_S = 120.0
CTRL_O, CTRL_Q, ESCAPE, ENTER = "\x0f", "\x11", "\x1b", "\r"
PASTE_BEGIN, PASTE_END = "\x1b[200~", "\x1b[201~"


def open_chat(model: Path, data: Path) -> Terminal:
    """The chat as the command starts it, its conversations in a folder of the test.

    The environment claims the size of another terminal, as it does where a program was started from one.
    """
    command = [sys.executable, "-m", "app", "chat", str(model), "--temp", "0", "-n", "2000"]
    environment = {**os.environ, "XDG_DATA_HOME": str(data), "COLUMNS": "40", "LINES": "12"}
    return Terminal(command, environment=environment, folder=ROOT, columns=90, lines=30)


def wait(terminal: Terminal, *texts: str) -> str:
    """Until all of these stand on the screen."""
    return terminal.wait_for(
        lambda screen: all(text in screen for text in texts), f"{texts} on the screen", timeout_s=PATIENCE_S
    )


def test_a_conversation_that_is_stopped_killed_and_opened_again(
    model_path: Callable[[str], Path], tmp_path: Path
) -> None:
    model = model_path("smollm2-135m")
    with open_chat(model, tmp_path) as terminal:
        wait(terminal, "Write a message", "window 8,192")
        terminal.send(f"{PASTE_BEGIN}Write a very long story\nabout a dog [x].{PASTE_END}")
        screen = wait(terminal, "│ Write a very long story", "│ about a dog [x].")
        assert "▌" not in screen
        terminal.send(ENTER)
        wait(terminal, "writing", "tokens/s")  # the question may have left the screen by then
        terminal.send(ESCAPE)
        wait(terminal, "  stopped", "TTFT")
        terminal.send("Tell me all about cats." + ENTER)
        wait(terminal, "writing", "tokens/s")
        terminal.send("not sent")
        wait(terminal, "│ not sent")
        # What is older than a second is on disk by then; the figures change a few times meanwhile.
        for _ in range(8):
            before = terminal.text.splitlines()[-1]
            terminal.wait_for(
                lambda screen, before=before: screen.splitlines()[-1] != before, "other figures", timeout_s=PATIENCE_S
            )
        os.killpg(terminal._process.pid, signal.SIGKILL)
        assert terminal.wait(timeout_s=PATIENCE_S) == 128 + signal.SIGKILL
    with open_chat(model, tmp_path) as terminal:
        wait(terminal, "broke off in the middle of a reply", "window 8,192")
        terminal.send(CTRL_O)
        wait(terminal, "Conversations", "4 turns · broken off · unsent draft")
        terminal.send(ENTER)
        wait(terminal, "broken off here", "│ not sent")
        terminal.send(CTRL_Q)
        assert terminal.wait(timeout_s=PATIENCE_S) == 0


def test_what_is_typed_before_the_screen_stands_is_not_lost(model_path: Callable[[str], Path], tmp_path: Path) -> None:
    with open_chat(model_path("smollm2-135m"), tmp_path) as terminal:
        terminal.send("typed early")
        wait(terminal, "│ typed early")
        terminal.send(CTRL_Q)
        assert terminal.wait(timeout_s=PATIENCE_S) == 0


def test_a_closed_terminal_ends_the_chat_and_keeps_what_was_typed(
    model_path: Callable[[str], Path], tmp_path: Path
) -> None:
    """Also after it was stopped and continued from outside, which must not start a second reader of keys."""
    model = model_path("smollm2-135m")
    with open_chat(model, tmp_path) as terminal:
        wait(terminal, "Write a message", "window 8,192")
        terminal.signal(signal.SIGSTOP)
        terminal.signal(signal.SIGCONT)
        terminal.send("half a thought")
        wait(terminal, "│ half a thought")
        terminal.close()
        assert terminal.wait(timeout_s=PATIENCE_S) == 0
    with open_chat(model, tmp_path) as terminal:
        wait(terminal, "│ half a thought", "window 8,192")
        terminal.signal(signal.SIGSTOP)
        terminal.signal(signal.SIGCONT)
        terminal.send(CTRL_Q)
        assert terminal.wait(timeout_s=PATIENCE_S) == 0


def test_being_continued_many_times_at_once_stops_nothing(model_path: Callable[[str], Path], tmp_path: Path) -> None:
    """Whoever stops and continues whole groups of processes sends a second SIGCONT while the first is taken in."""
    with open_chat(model_path("smollm2-135m"), tmp_path) as terminal:
        wait(terminal, "Write a message", "window 8,192")
        for _ in range(60):
            terminal.signal(signal.SIGCONT)
            time.sleep(0.005)
        terminal.send("still there")
        wait(terminal, "│ still there")
        terminal.close()
        assert terminal.wait(timeout_s=PATIENCE_S) == 0
