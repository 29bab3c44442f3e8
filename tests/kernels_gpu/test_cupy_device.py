"""The card through CuPy, with a stand-in for CuPy: what is called, what is said when something is missing."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from fake_cupy import FakeCard
from gpu_bench import SOURCES

from kernels_gpu.cupy_device import CupyDevice, open_card
from kernels_gpu.device import GpuError, GpuLostError, GpuMemoryError, GpuMissingError


def opened(card: FakeCard, folder: Path, monkeypatch: pytest.MonkeyPatch, index: int = 0) -> CupyDevice:
    for name, module in card.modules().items():
        monkeypatch.setitem(sys.modules, name, module)
    return open_card(folder, index)


def test_without_cupy_the_extra_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "cupy", None)
    with pytest.raises(GpuMissingError, match="CuPy.*not installed.*extra gpu"):
        open_card(tmp_path)


@pytest.mark.parametrize(
    ("card", "index", "sentence"),
    [
        (FakeCard(count_fails=35), 0, "driver is missing, or too old"),
        (FakeCard(count_fails=100), 0, "No NVIDIA GPU was found"),
        (FakeCard(count=1), 1, "no GPU number 1: this machine has 1"),
        (FakeCard(capability="61"), 0, r"Fake RTX \(compute capability 6\.1\) is older"),
    ],
)
def test_each_thing_that_is_missing_has_its_sentence(
    card: FakeCard, index: int, sentence: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with pytest.raises(GpuMissingError, match=sentence):
        opened(card, tmp_path, monkeypatch, index)


def test_a_card_is_named_by_its_place_on_the_bus(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    card = FakeCard(count=2, bus_ids=("00000000:01:00.0", "00000000:02:00.0"))
    for name, module in card.modules().items():
        monkeypatch.setitem(sys.modules, name, module)
    assert open_card(tmp_path, bus_id="00000000:02:00.0").name == "Fake RTX"
    with pytest.raises(GpuMissingError, match="00000000:03:00.0 is hidden from CUDA.*CUDA_VISIBLE_DEVICES"):
        open_card(tmp_path, bus_id="00000000:03:00.0")


def test_arrays_travel_and_memory_is_given_back(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    card = FakeCard()
    device = opened(card, tmp_path, monkeypatch)
    stream = device.new_stream()
    first, second = (device.allocate(64, "a test") for _ in range(2))
    assert device.memory().free_bytes == card.total_bytes - 128
    values = np.arange(8, dtype=np.float32)
    device.upload(first, values, stream)
    device.clear(first.part(0, 4), stream)
    device.copy(second.part(0, 32), first.part(0, 32), stream)
    found = device.host_array((8,), np.float32)
    device.download(found, second, stream)
    stream.wait()
    np.testing.assert_array_equal(found, [0, 1, 2, 3, 4, 5, 6, 7])
    device.free(first)
    device.close()
    device.close()
    assert not card.blocks


def test_kernels_are_compiled_loaded_and_launched(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    card = FakeCard()
    device = opened(card, tmp_path, monkeypatch)
    stream = device.new_stream()
    kernel = device.load(SOURCES / "rows.cu", (), ["quantize"])["quantize"]
    assert [Path(path).read_bytes()[:4] for path in card.loaded] == [b"\x7fELF"]
    stream.begin_capture()
    arguments = (np.uint64(256), np.int32(3))
    device.launch(kernel, grid=(2, 3), block=(256,), arguments=arguments, stream=stream, shared_bytes=16)
    stream.end_capture().launch(stream)
    name, grid, block, given, shared_bytes, _ = card.launches[0]
    assert (name, grid, block, given, shared_bytes) == ("quantize", (2, 3), (256,), arguments, 16)
    assert card.launches[1][0] == "graph"


def test_a_driver_s_fault_is_a_lost_card_unless_it_is_about_the_kernel_s_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    card = FakeCard()
    device = opened(card, tmp_path, monkeypatch)
    kernel, stream = device.load(SOURCES / "rows.cu", (), ["quantize"])["quantize"], device.new_stream()
    card.launch_fails = 719
    with pytest.raises(GpuLostError, match="stopped answering while starting quantize: cudaError 719"):
        device.launch(kernel, grid=(1,), block=(1,), arguments=(), stream=stream)
    card.load_fails = 209
    with pytest.raises(GpuError, match=r"driver failed while loading the kernels of rows\.cu") as caught:
        device.load(SOURCES / "rows.cu", (), ["quantize"])
    assert not isinstance(caught.value, GpuLostError)


def test_full_memory_says_what_was_asked_and_what_is_free(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    device = opened(FakeCard(total_bytes=1 << 20), tmp_path, monkeypatch)
    with pytest.raises(GpuMemoryError, match="no room for the weights: 2 MiB were asked for, 1 MiB are free"):
        device.allocate(2 << 20, "the weights")


def test_a_lost_card_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    device = opened(FakeCard(sync_fails=719), tmp_path, monkeypatch)
    stream = device.new_stream()
    with pytest.raises(GpuLostError, match="stopped answering while computing: cudaError 719"):
        stream.wait()
    with pytest.raises(GpuLostError, match="stopped answering while waiting"):
        stream.record().wait()
