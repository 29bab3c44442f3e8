"""Damaged models through header, tensors, vocabulary and template: read or refused in bounds, and nothing touched.

tests/support/fuzzing.py makes them, each from a number; it also looks for new faults when it is run by hand.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import fuzzing
import pytest
from words import child

KEPT = (256, 500, 1432)
"""Seeds that once found a fault: a NUL in a piece, tokens that are not UTF-8, a piece for a byte that names none."""
NUM_SEEDS = 1500
SECONDS = 12
MAX_GROWTH_BYTES = 50 << 20


def explored(folder: Path, first: int, count: int) -> dict[str, Any]:
    command = [sys.executable, fuzzing.__file__, str(folder), str(first), str(count), str(SECONDS)]
    run = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert run.returncode == 0, run.stderr[-2000:]
    return json.loads(run.stdout)


def test_damaged_models_are_read_or_refused_within_bounds(tmp_path: Path) -> None:
    report = explored(tmp_path, 0, NUM_SEEDS)
    assert report["failures"] == []
    assert report["reached"] == []
    assert report["growth_bytes"] < MAX_GROWTH_BYTES
    assert report["read"] > 10 and report["refused"] > 10


@pytest.mark.parametrize("seed", KEPT)
def test_what_was_found_once_stays_mended(seed: int, tmp_path: Path) -> None:
    assert fuzzing.Case(tmp_path, child()).run(seed) in ("read", "refused")
