"""The seam between this room and what runs its kernels: a card through CuPy, or an emulator in tests.

Owns the shape of that exchange: memory, copies, launches, streams, events, graphs.  Does not know kernels or models.

A kernel's arguments are NumPy scalars: uint64 for a pointer, int32 and float32 for numbers.  All copies and launches
of a stream happen in order; what a copy reads or writes on the host must live until the stream was waited for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

Shape = tuple[int, ...]
"""Of a grid or a block: one to three numbers."""


class GpuError(RuntimeError):
    """Something about the card, its driver or its compiler; the message is a sentence for the user."""


class GpuMissingError(GpuError):
    """No card, no driver, or a package that is needed to talk to it is not installed."""


class GpuMemoryError(GpuError):
    """The card's memory is too small for what was asked."""


class GpuLostError(GpuError):
    """The card stopped answering; what was on it is gone."""


@dataclass(frozen=True, kw_only=True)
class Region:
    """A part of the card's memory."""

    address: int
    size_bytes: int

    def part(self, offset_bytes: int, size_bytes: int) -> Region:
        """A smaller part; it must lie within."""
        assert offset_bytes >= 0 and offset_bytes + size_bytes <= self.size_bytes, "a part outside its region"
        return Region(address=self.address + offset_bytes, size_bytes=size_bytes)

    @property
    def pointer(self) -> np.uint64:
        """As a kernel takes it."""
        return np.uint64(self.address)


@dataclass(frozen=True, kw_only=True)
class MemoryFacts:
    """Bytes of a card."""

    free_bytes: int
    total_bytes: int


class Kernel(Protocol):
    """A compiled function, ready to launch."""

    @property
    def name(self) -> str: ...


class Event(Protocol):
    """A point in a stream."""

    def wait(self) -> None:
        """Blocks until the stream came by."""
        ...

    def elapsed_ms(self, since: Event) -> float:
        """Milliseconds between two events that both happened."""
        ...


class Graph(Protocol):
    """Launches and copies that were recorded, to be repeated as one."""

    def launch(self, stream: Stream) -> None: ...


class Stream(Protocol):
    """A queue of work."""

    def wait(self) -> None:
        """Blocks until everything in it is done.  Raises GpuLostError when the card failed meanwhile."""
        ...

    def record(self) -> Event: ...

    def begin_capture(self) -> None:
        """From here on work is recorded, not done."""
        ...

    def end_capture(self) -> Graph: ...


class Device(Protocol):
    """One card.  architecture: as the compiler calls it, "86" for sm_86."""

    @property
    def name(self) -> str: ...

    @property
    def architecture(self) -> str: ...

    def use(self) -> None:
        """Makes it the calling thread's card; everything else may then be called from that thread."""
        ...

    def memory(self) -> MemoryFacts:
        """What is free now."""
        ...

    def allocate(self, size_bytes: int, purpose: str) -> Region:
        """Memory that holds anything, at a multiple of 256.  Raises GpuMemoryError naming the purpose."""
        ...

    def free(self, region: Region) -> None:
        """Gives a whole allocation back."""
        ...

    def host_array(self, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
        """An array of zeros in memory that the card copies from and to without a detour (pinned)."""
        ...

    def load(self, source: Path, defines: Sequence[str], names: Sequence[str]) -> dict[str, Kernel]:
        """Compiles a .cu file, or finds it compiled, and loads the kernels of those names.

        defines: lines of the generated layout.h.  Raises GpuError.
        """
        ...

    def new_stream(self) -> Stream: ...

    def clear(self, region: Region, stream: Stream) -> None:
        """Sets all bytes to zero."""
        ...

    def upload(self, target: Region, source: np.ndarray, stream: Stream) -> None:
        """Copies a contiguous array to the card."""
        ...

    def download(self, target: np.ndarray, source: Region, stream: Stream) -> None:
        """Copies into a contiguous array; it holds the values once the stream was waited for."""
        ...

    def copy(self, target: Region, source: Region, stream: Stream) -> None:
        """Copies between two parts of the card's memory that do not overlap."""
        ...

    def launch(
        self,
        kernel: Kernel,
        *,
        grid: Shape,
        block: Shape,
        arguments: Sequence[np.generic],
        stream: Stream,
        shared_bytes: int = 0,
    ) -> None:
        """Queues a kernel."""
        ...

    def close(self) -> None:
        """Gives all memory back.  May be called twice."""
        ...
