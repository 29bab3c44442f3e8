"""The memory bill: what a model reserves on each device, against what is free there.

Owns the sums and their wording.  Does not know how a device lays things out, nor what is chosen (planner.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from models.transfers import size_text
from runtime.devices.binding import DeviceMemory

DeviceKind = Literal["cpu", "gpu"]

NOTHING = DeviceMemory(weights_bytes=0, kv_bytes=0, workspace_bytes=0)

# What stays free for everything else: a tenth, but no more than this.
_MARGIN_BYTES = 512 * 2**20
_MARGIN_SHARE = 10


def machine_margin_bytes(available_bytes: int) -> int:
    """Of the machine's memory, what is left to other programs."""
    return min(_MARGIN_BYTES, available_bytes // _MARGIN_SHARE)


@dataclass(frozen=True, kw_only=True)
class DeviceBill:
    """What one device will hold.  name: for people.

    memory: of the model's part there, to the byte.  draft: of the draft model, if it lies there.  graph_bytes: what a
    card's driver, kernels and recorded steps take beside, an estimate; 0 on the CPU.  free_bytes: before loading, None
    where it is not known.  margin_bytes: of that stays free.
    """

    kind: DeviceKind
    name: str
    memory: DeviceMemory
    draft: DeviceMemory | None = None
    graph_bytes: int = 0
    free_bytes: int | None = None
    margin_bytes: int = 0

    @property
    def total_bytes(self) -> int:
        """All that the device will hold."""
        return self.memory.total_bytes + (self.draft.total_bytes if self.draft else 0) + self.graph_bytes

    @property
    def budget_bytes(self) -> int | None:
        """What it can spare."""
        return None if self.free_bytes is None else max(0, self.free_bytes - self.margin_bytes)

    @property
    def fits(self) -> bool:
        """Whether it can spare that much."""
        return self.budget_bytes is None or self.total_bytes <= self.budget_bytes

    def __str__(self) -> str:
        draft = f"; its draft model {self.draft}" if self.draft else ""
        graph = f", driver and recorded steps about {size_text(self.graph_bytes)}" if self.graph_bytes else ""
        return f"{self.memory}{graph}{draft}"


@dataclass(frozen=True, kw_only=True)
class MemoryBill:
    """What a model will reserve with that context size and so many of its last layers, and the head, on a GPU.

    devices: the CPU, and the GPU if it has a part.  cpu_experts: of so many of the first layers the experts are on the
    CPU, also where the rest of the layer is on the GPU.
    """

    context_size: int
    gpu_layers: int
    devices: tuple[DeviceBill, ...]
    cpu_experts: int = 0

    @property
    def memory(self) -> DeviceMemory:
        """The model on all devices together."""
        parts = [device.memory for device in self.devices]
        return DeviceMemory(
            weights_bytes=sum(part.weights_bytes for part in parts),
            kv_bytes=sum(part.kv_bytes for part in parts),
            workspace_bytes=sum(part.workspace_bytes for part in parts),
        )

    @property
    def draft(self) -> DeviceMemory | None:
        """The draft model's, if there is one."""
        return next((device.draft for device in self.devices if device.draft), None)

    @property
    def total_bytes(self) -> int:
        """Everything together."""
        return sum(device.total_bytes for device in self.devices)

    @property
    def fits(self) -> bool:
        """Whether every device can spare its part."""
        return all(device.fits for device in self.devices)

    def on(self, kind: DeviceKind) -> DeviceBill | None:
        """One device's part."""
        return next((device for device in self.devices if device.kind == kind), None)
