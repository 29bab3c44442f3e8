"""An NVIDIA card through CuPy, as kernels_gpu.device wants it.

Owns the calls of CuPy and the sentences for what can be missing.  CuPy is imported when a card is asked for; without a
driver everything here can be imported.  Memory comes straight from the driver, not from CuPy's pool: what is freed is
free, and the memory bill can be compared with the card's own numbers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from kernels_gpu.cubin_cache import Unit, cubin_path
from kernels_gpu.device import (
    Event,
    GpuError,
    GpuLostError,
    GpuMemoryError,
    GpuMissingError,
    Graph,
    Kernel,
    MemoryFacts,
    Region,
    Shape,
    Stream,
)

# CUDA's numbers.
_OUT_OF_MEMORY, _DRIVER_TOO_OLD = 2, 35
# The driver's refusals of a kernel's file: wrong image, none for this card, no compiler, a version it does not know.
_LOADING = frozenset({200, 209, 218, 221, 222, 223, 500})
_TO_CARD, _FROM_CARD, _ON_CARD = 1, 2, 3
_OLDEST = 75  # compute capability: dp4a is older, but the compiler of CUDA 13 begins here


def open_card(kernel_folder: Path, index: int = 0, *, bus_id: str | None = None) -> CupyDevice:
    """The card of that number, or on that place of the bus, which NVML names too: CUDA may count in another order.

    kernel_folder: where compiled kernels are kept.  Raises GpuMissingError.
    """
    cupy = _import_cupy()
    try:
        count = cupy.cuda.runtime.getDeviceCount()
    except cupy.cuda.runtime.CUDARuntimeError as error:
        if error.status == _DRIVER_TOO_OLD:
            raise GpuMissingError(
                "NVIDIA's driver is missing, or too old for the CUDA that is installed: update the driver, or install "
                "the extra gpu-cu12 instead of gpu."
            ) from error
        raise GpuMissingError(f"No NVIDIA GPU was found ({error}).") from error
    if index >= count:
        raise GpuMissingError(f"There is no GPU number {index}: this machine has {count}.")
    if bus_id is not None:
        index = _index_of(cupy, bus_id)
    device = CupyDevice(cupy, index, kernel_folder)
    if int(device.architecture) < _OLDEST:
        raise GpuMissingError(
            f"The {device.name} (compute capability {int(device.architecture) / 10:.1f}) is older than what the GPU "
            f"kernels are made for ({_OLDEST / 10:.1f}, RTX 20 and later)."
        )
    return device


def _index_of(cupy: Any, bus_id: str) -> int:
    try:
        return int(cupy.cuda.runtime.deviceGetByPCIBusId(bus_id))
    except cupy.cuda.runtime.CUDARuntimeError as error:
        raise GpuMissingError(
            f"The GPU at {bus_id} is hidden from CUDA ({error}): CUDA_VISIBLE_DEVICES says which ones are not."
        ) from error


def _import_cupy() -> Any:
    try:
        return import_module("cupy")
    except ImportError as error:
        raise GpuMissingError(
            "CuPy, which talks to NVIDIA GPUs, is not installed: install tandem-llm with the extra gpu."
        ) from error


@dataclass(frozen=True)
class CupyKernel:
    """A loaded function."""

    name: str
    function: Any


@dataclass(frozen=True)
class CupyEvent:
    """A recorded event."""

    cupy: Any
    event: Any

    def wait(self) -> None:
        with _translated(self.cupy, "waiting for the GPU"):
            self.event.synchronize()

    def elapsed_ms(self, since: Event) -> float:
        assert isinstance(since, CupyEvent), "an event of another device"
        with _translated(self.cupy, "measuring"):
            return float(self.cupy.cuda.get_elapsed_time(since.event, self.event))


@dataclass(frozen=True)
class CupyGraph:
    """A captured graph."""

    cupy: Any
    graph: Any

    def launch(self, stream: Stream) -> None:
        with _translated(self.cupy, "starting a step"):
            self.graph.launch(_own(stream).stream)


@dataclass(frozen=True)
class CupyStream:
    """A non-blocking stream: only such a one can be captured."""

    cupy: Any
    stream: Any

    def wait(self) -> None:
        with _translated(self.cupy, "computing"):
            self.stream.synchronize()

    def record(self) -> CupyEvent:
        with _translated(self.cupy, "computing"):
            event = self.cupy.cuda.Event()
            event.record(self.stream)
            return CupyEvent(self.cupy, event)

    def begin_capture(self) -> None:
        with _translated(self.cupy, "recording a step"):
            self.stream.begin_capture()

    def end_capture(self) -> Graph:
        with _translated(self.cupy, "recording a step"):
            return CupyGraph(self.cupy, self.stream.end_capture())


def _own(stream: Stream) -> CupyStream:
    assert isinstance(stream, CupyStream), "a stream of another device"
    return stream


class CupyDevice:
    """kernels_gpu.device.Device on a card.  One thread at a time uses it."""

    def __init__(self, cupy: Any, index: int, kernel_folder: Path) -> None:
        self._cupy, self._runtime, self._folder = cupy, cupy.cuda.runtime, kernel_folder
        self._device = cupy.cuda.Device(index)
        self.use()
        self.name: str = self._runtime.getDeviceProperties(index)["name"].decode()
        self.architecture: str = str(self._device.compute_capability)
        self._allocated: dict[int, int] = {}

    def use(self) -> None:
        self._device.use()

    def memory(self) -> MemoryFacts:
        with _translated(self._cupy, "asking for its memory"):
            free, total = self._runtime.memGetInfo()
        return MemoryFacts(free_bytes=free, total_bytes=total)

    def allocate(self, size_bytes: int, purpose: str) -> Region:
        try:
            address = self._runtime.malloc(size_bytes)
        except self._runtime.CUDARuntimeError as error:
            if error.status != _OUT_OF_MEMORY:
                raise GpuLostError(
                    f"The GPU stopped answering while reserving memory for {purpose}: {error}."
                ) from error
            free = self.memory().free_bytes
            raise GpuMemoryError(
                f"The GPU has no room for {purpose}: {size_bytes / 2**20:.0f} MiB were asked for, "
                f"{free / 2**20:.0f} MiB are free."
            ) from error
        self._allocated[address] = size_bytes
        return Region(address=address, size_bytes=size_bytes)

    def free(self, region: Region) -> None:
        if self._allocated.pop(region.address, None) is not None:
            self._give_back(region.address)

    def _give_back(self, address: int) -> None:
        try:
            self._runtime.free(address)
        except self._runtime.CUDARuntimeError:
            pass  # a lost card has taken its memory along

    def host_array(self, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
        with _translated(self._cupy, "reserving memory that it can copy from"):
            return import_module("cupyx").zeros_pinned(shape, dtype)

    def load(self, source: Path, defines: Sequence[str], names: Sequence[str]) -> dict[str, Kernel]:
        unit = Unit(source=source, defines=tuple(defines), architecture=self.architecture)
        path = cubin_path(unit, self._folder)
        with _translated(self._cupy, f"loading the kernels of {source.name}"):
            module = self._cupy.cuda.function.Module()
            module.load_file(str(path))
            return {name: CupyKernel(name, module.get_function(name)) for name in names}

    def new_stream(self) -> Stream:
        return CupyStream(self._cupy, self._cupy.cuda.Stream(non_blocking=True))

    def clear(self, region: Region, stream: Stream) -> None:
        with _translated(self._cupy, "clearing memory"):
            self._runtime.memsetAsync(region.address, 0, region.size_bytes, _own(stream).stream.ptr)

    def upload(self, target: Region, source: np.ndarray, stream: Stream) -> None:
        assert source.flags.c_contiguous and source.nbytes <= target.size_bytes, "an array that can't be copied whole"
        self._copy(target.address, source.ctypes.data, source.nbytes, _TO_CARD, stream)

    def download(self, target: np.ndarray, source: Region, stream: Stream) -> None:
        assert target.flags.c_contiguous and target.nbytes <= source.size_bytes, "an array that can't be copied whole"
        self._copy(target.ctypes.data, source.address, target.nbytes, _FROM_CARD, stream)

    def copy(self, target: Region, source: Region, stream: Stream) -> None:
        assert target.size_bytes == source.size_bytes, "parts of different sizes"
        self._copy(target.address, source.address, source.size_bytes, _ON_CARD, stream)

    def _copy(self, target: int, source: int, size_bytes: int, kind: int, stream: Stream) -> None:
        with _translated(self._cupy, "copying"):
            self._runtime.memcpyAsync(target, source, size_bytes, kind, _own(stream).stream.ptr)

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
        assert isinstance(kernel, CupyKernel), "a kernel of another device"
        with _translated(self._cupy, f"starting {kernel.name}"):
            kernel.function(grid, block, tuple(arguments), shared_bytes, _own(stream).stream)

    def close(self) -> None:
        for address in self._allocated:
            self._give_back(address)
        self._allocated.clear()


@contextmanager
def _translated(cupy: Any, action: str) -> Iterator[None]:
    """Turns what CuPy raises into this room's errors."""
    try:
        yield
    except cupy.cuda.runtime.CUDARuntimeError as error:
        if error.status == _OUT_OF_MEMORY:
            raise GpuMemoryError(f"The GPU ran out of memory {action}.") from error
        raise GpuLostError(f"The GPU stopped answering while {action}: {error}.") from error
    except cupy.cuda.driver.CUDADriverError as error:
        if error.status in _LOADING:
            raise GpuError(f"NVIDIA's driver failed while {action}: {error}.") from error
        raise GpuLostError(f"The GPU stopped answering while {action}: {error}.") from error
