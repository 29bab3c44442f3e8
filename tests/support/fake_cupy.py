"""A stand-in for CuPy: host memory as the card's, and faults on demand.

Owns only what kernels_gpu.cupy_device calls.  Kernels are not run, their launches are kept.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass, field
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np


class FakeRuntimeError(RuntimeError):
    """CUDARuntimeError."""

    def __init__(self, status: int) -> None:
        super().__init__(f"cudaError {status}")
        self.status = status


class FakeDriverError(RuntimeError):
    """CUDADriverError."""

    def __init__(self, status: int) -> None:
        super().__init__(f"cudaError {status}")
        self.status = status


@dataclass
class FakeCard:
    """What the fake knows.  *_fails: the status of asking for cards, waiting, launching."""

    count: int = 1
    capability: str = "86"
    total_bytes: int = 1 << 20
    count_fails: int | None = None
    sync_fails: int | None = None
    launch_fails: int | None = None
    load_fails: int | None = None
    blocks: dict[int, np.ndarray] = field(default_factory=dict)
    launches: list[tuple[Any, ...]] = field(default_factory=list)
    loaded: list[str] = field(default_factory=list)
    is_capturing: bool = False
    bus_ids: tuple[str, ...] = ()

    def free_bytes(self) -> int:
        return self.total_bytes - sum(block.nbytes for block in self.blocks.values())

    def get_device_count(self) -> int:
        if self.count_fails is not None:
            raise FakeRuntimeError(self.count_fails)
        return self.count

    def index_of(self, bus_id: str) -> int:
        if bus_id not in self.bus_ids:
            raise FakeRuntimeError(101)
        return self.bus_ids.index(bus_id)

    def malloc(self, size: int) -> int:
        if size > self.free_bytes():
            raise FakeRuntimeError(2)
        block = np.zeros(size, np.uint8)
        self.blocks[block.ctypes.data] = block
        return block.ctypes.data

    def free(self, address: int) -> None:
        del self.blocks[address]

    def launch(self, name: str, *arguments: Any) -> None:
        if self.launch_fails is not None:
            raise FakeDriverError(self.launch_fails)
        self.launches.append((name, *arguments))

    def synchronize(self) -> None:
        if self.sync_fails is not None:
            raise FakeRuntimeError(self.sync_fails)

    def modules(self) -> dict[str, ModuleType]:
        """What to put into sys.modules."""
        card = self

        class Module:
            def load_file(self, path: str) -> None:
                if card.load_fails is not None:
                    raise FakeDriverError(card.load_fails)
                card.loaded.append(path)

            def get_function(self, name: str) -> Any:
                return lambda *arguments: card.launch(name, *arguments)

        def stream(non_blocking: bool) -> SimpleNamespace:
            assert non_blocking, "such a stream can't be captured"
            graph = SimpleNamespace(launch=lambda stream: card.launches.append(("graph", stream)))
            return SimpleNamespace(
                ptr=7, synchronize=card.synchronize, begin_capture=lambda: None, end_capture=lambda: graph
            )

        runtime = SimpleNamespace(
            CUDARuntimeError=FakeRuntimeError,
            getDeviceCount=self.get_device_count,
            deviceGetByPCIBusId=self.index_of,
            getDeviceProperties=lambda index: {"name": b"Fake RTX"},
            memGetInfo=lambda: (self.free_bytes(), self.total_bytes),
            malloc=self.malloc,
            free=self.free,
            memsetAsync=lambda address, value, size, stream: ctypes.memset(address, value, size),
            memcpyAsync=lambda target, source, size, kind, stream: ctypes.memmove(target, source, size),
        )
        device = SimpleNamespace(use=lambda: None, compute_capability=self.capability)
        cupy, cupyx = ModuleType("cupy"), ModuleType("cupyx")
        vars(cupy)["cuda"] = SimpleNamespace(
            runtime=runtime,
            driver=SimpleNamespace(CUDADriverError=FakeDriverError),
            Device=lambda index: device,
            Stream=stream,
            Event=lambda: SimpleNamespace(record=lambda stream: None, synchronize=self.synchronize),
            get_elapsed_time=lambda first, last: 1.5,
            function=SimpleNamespace(Module=Module),
        )
        vars(cupyx)["zeros_pinned"] = np.zeros
        return {"cupy": cupy, "cupyx": cupyx}
