"""The probe kernels do the work that is counted, on every level; the limits are made of it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from kernels import KERNEL_FOLDER, LEVELS

from kernels_cpu import operands
from kernels_cpu.isa import IsaError, choose
from kernels_cpu.kernel_cache import KernelCache
from kernels_cpu.limits import KERNELS, LimitsProbe
from kernels_cpu.operands import Layout, probe_chains
from kernels_cpu.team import native

ROUNDS = 3
STEPS = 8


def run(level: str, name: str, layout: Layout, chunks: int, values: dict[str, int]) -> None:
    address = KernelCache(KERNEL_FOLDER, choose(level)).load(KERNELS)[name]
    block = np.array(layout.fill(values), np.int64)
    for chunk in range(chunks):
        native(address)(block.ctypes.data, chunk)


@pytest.mark.parametrize("level", LEVELS)
def test_the_read_probe_reads_every_float_of_its_chunk(level: str) -> None:
    """The sum of each chunk; whole numbers, so that their order does not matter."""
    chunks, size = 3, 4096
    data = np.random.default_rng(1).integers(-100, 100, chunks * size // 4).astype(np.float32)
    out = np.zeros((chunks, 16), np.float32)
    values = {"data": data.ctypes.data, "chunk_bytes": size, "out": out.ctypes.data}
    run(level, "probe-read", operands.PROBE_READ, chunks, values)
    assert out.sum(axis=1).tolist() == data.reshape(chunks, -1).sum(axis=1).tolist()


@pytest.mark.parametrize("level", LEVELS)
def test_the_multiply_probe_does_every_step(level: str) -> None:
    """Each accumulator begins with its number and gains 7 * (1 + 2 + 3 + 4) a step; the result is all of them xored."""
    lanes = choose(level).lanes
    out = np.zeros((2, 16), np.int32)
    run(level, "probe-multiply", operands.PROBE_COMPUTE, 2, {"rounds": ROUNDS, "out": out.ctypes.data})
    expected = 0
    for chain in range(probe_chains(lanes)):
        expected ^= chain + ROUNDS * STEPS * 7 * 10
    assert out[:, :lanes].tolist() == [[expected] * lanes] * 2
    assert not out[:, lanes:].any()


@pytest.mark.parametrize("level", LEVELS)
def test_the_add_probe_does_every_step(level: str) -> None:
    """Each accumulator is halved and gains a quarter, 8 times a round; the result is their sum."""
    lanes = choose(level).lanes
    out = np.zeros((1, 16), np.float32)
    run(level, "probe-add", operands.PROBE_COMPUTE, 1, {"rounds": 1, "out": out.ctypes.data})
    expected = 0.0
    for chain in range(probe_chains(lanes)):
        value = float(chain)
        for _ in range(STEPS):
            value = value * 0.5 + 0.25
        expected += value
    assert out[0, :lanes].tolist() == [pytest.approx(expected)] * lanes


def test_limits_are_measured_with_every_number_of_threads() -> None:
    probe = LimitsProbe(KERNEL_FOLDER, "auto", 1 << 20)
    try:
        for threads in (1, 2, 1):
            limits = probe.measure(threads)
            assert limits.read_bytes_per_s > 0
            assert limits.byte_multiply_adds_per_s > 0 and limits.float_multiply_adds_per_s > 0
    finally:
        probe.close()
        probe.close()


def test_a_level_that_the_machine_lacks_is_refused(tmp_path: Path) -> None:
    lacking = next(name for name in ("avx512", "neon") if name not in LEVELS)
    with pytest.raises(IsaError, match=lacking):
        LimitsProbe(tmp_path, lacking, 1 << 20)
