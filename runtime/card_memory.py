"""What CUDA keeps on a card for a program beside what it reserves: its context, the loaded kernels, the recorded steps.

Owns the guess for a card that was never used, and the file that keeps what was measured when a model was last given
back.  Does not know models.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

GUESSED_BYTES = 384 * 2**20
"""Of a card that was not used before."""

# Beyond these something else took the memory, or gave it back, while it was measured.
_LEAST_BYTES, _MOST_BYTES = 32 * 2**20, 1024 * 2**20


def own_bytes(folder: Path, card_name: str) -> int:
    """As measured last time, or the guess.  folder: of the card's compiled kernels."""
    try:
        found = json.loads(_path(folder, card_name).read_text("utf-8"))["own_bytes"]
    except (OSError, ValueError, KeyError, TypeError):
        return GUESSED_BYTES
    return found if _is_plausible(found) else GUESSED_BYTES


def keep_own_bytes(folder: Path, card_name: str, measured_bytes: int) -> None:
    """For the next time; what is implausible or can't be written is not kept."""
    if not _is_plausible(measured_bytes):
        return
    path = _path(folder, card_name)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        unfinished = path.with_suffix(".unfinished")
        unfinished.write_text(json.dumps({"card": card_name, "own_bytes": measured_bytes}) + "\n", "utf-8")
        unfinished.replace(path)
    except OSError:
        pass  # a cache: the guess does as well


def _path(folder: Path, card_name: str) -> Path:
    return folder / f"memory-{re.sub('[^A-Za-z0-9]+', '-', card_name)}.json"


def _is_plausible(found: object) -> bool:
    return type(found) is int and _LEAST_BYTES <= found <= _MOST_BYTES
