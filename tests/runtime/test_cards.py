"""Cards as NVML tells of them, and a sentence for everything that can be missing."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from faked_cards import fake_card, nvml_of

from runtime.cards import Card, read_cards


def read(library: Any) -> Any:
    return read_cards(lambda: library)


def test_every_fact_of_a_card_comes_through() -> None:
    card = fake_card(12, free_gib=10.5)
    library = nvml_of(card)
    found = read(library)
    # 7501 MHz, two transfers a clock, 192 bits: an RTX 3060's 360 GB/s.
    assert found.cards == (replace(card, bandwidth_bytes_per_s=7501e6 * 2 * 192 / 8),)
    assert (found.driver_version, found.fault) == ("580.65.06", None)
    assert found.best == found.cards[0]
    assert library.calls[0] == "nvmlInit_v2" and library.calls[-1] == "nvmlShutdown"


def test_of_two_cards_the_one_with_most_free_memory_is_best() -> None:
    small, large, old = fake_card(8), fake_card(24, free_gib=6, index=1), fake_card(32, index=2, capability=(6, 1))
    found = read(nvml_of(small, large, old))
    assert [card.index for card in found.cards] == [0, 1, 2]
    assert found.best is not None and found.best.index == 0, "24 GB of which 6 are free, and one too old"


def no_library() -> Any:
    raise OSError("libnvidia-ml.so.1: cannot open shared object file")


def test_without_a_driver_there_is_a_sentence() -> None:
    found = read_cards(no_library)
    assert (found.cards, found.best) == ((), None)
    assert found.fault == "No NVIDIA driver was found on this machine."


@pytest.mark.parametrize(
    ("library", "fault"),
    [
        (nvml_of(), "NVIDIA's driver is installed and finds no GPU."),
        (nvml_of(failing=(("nvmlInit_v2", 9),)), "not loaded: restart"),
        (nvml_of(failing=(("nvmlInit_v2", 18),)), "the running one is the old one: restart"),
        (nvml_of(failing=(("nvmlInit_v2", 999),)), "does not answer (nvmlInit_v2 failed with code 999)."),
        (nvml_of(failing=(("nvmlDeviceGetCount_v2", 3),)), "does not answer (nvmlDeviceGetCount_v2"),
        (nvml_of(missing=frozenset({"nvmlInit_v2"})), "too old: its management library lacks nvmlInit_v2"),
        (nvml_of(fake_card(8), lost=frozenset({0})), "GPU 0 does not answer"),
        (nvml_of(fake_card(8, capability=(6, 1))), "(compute capability 6.1) is older than"),
    ],
)
def test_each_fault_is_one_sentence(library: Any, fault: str) -> None:
    found = read(library)
    assert found.best is None
    assert fault in found.fault


def test_a_lost_card_does_not_hide_the_others() -> None:
    found = read(nvml_of(fake_card(8), fake_card(4, index=1), lost=frozenset({0})))
    assert found.fault is None
    assert found.best is not None and found.best.index == 1


@pytest.mark.parametrize("call", ["nvmlDeviceGetMaxClockInfo", "nvmlDeviceGetMemoryBusWidth"])
def test_a_bandwidth_that_the_driver_does_not_tell_is_not_known(call: str) -> None:
    for library in (nvml_of(fake_card(8), failing=((call, 3),)), nvml_of(fake_card(8), missing=frozenset({call}))):
        best: Card = read(library).best
        assert best.bandwidth_bytes_per_s is None
        assert best.total_bytes == 8 * 2**30


def test_this_machine_answers_without_an_exception() -> None:
    found = read_cards()
    assert (found.best is None) == (found.fault is not None)
