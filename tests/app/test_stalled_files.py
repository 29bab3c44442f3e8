"""A file that stops answering: it is said, and Ctrl-C ends the command at once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tiny_models import write_tiny_model

# Runs the command with reads beyond a place that never come back, and sooner impatience.
STALLING = """
import os, sys, time
import app.loading
app.loading.SLOW_AFTER_S, app.loading.STALLED_AFTER_S = 0, 0.3
first = int(sys.argv.pop(1))
read = os.preadv
def stalled(descriptor, buffers, offset):
    if offset >= first:
        time.sleep(3600)
    return read(descriptor, buffers, offset)
os.preadv = stalled
def never_for_far_folders(call):
    def ask(path, *arguments, **options):
        if "far folder" in str(path):
            time.sleep(3600)
        return call(path, *arguments, **options)
    return ask
os.stat, os.scandir = never_for_far_folders(os.stat), never_for_far_folders(os.scandir)
from app.cli import main
sys.exit(main())
"""
ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    ("arguments", "first"),
    [(("generate", "-p", "Hi", "-m"), "0"), (("generate", "-p", "Hi", "-m"), "20000"), (("models", "info"), "0")],
)
def test_it_is_said_and_ctrl_c_ends_it(tmp_path: Path, arguments: tuple[str, ...], first: str) -> None:
    path = write_tiny_model(tmp_path / "far away.gguf", format="Q8_0")
    check([first, *arguments, str(path)], "far away.gguf", {})


@pytest.mark.parametrize("arguments", [("generate", "-p", "Hi"), ("models", "list"), ("doctor",)])
def test_a_folder_that_does_not_answer_is_named_too(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    check(["0", *arguments], "far folder", {"TANDEM_MODELS_DIR": str(tmp_path / "far folder")})


def check(words: list[str], place: str, environment: dict[str, str]) -> None:
    """Runs the command; it must say that the place does not answer, and end at Ctrl-C."""
    process = subprocess.Popen(
        [sys.executable, "-c", STALLING, *words], stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True,
        cwd=ROOT, env={**os.environ, "TANDEM_CONFIG": "", **environment},
    )  # fmt: skip
    try:
        assert process.stderr is not None
        lines = []
        for line in process.stderr:
            lines.append(line)
            if "has not answered" in line:
                break
        assert place in lines[-1] and "network share" in lines[-1], lines
        process.send_signal(signal.SIGINT)
        rest = process.communicate(timeout=120)[1]
        assert process.returncode == 130 and "Traceback" not in rest
    finally:
        process.kill()
        process.wait()
