"""GPU kernels under AddressSanitizer: no load or store outside what was allocated."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from references import path_of
from tiny_models import write_tiny_model

ROOT = Path(__file__).resolve().parents[2]
SUPPORT = ROOT / "tests" / "support"


def run(argument: str) -> subprocess.CompletedProcess[str]:
    """The program of its own, started with the sanitizer."""
    asked = subprocess.run(["g++", "-print-file-name=libasan.so"], capture_output=True, text=True, check=True)
    environment = {
        **os.environ,
        "LD_PRELOAD": asked.stdout.strip(),
        "ASAN_OPTIONS": "detect_leaks=0:detect_stack_use_after_return=0",
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(SUPPORT)]),
    }
    command = [sys.executable, str(SUPPORT / "sanitized_model.py"), argument]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def test_a_model_stays_within_its_memory(tmp_path: Path) -> None:
    path = write_tiny_model(tmp_path / "tiny.gguf", architecture="gemma3", format="Q5_1")
    done = run(str(path))
    assert done.stdout == "finished\n", done.stderr


@pytest.mark.parametrize("name", ["gpt-oss", "qwen3moe"])
def test_experts_stay_within_their_memory(name: str) -> None:
    done = run(str(path_of(name)))
    assert done.stdout == "finished\n", done.stderr


def test_a_store_too_far_is_found_with_its_line() -> None:
    done = run("overrun")
    assert "finished" not in done.stdout
    assert "heap-buffer-overflow" in done.stderr
    assert "rows.cu:" in done.stderr
