"""One allocation on the card, handed out piece by piece.

Owns the cutting; every piece begins at a multiple of 256 bytes.
"""

from __future__ import annotations

from kernels_gpu.device import Device, Region
from kernels_gpu.layout import aligned


class Arena:
    """Memory of one purpose ("the weights")."""

    def __init__(self, device: Device, size_bytes: int, purpose: str) -> None:
        self.region = device.allocate(size_bytes, purpose) if size_bytes else Region(address=0, size_bytes=0)
        self._device = device
        self._taken = 0

    def take(self, size_bytes: int) -> Region:
        """The next piece."""
        piece = self.region.part(self._taken, size_bytes)
        self._taken += aligned(size_bytes)
        return piece

    def close(self) -> None:
        """Gives everything back.  May be called twice."""
        if self.region.size_bytes:
            self._device.free(self.region)
        self.region = Region(address=0, size_bytes=0)
