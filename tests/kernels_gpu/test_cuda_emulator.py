"""The emulator finds what a card would not forgive, and computes what a card computes."""

from __future__ import annotations

import numpy as np
import pytest
from emulated_device import ORDERS, EmulatedDevice, KernelFault, Order
from gpu_bench import SOURCES, Array, Bench, bench

from kernels_gpu.device import Region

FAULTS = "../../tests/support/cuda_emulator/faults.cu"


def run(stand: Bench, name: str, *arguments: Region, threads: int = 32, shared_bytes: int = 0) -> Array:
    """The 64 words that a kernel leaves."""
    out = stand.put(np.zeros(64, np.float32))
    stand.run(FAULTS, name, *arguments, out, grid=(1,), block=threads, shared_bytes=shared_bytes)
    return stand.get(out, (64,))


@pytest.mark.parametrize("order", ORDERS)
def test_a_forgotten_barrier_shows(order: Order) -> None:
    found = run(bench(order), "forgets_barrier", threads=64)
    assert not np.array_equal(found, np.arange(64)[::-1])


def test_trust_in_lock_step_shows() -> None:
    found = [run(bench(order), "trusts_lock_step")[:32] for order in ORDERS]
    assert any(not np.array_equal(lanes, np.full(32, 32.0)) for lanes in found)


def test_shared_memory_begins_as_nan() -> None:
    assert np.isnan(run(bench("ascending"), "reads_unwritten")[:32]).all()


@pytest.mark.parametrize(
    ("name", "sentence", "threads", "shared_bytes"),
    [
        ("diverges", r"divergent __syncthreads: lines \d+ and \d+", 64, 0),
        ("leaves_early", r"deadlock.*thread \(\d+,0,0\) waits at line \d+ in a warp operation", 32, 0),
        ("outgrows_shared", r"wrote past its dynamic shared memory \(byte 64 of 64\)", 32, 64),
    ],
)
def test_faults_are_named(name: str, sentence: str, threads: int, shared_bytes: int) -> None:
    for order in ORDERS:
        with pytest.raises(KernelFault, match=f"{name}: .*{sentence}"):
            run(bench(order), name, threads=threads, shared_bytes=shared_bytes)


@pytest.mark.parametrize("order", ORDERS)
def test_warp_operations(order: Order) -> None:
    stand = bench(order)
    x = stand.put((np.random.default_rng(1).standard_normal(32) * 10.0 ** np.arange(-16, 16)).astype(np.float32))
    np.testing.assert_array_equal(run(stand, "sums_by_shuffles", x), run(stand, "sums_at_once", x))
    votes = run(stand, "votes").view(np.uint32)
    assert set(votes[:32].tolist()) == {sum(1 << lane for lane in range(0, 32, 3))}
    lanes = np.arange(32)
    expected = (31 - lanes) * 100 + np.where(lanes < 28, lanes + 4, lanes)
    np.testing.assert_array_equal(run(stand, "exchanges").view(np.int32)[:32], expected)


def test_arguments_are_checked() -> None:
    stand = bench("ascending")
    kernel = stand.device.load(SOURCES / FAULTS, (), ["votes"])["votes"]

    def launch(*arguments: np.generic) -> None:
        stand.device.launch(kernel, grid=(1,), block=(32,), arguments=arguments, stream=stand.stream)

    with pytest.raises(AssertionError, match="2 arguments, not 1"):
        launch(np.uint64(0), np.int32(1))
    with pytest.raises(AssertionError, match="argument 0 is .*not 8 bytes of kind P"):
        launch(np.float32(0))
    with pytest.raises(KernelFault, match="no memory at 0x10"):
        launch(np.uint64(16))


def test_a_graph_does_nothing_until_it_is_launched() -> None:
    device = EmulatedDevice()
    stand = Bench(device)
    region = stand.put(np.zeros(4, np.float32))
    stand.stream.begin_capture()
    device.upload(region, np.ones(4, np.float32), stand.stream)
    graph = stand.stream.end_capture()
    np.testing.assert_array_equal(stand.get(region, (4,)), np.zeros(4))
    graph.launch(stand.stream)
    np.testing.assert_array_equal(stand.get(region, (4,)), np.ones(4))
