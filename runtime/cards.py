"""NVIDIA cards as the driver's management library (NVML) sees them, before anything imports CuPy.

Owns the calls of that library and the sentence for why there is no card.  Does not know models or what a card is used
for.  The library is opened by its name through ctypes, so no package is needed; tests hand over a faked one.

Signatures and structures: NVIDIA's NVML API reference.
"""

from __future__ import annotations

import ctypes
import platform
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

_LIBRARIES = {"Windows": "nvml.dll"}
_LIBRARY = "libnvidia-ml.so.1"
_TEXT_BYTES = 96
_DRIVER_NOT_LOADED, _VERSION_MISMATCH = 9, 18
_MEMORY_CLOCK = 2
_TRANSFERS_A_CLOCK = 2  # memory that is called by its double data rate

LEAST_CAPABILITY = (7, 5)
"""The oldest compute capability that the GPU kernels are made for: RTX 20 and later."""


@dataclass(frozen=True, kw_only=True)
class Card:
    """One card.  index: as the management library counts; bus_id names it for CUDA, which may count otherwise.

    compute_capability: (8, 6) is sm_86.  free_bytes: now.  bandwidth_bytes_per_s: of its memory by clock and width, if
    the driver tells.
    """

    index: int
    name: str
    bus_id: str
    compute_capability: tuple[int, int]
    total_bytes: int
    free_bytes: int
    bandwidth_bytes_per_s: float | None = None

    @property
    def is_usable(self) -> bool:
        """Whether there are kernels for it."""
        return self.compute_capability >= LEAST_CAPABILITY

    @property
    def capability_text(self) -> str:
        """8.6."""
        return ".".join(map(str, self.compute_capability))


@dataclass(frozen=True, kw_only=True)
class Cards:
    """What was found.  fault: one sentence on why no card can be used, None where one can."""

    cards: tuple[Card, ...] = ()
    driver_version: str | None = None
    fault: str | None = None

    @property
    def best(self) -> Card | None:
        """The usable card with the most free memory; of equal ones the first."""
        usable = [card for card in self.cards if card.is_usable]
        return max(usable, key=lambda card: card.free_bytes, default=None)


class _Memory(ctypes.Structure):
    _fields_ = [(name, ctypes.c_ulonglong) for name in ("total", "free", "used")]


class _Pci(ctypes.Structure):
    _fields_ = [
        ("legacy_bus_id", ctypes.c_char * 16),
        *((name, ctypes.c_uint) for name in ("domain", "bus", "device", "device_id", "subsystem_id")),
        ("bus_id", ctypes.c_char * 32),
    ]


class _NvmlError(Exception):
    """A call failed.  code: the library's."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


OpenLibrary = Callable[[], Any]


def open_nvml() -> Any:
    """The driver's library.  Raises OSError where there is none."""
    return ctypes.CDLL(_LIBRARIES.get(platform.system(), _LIBRARY))


def read_cards(open_library: OpenLibrary = open_nvml) -> Cards:
    """The cards as they are now; takes some milliseconds, and raises nothing."""
    try:
        library = open_library()
    except OSError:
        return Cards(fault="No NVIDIA driver was found on this machine.")
    try:
        with _session(library):
            return _read(library)
    except _NvmlError as error:
        return Cards(fault=_fault(error))
    except AttributeError as error:  # a driver older than the calls used here
        return Cards(fault=f"NVIDIA's driver is too old: its management library lacks {error}. Update the driver.")


@contextmanager
def _session(library: Any) -> Iterator[None]:
    _call(library, "nvmlInit_v2")
    try:
        yield
    finally:
        library.nvmlShutdown()


def _read(library: Any) -> Cards:
    version = ctypes.create_string_buffer(_TEXT_BYTES)
    _call(library, "nvmlSystemGetDriverVersion", version, ctypes.c_uint(_TEXT_BYTES))
    count = ctypes.c_uint()
    _call(library, "nvmlDeviceGetCount_v2", ctypes.byref(count))
    cards, lost = [], []
    for index in range(count.value):
        try:
            cards.append(_read_card(library, index))
        except _NvmlError as error:  # a card that fell off the bus does not hide the others
            lost.append(f"GPU {index} does not answer ({error}).")
    return Cards(cards=tuple(cards), driver_version=_text(version), fault=_no_usable(cards, lost))


def _no_usable(cards: list[Card], lost: list[str]) -> str | None:
    if any(card.is_usable for card in cards):
        return None
    if cards:
        card = cards[0]
        least = ".".join(map(str, LEAST_CAPABILITY))
        return (
            f"The {card.name} (compute capability {card.capability_text}) is older than what the GPU kernels are made "
            f"for ({least}, RTX 20 and later)."
        )
    return " ".join(lost) or "NVIDIA's driver is installed and finds no GPU."


def _read_card(library: Any, index: int) -> Card:
    handle = ctypes.c_void_p()
    _call(library, "nvmlDeviceGetHandleByIndex_v2", ctypes.c_uint(index), ctypes.byref(handle))
    name = ctypes.create_string_buffer(_TEXT_BYTES)
    _call(library, "nvmlDeviceGetName", handle, name, ctypes.c_uint(_TEXT_BYTES))
    memory, pci = _Memory(), _Pci()
    _call(library, "nvmlDeviceGetMemoryInfo", handle, ctypes.byref(memory))
    _call(library, "nvmlDeviceGetPciInfo_v3", handle, ctypes.byref(pci))
    major, minor = ctypes.c_int(), ctypes.c_int()
    _call(library, "nvmlDeviceGetCudaComputeCapability", handle, ctypes.byref(major), ctypes.byref(minor))
    return Card(
        index=index,
        name=_text(name),
        bus_id=pci.bus_id.decode("ascii", "replace"),
        compute_capability=(major.value, minor.value),
        total_bytes=memory.total,
        free_bytes=memory.free,
        bandwidth_bytes_per_s=_bandwidth(library, handle),
    )


def _bandwidth(library: Any, handle: ctypes.c_void_p) -> float | None:
    """Bytes a second: the memory's clock in MHz, twice, times its width in bits."""
    clock, width = ctypes.c_uint(), ctypes.c_uint()
    try:
        _call(library, "nvmlDeviceGetMaxClockInfo", handle, ctypes.c_uint(_MEMORY_CLOCK), ctypes.byref(clock))
        _call(library, "nvmlDeviceGetMemoryBusWidth", handle, ctypes.byref(width))
    except (_NvmlError, AttributeError):
        return None
    return clock.value * 1e6 * _TRANSFERS_A_CLOCK * width.value / 8 or None


def _call(library: Any, name: str, *arguments: object) -> None:
    code = getattr(library, name)(*arguments)
    if code:
        raise _NvmlError(code, f"{name} failed with code {code}")


def _fault(error: _NvmlError) -> str:
    if error.code == _DRIVER_NOT_LOADED:
        return "NVIDIA's driver is installed and not loaded: restart the machine, or load its kernel module."
    if error.code == _VERSION_MISMATCH:
        return "NVIDIA's driver was updated and the running one is the old one: restart the machine."
    return f"NVIDIA's driver does not answer ({error})."


def _text(buffer: Any) -> str:
    return buffer.value.decode("utf-8", "replace")
