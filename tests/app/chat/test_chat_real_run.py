"""One whole visit to the real chat, with the real engine, in a real terminal: what a person does, step by step.

The model is SmolLM2 where it is on this disk, else a tiny one of noise: what it says does not matter here, only that
it comes from the engine and never ends by itself.
"""

import os
import signal
import sys
from pathlib import Path

import pytest
from terminal import Terminal
from tiny_models import TinyShape, write_tiny_model

from models.catalog import CATALOG
from models.local_models import local_path, models_folder

ROOT = Path(__file__).resolve().parents[3]
PATIENCE_S = 180.0
ENTER, ESCAPE, CTRL_B, CTRL_O, CTRL_Q = "\r", "\x1b", "\x02", "\x0f", "\x11"
ALT_E, ALT_U, ALT_X, ALT_UP, UP = "\x1be", "\x1bu", "\x1bx", "\x1b[1;3A", "\x1b[A"
NO_END = ("-l", "0-inf", "-l", "2-inf", "-n", "100000")
"""Both vocabularies end an answer with token 0 or 2."""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """SmolLM2 or the tiny one."""
    present = local_path(CATALOG["smollm2-135m"], models_folder())
    if present is not None:
        return present
    shape = TinyShape(num_layers=6, context_length=32768)
    return write_tiny_model(tmp_path_factory.mktemp("models") / "tiny.gguf", shape=shape)


class Visit:
    """A chat that somebody sits at."""

    def __init__(self, model: Path, data: Path) -> None:
        command = [sys.executable, "-m", "app", "chat", str(model), "--temp", "0", *NO_END]
        environment = {**os.environ, "XDG_DATA_HOME": str(data), "XDG_CONFIG_HOME": str(data)}
        self.terminal = Terminal(command, environment=environment, folder=ROOT, columns=100, lines=34)

    def sees(self, *texts: str) -> str:
        """Until all of these stand on the screen."""
        return self.terminal.wait_for(
            lambda screen: all(text in screen for text in texts), f"{texts} on the screen", timeout_s=PATIENCE_S
        )

    def types(self, *keys: str) -> None:
        """Keys or whole texts."""
        for key in keys:
            self.terminal.send(key)

    def has_the_model_write(self, text: str) -> None:
        """Sends, and waits until the answer grows."""
        self.types(text + ENTER)
        self.sees("writing")

    def stops(self) -> None:
        """Stops the answer and sees that it was."""
        self.types(ESCAPE)
        self.terminal.wait_for(
            lambda screen: "  stopped" in screen and "stopping" not in screen, "a stopped reply", timeout_s=PATIENCE_S
        )


def edit_and_walk(visit: Visit) -> None:
    """Edits the question, whose old answer stays as another branch; goes to the old one and back."""
    visit.types(ALT_UP, ALT_UP)
    visit.sees("Turn 1, your message:")
    visit.types(ALT_E)
    visit.sees("Editing your message", "│ Tell me about dogs.")
    visit.has_the_model_write(" And cats?")
    visit.stops()
    visit.types(CTRL_B)
    visit.sees("│ ○ you   Tell me about dogs.", "│ ● you   Tell me about dogs. And cats?")
    visit.types(UP, UP, UP, ENTER)
    visit.sees("▌ Tell me about dogs.", "‹ version 1 of 2 ›")
    visit.types(ALT_U)
    visit.sees("Taken back: the change of branch.")


def branch_and_remove(visit: Visit) -> None:
    """Branches from the question, and takes it back; removes the answer, and takes that back too."""
    visit.types("/branch 1" + ENTER)
    visit.sees("What you send next follows turn 1.")
    visit.types(ALT_U)
    visit.sees("Taken back: the branch.")
    visit.types(ALT_X)
    visit.sees("Removed turn 2, reply.")
    visit.types(ALT_U)
    visit.sees("Taken back: the removal of")


def kill_in_mid_answer(visit: Visit) -> None:
    """The machine takes the program away, at least a second into the answer: what is older than that is on disk."""
    visit.has_the_model_write("And birds?")
    visit.types("not sent")
    visit.sees("│ not sent")
    for _ in range(8):  # The figures change five times a second.
        before = visit.terminal.text.splitlines()[-1]
        visit.terminal.wait_for(
            lambda screen, before=before: screen.splitlines()[-1] != before, "other figures", timeout_s=PATIENCE_S
        )
    os.killpg(visit.terminal._process.pid, signal.SIGKILL)
    assert visit.terminal.wait(timeout_s=PATIENCE_S) == 128 + signal.SIGKILL


def test_a_visit_from_the_first_word_to_the_crash_and_back(model: Path, tmp_path: Path) -> None:
    visit = Visit(model, tmp_path)
    with visit.terminal:
        visit.sees("Write a message", "window ")
        visit.has_the_model_write("Tell me about dogs.")
        visit.stops()
        edit_and_walk(visit)
        branch_and_remove(visit)
        kill_in_mid_answer(visit)
    visit = Visit(model, tmp_path)
    with visit.terminal:
        visit.sees("broke off in the middle of a reply", "window ")
        visit.types(CTRL_O)
        visit.sees("Conversations", "6 turns · broken off · unsent draft")
        visit.types(ENTER)
        visit.sees("broken off here", "│ not sent")
        visit.types(CTRL_B)
        visit.sees("│ ○ you   Tell me about dogs.", "│ ● you   And birds?", "│ ● reply ")
        visit.types(ESCAPE, CTRL_Q)
        assert visit.terminal.wait(timeout_s=PATIENCE_S) == 0
