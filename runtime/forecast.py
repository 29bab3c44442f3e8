"""How fast a placed model can decode at most: the bytes that a token moves on each device, over what its memory gives.

Owns the sums and the assumptions about memory that nobody measured.  Does not know how bytes are counted
(devices/pricing.py) or how a limit is measured.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from runtime.cards import Card
from runtime.devices.costs import StepCosts, run_cost
from runtime.memory import DeviceKind

# What one core of a usual machine reads, and two channels of DDR4-3200 give together.
_ASSUMED_BYTES_PER_S_A_THREAD = 15e9
_ASSUMED_MOST_BYTES_PER_S = 40e9
_ASSUMED_CARD_BYTES_PER_S = 300e9


@dataclass(frozen=True, kw_only=True)
class Bandwidth:
    """Of a device's memory.  source: where the number comes from, as the end of a sentence."""

    read_bytes_per_s: float
    source: str


@dataclass(frozen=True, kw_only=True)
class DevicePace:
    """One device's share of a token.  moved_bytes: at the start of a context, and with a full one."""

    kind: DeviceKind
    bandwidth: Bandwidth
    moved_bytes: int
    full_moved_bytes: int


@dataclass(frozen=True, kw_only=True)
class Forecast:
    """The devices work one after the other on a token."""

    devices: tuple[DevicePace, ...]

    @property
    def tokens_per_s(self) -> float:
        """At most, at the start of a context."""
        return 1 / sum(device.moved_bytes / device.bandwidth.read_bytes_per_s for device in self.devices)

    @property
    def full_tokens_per_s(self) -> float:
        """At most, with a full context."""
        return 1 / sum(device.full_moved_bytes / device.bandwidth.read_bytes_per_s for device in self.devices)


def cpu_bandwidth(threads: int, measured_bytes_per_s: float | None) -> Bandwidth:
    """As measured, or what a usual machine gives."""
    if measured_bytes_per_s is not None:
        return Bandwidth(read_bytes_per_s=measured_bytes_per_s, source="measured")
    assumed = min(_ASSUMED_MOST_BYTES_PER_S, threads * _ASSUMED_BYTES_PER_S_A_THREAD)
    return Bandwidth(
        read_bytes_per_s=assumed, source=f"assumed for {threads} {'thread' if threads == 1 else 'threads'}"
    )


def card_bandwidth(card: Card) -> Bandwidth:
    """What the driver says of its memory's clock and width, or what a small card gives."""
    if card.bandwidth_bytes_per_s is not None:
        return Bandwidth(read_bytes_per_s=card.bandwidth_bytes_per_s, source="by its clock and width")
    return Bandwidth(read_bytes_per_s=_ASSUMED_CARD_BYTES_PER_S, source="assumed")


def forecast(parts: Sequence[tuple[DeviceKind, StepCosts, Bandwidth]], context_size: int) -> Forecast:
    """parts: what each device moves, and how fast; those without work are left out."""
    paces = []
    for kind, costs, bandwidth in parts:
        moved, full = (run_cost(costs, [depth], count=1, num_outputs=1).moved_bytes for depth in (0, context_size - 1))
        paces.append(DevicePace(kind=kind, bandwidth=bandwidth, moved_bytes=moved, full_moved_bytes=full))
    return Forecast(devices=tuple(paces))
