"""What a file of plain text says nothing about: which row each of its lines answers.

Owns the small file beside such results, a key a line, each written before its record.  Does not know what a key means.
"""

from __future__ import annotations

import os
from pathlib import Path

SUFFIX = ".rows"
# Of a row without an answer.
GAP = "-"


class Journal:
    """Open for appending.  keys: those that are there; the caller says how many of them hold."""

    def __init__(self, results: Path) -> None:
        """results: the file that it stands beside.  Raises OSError."""
        self._path = results.with_name(results.name + SUFFIX)
        text = self._path.read_text("ascii", "replace") if self._path.exists() else ""
        self.keys = text[: text.rfind("\n") + 1].split()

    def keep(self, num_keys: int) -> None:
        """Forgets all but the first keys."""
        self.keys = self.keys[:num_keys]
        self._path.write_text("".join(f"{key}\n" for key in self.keys), "ascii")

    def append(self, key: str) -> None:
        """Writes a key and waits until it is on the disk."""
        with self._path.open("a", encoding="ascii") as file:
            file.write(f"{key}\n")
            file.flush()
            os.fsync(file.fileno())
