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
    process = subprocess.Popen(
        [sys.executable, "-c", STALLING, first, *arguments, str(path)],
        stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True, cwd=ROOT,
        env={**os.environ, "TANDEM_CONFIG": ""},
    )  # fmt: skip
    try:
        assert process.stderr is not None
        lines = []
        for line in process.stderr:
            lines.append(line)
            if "has not answered" in line:
                break
        assert "far away.gguf" in lines[-1] and "network share" in lines[-1], lines
        process.send_signal(signal.SIGINT)
        rest = process.communicate(timeout=120)[1]
        assert process.returncode == 130 and "Traceback" not in rest
    finally:
        process.kill()
        process.wait()
