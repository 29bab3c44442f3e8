"""The named buffers that a step program's operations read and write.

Owns their shape.  Every buffer holds one float32 row a token.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Buffer:
    """A named float32 buffer [T, width]."""

    name: str
    width: int
