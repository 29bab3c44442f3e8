"""A runtime that finds the emulated card where it looks for an NVIDIA GPU.

Owns the stand-in.  Does not know models.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from emulated_device import EmulatedDevice

from runtime import placement, survey
from runtime.card_memory import GUESSED_BYTES
from runtime.cards import Card, Cards
from runtime.devices import gpu


def install(
    monkeypatch: pytest.MonkeyPatch, device: EmulatedDevice | None = None, *, keeps_memory: bool = False
) -> EmulatedDevice:
    """Makes `device` the card of this machine.  keeps_memory: what it takes by itself is written down, and read."""
    card = device or EmulatedDevice()

    def read_cards() -> Cards:
        memory = card.memory()
        own = GUESSED_BYTES  # which the emulator does not take
        found = Card(
            index=0,
            name=card.name,
            bus_id="00000000:01:00.0",
            compute_capability=(8, 6),
            total_bytes=memory.total_bytes + own,
            free_bytes=memory.free_bytes + own,
            bandwidth_bytes_per_s=360e9,
        )
        return Cards(cards=(found,), driver_version="580.65")

    monkeypatch.setattr(placement, "read_cards", read_cards)
    if not keeps_memory:
        monkeypatch.setattr(survey, "own_bytes", lambda folder, name: GUESSED_BYTES)
        monkeypatch.setattr(gpu, "keep_own_bytes", lambda folder, name, measured_bytes: None)
    monkeypatch.setattr(gpu, "the_card", lambda kernel_folder, bus_id: card)
    return card


def install_failure(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    """A machine whose driver names a card that can't be opened."""
    opened = gpu.the_card
    install(monkeypatch)

    def fail(kernel_folder: Path, bus_id: str | None) -> None:
        raise error

    monkeypatch.setattr(gpu, "open_card", fail)
    monkeypatch.setattr(gpu, "the_card", opened.__wrapped__)
