"""Opens `make chat` in a terminal as a person would, asks one question, reads the answer, leaves.

Owns the words on the screen that it waits for. Knows nothing of how the chat works; the conversation is kept in a
folder that is thrown away, the model and the compiled kernels where they always are.
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "support")]

from terminal import Terminal, TerminalError  # noqa: E402 (found through the line above)

from models.local_models import FOLDER_VARIABLE, models_folder  # noqa: E402

QUESTION = "What is the capital of France?"
ANSWER = "Paris"
CTRL_Q = "\x11"
READY_S, ANSWER_S, LEAVE_S = 480.0, 120.0, 20.0


def has_opened(screen: str) -> bool:
    """The input is there, and the line that says what the loaded model is."""
    if "Ctrl+Q leaves" in screen:
        raise TerminalError(f"The chat could not load its model:\n{screen}")
    return "Write a message" in screen and re.search(r"· window [0-9,]+", screen) is not None


def has_answered(screen: str) -> bool:
    """The answer stands below the question, and the figures of a finished reply in the status line."""
    if "Tandem failed" in screen:
        raise TerminalError(f"The chat could not answer:\n{screen}")
    is_finished = re.search(r"(?:first token|TTFT) [0-9.]+ m?s", screen) is not None
    return is_finished and ANSWER in screen.partition(QUESTION)[2]


def talk(terminal: Terminal) -> None:
    start_s = time.monotonic()
    terminal.wait_for(has_opened, "the chat to open", timeout_s=READY_S)
    print(f"ready after {time.monotonic() - start_s:.1f} s", flush=True)
    terminal.send(QUESTION)
    terminal.wait_for(lambda screen: QUESTION in screen, "the question in the input", timeout_s=ANSWER_S)
    terminal.send("\r")
    screen = terminal.wait_for(has_answered, f"a finished reply that names {ANSWER}", timeout_s=ANSWER_S)
    print(screen, flush=True)
    terminal.send(CTRL_Q)
    status = terminal.wait(timeout_s=LEAVE_S)
    if status != 0:
        raise TerminalError(f"The chat left with exit status {status}, expected 0:\n{terminal.text}")
    print("left with exit status 0", flush=True)


def main() -> int:
    with tempfile.TemporaryDirectory() as data:
        environment = {
            **os.environ,
            FOLDER_VARIABLE: str(models_folder()),
            "XDG_DATA_HOME": data,
            "TANDEM_TEMP": "0",
        }
        try:
            with Terminal(
                ["make", "chat", "GPU=0"], environment=environment, folder=ROOT, columns=120, lines=40
            ) as terminal:
                talk(terminal)
        except TerminalError as error:
            print(error, file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
