"""A card that is this processor: kernels_gpu's sources built with g++ and run lane by lane, for tests without a GPU.

Owns building, memory with poison and guards, and the device interface of kernels_gpu.device.  cuda_emulator/ holds the
C++ that makes threads of a block out of fibers.  Needs g++ (on Linux, x86-64 or aarch64).

Memory holds 0xff bytes (NaNs) when it is allocated; what lies beside an allocation is looked at whenever a stream is
waited for.  A pointer that a kernel gets must lie in an allocation.  `order` chooses in which order lanes run:
"ascending", "descending" or "shuffled".
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import re
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import numpy as np

from kernels_gpu.cubin_cache import layout_text
from kernels_gpu.device import Event, GpuLostError, GpuMemoryError, Kernel, MemoryFacts, Region, Shape, Stream

Order = Literal["ascending", "descending", "shuffled"]
ORDERS: tuple[Order, ...] = ("ascending", "descending", "shuffled")

_HERE = Path(__file__).resolve().parent / "cuda_emulator"
_FLAGS = (
    "-std=c++17", "-O1", "-g1", "-fPIC", "-march=native", "-ffp-contract=off", "-fno-strict-aliasing",
    "-Wno-unknown-pragmas",
)  # fmt: skip
_KERNEL = re.compile(r"__global__\s+void\s+(?:__launch_bounds__\s*\([^)]*\)\s*)?(\w+)\s*\(")
_DYNAMIC = re.compile(r"extern\s+__shared__\s+(?:__align__\s*\(\d+\)\s*)?([\w ]+?)\s+(\w+)\s*\[\s*\]\s*;")
_GUARD_BYTES, _GUARD, _POISON = 256, 0xA5, 0xFF


class KernelFault(AssertionError):
    """A kernel did what a card does not forgive."""


def _compile(arguments: Sequence[str], target: Path) -> Path:
    """Runs g++ unless the target is there already."""
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=target.parent, suffix=target.suffix, delete=False) as file:
            made = file.name
        done = subprocess.run(["g++", *_FLAGS, *arguments, "-o", made], capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"g++ refused {target.name}:\n{done.stderr}"
        os.replace(made, target)
    return target


def _digest(*facts: object) -> str:
    return hashlib.sha256(repr(facts).encode()).hexdigest()[:20]


def _exact_memory(size_bytes: int) -> np.ndarray:
    """Poisoned memory of exactly that size, at a multiple of 256; it is never given back."""
    address = ctypes.c_void_p()
    failed = ctypes.CDLL(None).posix_memalign(ctypes.byref(address), ctypes.c_size_t(256), ctypes.c_size_t(size_bytes))
    assert not failed and address.value, "no memory"
    data = np.ctypeslib.as_array((ctypes.c_uint8 * size_bytes).from_address(address.value))
    data.fill(_POISON)
    return data


@lru_cache
def _library(source: Path, defines: tuple[str, ...], extra_flags: tuple[str, ...]) -> ctypes.CDLL:
    """A .cu file as a loaded library."""
    folder = Path(tempfile.gettempdir()) / f"tandem-cuda-emulator-{os.getuid()}"
    include = _HERE / "include"
    runtime_text = [path.read_text("utf-8") for path in (_HERE / "runtime.cpp", *sorted(include.iterdir()))]
    runtime = folder / f"{_digest(runtime_text, _FLAGS)}.o"
    _compile(["-c", "-I", str(include), str(_HERE / "runtime.cpp")], runtime)
    text = _DYNAMIC.sub(r"\1* \2 = reinterpret_cast<\1*>(emulator::self()->block->shared);", source.read_text("utf-8"))
    names = _KERNEL.findall(text)
    enrolled = "".join(f'emulator::add("{name}", &{name}); ' for name in names)
    enrolled = f"namespace {{ struct All {{ All() {{ {enrolled}}} }} all; }}"
    text = f'#include "cuda.h"\n#line 1 "{source.name}"\n{text}\n{enrolled}\n'
    headers = [path.read_text("utf-8") for path in sorted(source.parent.glob("*.cuh"))]
    work = folder / _digest(text, headers, defines, runtime_text, _FLAGS, extra_flags)
    library = work.with_suffix(".so")
    if not library.exists():
        work.mkdir(parents=True, exist_ok=True)
        (work / "layout.h").write_text(layout_text(defines))
        (work / f"{source.stem}.cpp").write_text(text)
        folders = ("-I", str(work), "-I", str(source.parent), "-I", str(include))
        _compile([*extra_flags, *folders, "-shared", str(work / f"{source.stem}.cpp"), str(runtime)], library)
    loaded = ctypes.CDLL(str(library))
    for name in ("name", "error", "kinds"):
        getattr(loaded, f"emulator_{name}").restype = ctypes.c_char_p
    loaded.emulator_sizes.restype = ctypes.POINTER(ctypes.c_int)
    return loaded


@dataclass(frozen=True)
class EmulatedKernel:
    """One function of a library."""

    name: str
    library: ctypes.CDLL
    index: int
    sizes: tuple[int, ...]
    kinds: str


@dataclass
class EmulatedEvent:
    """A point that has always been passed."""

    at_s: float = field(default_factory=time.perf_counter)

    def wait(self) -> None:
        pass

    def elapsed_ms(self, since: Event) -> float:
        assert isinstance(since, EmulatedEvent), "an event of another device"
        return (self.at_s - since.at_s) * 1e3


@dataclass
class EmulatedGraph:
    """Recorded work."""

    actions: list[Callable[[], None]]

    def launch(self, stream: Stream) -> None:
        for action in self.actions:
            _own(stream).do(action)


@dataclass
class EmulatedStream:
    """Does everything at once, or records it."""

    device: EmulatedDevice
    recorded: list[Callable[[], None]] | None = None

    def do(self, action: Callable[[], None]) -> None:
        if self.recorded is None:
            action()
        else:
            self.recorded.append(action)

    def wait(self) -> None:
        assert self.recorded is None, "a stream can't be waited for while it is recorded"
        self.device.check_guards()

    def record(self) -> EmulatedEvent:
        return EmulatedEvent()

    def begin_capture(self) -> None:
        self.recorded = []

    def end_capture(self) -> EmulatedGraph:
        assert self.recorded is not None, "nothing is being recorded"
        actions, self.recorded = self.recorded, None
        return EmulatedGraph(actions)


def _own(stream: Stream) -> EmulatedStream:
    assert isinstance(stream, EmulatedStream), "a stream of another device"
    return stream


@dataclass
class EmulatedDevice:
    """kernels_gpu.device.Device on this processor.

    total_bytes: how large the card is.  fails_at: the number of the allocation that fails, launch_fails_at: that of
    the launch after which the card is lost.  module_bytes: what a file of kernels takes when it is loaded.
    is_sanitized: memory comes from malloc, byte for byte, and kernels are built with AddressSanitizer: the process must
    have been started with it (see sanitized_model.py).
    """

    order: Order = "ascending"
    total_bytes: int = 1 << 32
    fails_at: int | None = None
    launch_fails_at: int | None = None
    extra_flags: tuple[str, ...] = ()
    is_sanitized: bool = False
    module_bytes: int = 0
    name: str = "emulated card"
    architecture: str = "86"
    num_launches: int = 0
    num_allocations: int = 0
    downloaded_bytes: int = 0
    _num_loaded: int = 0
    _blocks: dict[int, tuple[np.ndarray, int]] = field(default_factory=dict)

    def use(self) -> None:
        pass

    def memory(self) -> MemoryFacts:
        used = sum(size for _, size in self._blocks.values()) + self._num_loaded * self.module_bytes
        return MemoryFacts(free_bytes=self.total_bytes - used, total_bytes=self.total_bytes)

    def allocate(self, size_bytes: int, purpose: str) -> Region:
        self.num_allocations += 1
        if self.num_allocations == self.fails_at or size_bytes > self.memory().free_bytes:
            raise GpuMemoryError(f"The card has no room for {purpose} ({size_bytes} bytes).")
        if self.is_sanitized:
            data = _exact_memory(size_bytes)
            self._blocks[data.ctypes.data] = data, size_bytes
            return Region(address=data.ctypes.data, size_bytes=size_bytes)
        data = np.full(size_bytes + 3 * _GUARD_BYTES, _GUARD, np.uint8)
        start = -(-(data.ctypes.data + _GUARD_BYTES) // 256) * 256
        offset = start - data.ctypes.data
        data[offset : offset + size_bytes] = _POISON
        self._blocks[start] = data, size_bytes
        return Region(address=start, size_bytes=size_bytes)

    def free(self, region: Region) -> None:
        self.check_guards()
        del self._blocks[region.address]

    def check_guards(self) -> None:
        """KernelFault where something was written beside an allocation."""
        for start, (data, size) in self._blocks.items():
            offset = start - data.ctypes.data
            if (data[:offset] != _GUARD).any() or (data[offset + size :] != _GUARD).any():
                raise KernelFault(f"something was written beside an allocation of {size} bytes")

    def host_array(self, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
        return np.zeros(shape, dtype)

    def load(self, source: Path, defines: Sequence[str], names: Sequence[str]) -> dict[str, Kernel]:
        self._num_loaded += 1
        sanitizer = ("-fsanitize=address",) if self.is_sanitized else ()
        library = _library(source, tuple(defines), (*self.extra_flags, *sanitizer))
        found: dict[str, Kernel] = {}
        for index in range(library.emulator_count()):
            name = library.emulator_name(index).decode()
            count = library.emulator_num_arguments(index)
            sizes = tuple(library.emulator_sizes(index)[:count])
            kinds = library.emulator_kinds(index).decode()
            found[name] = EmulatedKernel(name, library, index, sizes, kinds)
        return {name: found[name] for name in names}

    def new_stream(self) -> EmulatedStream:
        return EmulatedStream(self)

    def bytes_of(self, region: Region) -> np.ndarray:
        """The memory itself."""
        for start, (data, size) in self._blocks.items():
            if start <= region.address and region.address + region.size_bytes <= start + size:
                offset = region.address - data.ctypes.data
                return data[offset : offset + region.size_bytes]
        raise KernelFault(f"no memory at {region.address:#x}, {region.size_bytes} bytes")

    def clear(self, region: Region, stream: Stream) -> None:
        _own(stream).do(lambda: self.bytes_of(region).fill(0))

    def upload(self, target: Region, source: np.ndarray, stream: Stream) -> None:
        assert source.flags.c_contiguous and source.nbytes <= target.size_bytes, "an array that can't be copied whole"
        part = target.part(0, source.nbytes)
        _own(stream).do(lambda: np.copyto(self.bytes_of(part), source.reshape(-1).view(np.uint8)))

    def download(self, target: np.ndarray, source: Region, stream: Stream) -> None:
        assert target.flags.c_contiguous and target.nbytes <= source.size_bytes, "an array that can't be copied whole"
        part = source.part(0, target.nbytes)
        self.downloaded_bytes += target.nbytes
        _own(stream).do(lambda: np.copyto(target.reshape(-1).view(np.uint8), self.bytes_of(part)))

    def copy(self, target: Region, source: Region, stream: Stream) -> None:
        _own(stream).do(lambda: np.copyto(self.bytes_of(target), self.bytes_of(source)))

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
        assert isinstance(kernel, EmulatedKernel), "a kernel of another device"
        values = self._checked(kernel, arguments)
        _own(stream).do(lambda: self._run(kernel, grid, block, values, shared_bytes))

    def _checked(self, kernel: EmulatedKernel, arguments: Sequence[np.generic]) -> list[np.ndarray]:
        assert len(arguments) == len(kernel.sizes), (
            f"{kernel.name}: {len(arguments)} arguments, not {len(kernel.sizes)}"
        )
        for idx, (value, size, kind) in enumerate(zip(arguments, kernel.sizes, kernel.kinds, strict=True)):
            expected = {"P": "u", "f": "f", "i": "i"}[kind]
            fits = isinstance(value, np.generic) and value.dtype.kind == expected and value.dtype.itemsize == size
            assert fits, f"{kernel.name}: argument {idx} is {value!r}, not {size} bytes of kind {kind}"
            if kind == "P" and int(value):
                self.bytes_of(Region(address=int(value), size_bytes=1))
        return [np.atleast_1d(np.asarray(value)) for value in arguments]

    def _run(
        self, kernel: EmulatedKernel, grid: Shape, block: Shape, values: list[np.ndarray], shared_bytes: int
    ) -> None:
        self.num_launches += 1
        if self.num_launches == self.launch_fails_at:
            raise GpuLostError("The card stopped answering.")
        pointers = (ctypes.c_void_p * max(1, len(values)))(*[value.ctypes.data for value in values])
        grid_words = (ctypes.c_uint * 3)(*(*grid, 1, 1)[:3])
        block_words = (ctypes.c_uint * 3)(*(*block, 1, 1)[:3])
        failed = kernel.library.emulator_launch(
            kernel.index,
            grid_words,
            block_words,
            ctypes.c_size_t(shared_bytes),
            pointers,
            ORDERS.index(self.order),
            ctypes.c_uint(self.num_launches),
        )
        if failed:
            raise KernelFault(f"{kernel.name}: {kernel.library.emulator_error().decode()}")

    def close(self) -> None:
        self.check_guards()
        self._blocks.clear()
