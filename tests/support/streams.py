"""A stream in memory that says it is a terminal.

Owns nothing else.  A program in a real terminal: terminal.py.
"""

from __future__ import annotations

import io


class Terminal(io.StringIO):
    """isatty() is true; what was written is there in getvalue()."""

    def isatty(self) -> bool:
        return True
