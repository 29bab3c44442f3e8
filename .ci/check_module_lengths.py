"""Holds every source file to 400 lines. Knows line counts only: functions are measured by ruff (PLR0915)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

MOST_LINES = 400
SUFFIXES = frozenset({".py", ".cu", ".cuh", ".h", ".tcss", ".sh"})


def too_long(root: Path) -> list[str]:
    """One sentence for each tracked or new source file under root that has more lines than it may have."""
    command = ["git", "-C", str(root), "ls-files", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    sentences: list[str] = []
    for name in sorted(set(names)):
        path = root / name
        if path.suffix not in SUFFIXES or not path.is_file():
            continue
        num_lines = len(path.read_text(encoding="utf-8").splitlines())
        if num_lines > MOST_LINES:
            sentences.append(f"{name}: {num_lines} lines, at most {MOST_LINES}: move a part to its own module")
    return sentences


def main() -> int:
    sentences = too_long(Path(__file__).resolve().parent.parent)
    print("\n".join(sentences) or f"Every module has at most {MOST_LINES} lines.")
    return 1 if sentences else 0


if __name__ == "__main__":
    sys.exit(main())
