"""NVIDIA cards and machines that are not there, and the driver's library that would tell of them.

Owns the facts of the fakes.  The library writes through ctypes' pointers as the real one does.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from runtime.cards import Card, Cards
from runtime.machine import Machine

GIB = 2**30


def fake_card(
    total_gib: float, *, free_gib: float | None = None, index: int = 0, capability: tuple[int, int] = (8, 6)
) -> Card:
    """A card with that much memory, all of it free unless said otherwise."""
    return Card(
        index=index,
        name=f"Fake {total_gib:g} GB",
        bus_id=f"00000000:{index + 1:02X}:00.0",
        compute_capability=capability,
        total_bytes=int(total_gib * GIB),
        free_bytes=int((total_gib if free_gib is None else free_gib) * GIB),
        bandwidth_bytes_per_s=360e9,
    )


def cards_of(*cards: Card) -> Cards:
    """What a machine with these cards says."""
    return Cards(
        cards=cards,
        driver_version="580.65" if cards else None,
        fault=None if cards else "NVIDIA's driver finds no GPU.",
    )


def fake_machine(available_gib: float | None = 64) -> Machine:
    """A machine of eight cores."""
    available = None if available_gib is None else int(available_gib * GIB)
    return Machine(
        system="Linux",
        architecture="x86_64",
        cpu_name="Fake CPU",
        isa="avx2",
        allowed_cpus=16,
        num_cores=8,
        num_fast_cores=8,
        cpu_quota=None,
        memory_total_bytes=available,
        memory_available_bytes=available,
        load=0.0,
        huge_pages="madvise",
    )


@dataclass(frozen=True, kw_only=True)
class FakeNvml:
    """NVML for some cards.  failing: codes that calls give, by name; lost: cards that do not answer."""

    cards: tuple[Card, ...] = ()
    failing: tuple[tuple[str, int], ...] = ()
    lost: frozenset[int] = frozenset()
    missing: frozenset[str] = frozenset()
    calls: list[str]

    def __getattr__(self, name: str) -> Any:
        if name in self.missing or not name.startswith("nvml"):
            raise AttributeError(name)

        def call(*arguments: Any) -> int:
            self.calls.append(name)
            code = dict(self.failing).get(name, 0)
            return code or self._answer(name, arguments)

        return call

    def _answer(self, name: str, arguments: tuple[Any, ...]) -> int:
        if name in ("nvmlInit_v2", "nvmlShutdown"):
            return 0
        if name == "nvmlSystemGetDriverVersion":
            arguments[0].value = b"580.65.06"
            return 0
        if name == "nvmlDeviceGetCount_v2":
            arguments[0]._obj.value = len(self.cards)
            return 0
        if name == "nvmlDeviceGetHandleByIndex_v2":
            arguments[1]._obj.value = arguments[0].value + 1
            return 15 if arguments[0].value in self.lost else 0
        return self._tell(name, self.cards[arguments[0].value - 1], arguments)

    def _tell(self, name: str, card: Card, arguments: tuple[Any, ...]) -> int:
        target: Any = getattr(arguments[-1], "_obj", None)
        if name == "nvmlDeviceGetName":
            arguments[1].value = card.name.encode()
        elif name == "nvmlDeviceGetMemoryInfo":
            target.total, target.free = card.total_bytes, card.free_bytes
            target.used = card.total_bytes - card.free_bytes
        elif name == "nvmlDeviceGetPciInfo_v3":
            target.bus_id = card.bus_id.encode()
        elif name == "nvmlDeviceGetCudaComputeCapability":
            arguments[1]._obj.value, target.value = card.compute_capability
        elif name == "nvmlDeviceGetMaxClockInfo":
            target.value = 7501
        elif name == "nvmlDeviceGetMemoryBusWidth":
            target.value = 192
        else:
            return 13
        return 0


def nvml_of(*cards: Card, **more: Any) -> FakeNvml:
    """A library that knows these cards."""
    return FakeNvml(cards=cards, calls=[], **more)


def with_free(card: Card, free_bytes: int) -> Card:
    """The same card with other free memory."""
    return replace(card, free_bytes=free_bytes)
