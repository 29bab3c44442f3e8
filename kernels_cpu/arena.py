"""Memory for weights, caches and workspaces: one mapping a purpose, huge pages where the system has them.

Owns the mapping and hands out aligned pieces of it.  Does not know what lies in a piece.
"""

from __future__ import annotations

import ctypes
import mmap
from pathlib import Path

import numpy as np

HUGE_PAGE = 2 << 20
ALIGNMENT = 64


class OutOfMemoryError(MemoryError):
    """The system would not give as much memory as a model needs."""


class Arena:
    """`size_bytes` of zeros; `take` hands out pieces of it, `close` gives it back."""

    def __init__(self, size_bytes: int, purpose: str) -> None:
        self.size_bytes = size_bytes
        self.used_bytes = 0
        mapped = max(size_bytes, 1) + HUGE_PAGE
        try:
            self._map = mmap.mmap(-1, mapped, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        except OSError as error:
            raise OutOfMemoryError(
                f"{purpose} need {size_bytes / 1e6:,.0f} MB, which the system does not give ({error.strerror}): "
                "close other programs, or choose a smaller context (-c) or model"
            ) from None
        if hasattr(mmap, "MADV_HUGEPAGE") and size_bytes >= HUGE_PAGE:
            self._map.madvise(mmap.MADV_HUGEPAGE)
        self._bytes = np.frombuffer(self._map, np.uint8)
        start = self._bytes.ctypes.data
        self._start = -(-start // HUGE_PAGE) * HUGE_PAGE

    def take(self, size_bytes: int) -> int:
        """The address of the next `size_bytes`, aligned to a cache line."""
        address = self._start + self.used_bytes
        if self.used_bytes + size_bytes > self.size_bytes:
            raise AssertionError(
                f"arena of {self.size_bytes} bytes is full: {self.used_bytes} used, {size_bytes} wanted"
            )
        self.used_bytes += aligned(size_bytes)
        return address

    def close(self) -> None:
        """Gives the memory back; nothing may use its addresses any more."""
        del self._bytes
        self._map.close()


def aligned(size_bytes: int) -> int:
    """Rounded up to whole cache lines, as Arena.take counts."""
    return -(-size_bytes // ALIGNMENT) * ALIGNMENT


def view(address: int, shape: tuple[int, ...], dtype: type) -> np.ndarray:
    """An array over memory of an arena."""
    count = int(np.prod(shape)) * np.dtype(dtype).itemsize
    buffer = (ctypes.c_uint8 * count).from_address(address)
    return np.frombuffer(memoryview(buffer), dtype).reshape(shape)


def huge_pages_bytes() -> int | None:
    """Bytes of this process that lie in huge pages (Linux), None where the system does not tell."""
    try:
        lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    except OSError:
        return None
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("AnonHugePages"))
