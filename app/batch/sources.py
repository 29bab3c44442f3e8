"""Where rows come from: a file, or stdin.

Owns the reading of lines.  Does not know what stands in them.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from app.errors import AppError, UsageError

STDIN = Path("-")


@dataclass(frozen=True, kw_only=True)
class SourceLine:
    """A line that is not blank.  number: from 1 on."""

    number: int
    text: str


def read_source(path: Path) -> Iterator[SourceLine]:
    """The lines of a file, or of stdin for `-`; bytes that are no UTF-8 are kept as lone surrogates."""
    content = _content(path).decode("utf-8", "surrogateescape")
    for number, text in enumerate(content.split("\n"), 1):
        text = text.removesuffix("\r")
        if text.strip() or path.suffix.lower() == ".csv":
            yield SourceLine(number=number, text=text)


def _content(path: Path) -> bytes:
    if path == STDIN:
        if sys.stdin is None:
            raise UsageError("`-` reads the rows from standard input, which is closed.")
        return sys.stdin.buffer.read()
    try:
        return path.expanduser().read_bytes()
    except OSError as error:
        raise AppError(f"The file {path} can't be read: {error.strerror}.") from error
