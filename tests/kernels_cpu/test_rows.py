"""Kernels that work row by row: rounding to records, choosing rows, gating."""

from __future__ import annotations

import numpy as np
import pytest
from gated_products import gate_and_up
from kernels import LEVELS, Guarded, call, floats, same_bits
from oracle import soft_cap
from products import ACTIVATIONS, GELU, RELU_SQUARED, SIGMOID, SILU, SWIGLU, prompt
from records import make_records, padded_tokens

from kernels_cpu.activations import PRECISIONS, RECORDS, terms_for

TOKENS = 6
WIDTHS = (16, 32, 40, 96, 576, 1056)  # among them no multiple of 16, of 32, of 64
EPSILON = 1e-5


def room(width: int) -> int:
    """Floats of a buffer's row, as plan.Area has them."""
    return -(-width // 256) * 256


def records_memory(num_blocks: int, count: int, terms: int) -> tuple[Guarded, np.ndarray]:
    """Where a kernel puts records, full of what may stand there before."""
    shape = (num_blocks, padded_tokens(count), 32 * terms + 16)
    memory = Guarded(int(np.prod(shape)), fill=0x7F)
    return memory, memory.view(shape, np.uint8)


def quantized(
    level: str, x: np.ndarray, terms: int, *, blocks_per_chunk: int, is_backwards: bool = False
) -> np.ndarray:
    count, width = x.shape
    num_blocks = -(-width // 64) * 2
    memory, records = records_memory(num_blocks, count, terms)
    chunks = count * -(-num_blocks // blocks_per_chunk)
    call(
        level, "row-quantize", range(chunks)[:: -1 if is_backwards else 1], x=x, x_stride=x.strides[0], width=width,
        num_blocks=num_blocks, blocks_per_chunk=blocks_per_chunk, count=np.array([count]),
        single=records if terms == 1 else 0, double=records if terms == 2 else 0,
    )  # fmt: skip
    memory.check()
    return records[:, :count]


@pytest.mark.parametrize("terms", [1, 2])
@pytest.mark.parametrize("level", LEVELS)
def test_records_are_those_of_their_description(level: str, terms: int) -> None:
    for count in (1, 2, 5):
        for width in (32, 96, 1152):
            x = prompt(count, width, seed=width)
            expected = make_records(x, terms).data[:, :count]
            for per_chunk in (1, 5, 32):
                found = quantized(level, x, terms, blocks_per_chunk=per_chunk, is_backwards=count == 5)
                assert np.array_equal(found, expected)


@pytest.mark.parametrize("terms", [1, 2])
@pytest.mark.parametrize("level", LEVELS)
def test_records_of_extreme_values(level: str, terms: int) -> None:
    """Zeros of both signs, equal values, ties, an outlier, what nears overflow, what is too small to divide by."""
    rng = np.random.default_rng(2)
    x = np.zeros((10, 64), np.float32)
    x[1] = -0.0
    x[2] = 0.3
    x[3] = (np.arange(64) % 2 * 2 - 1) * np.float32(0.3)
    x[4, 3] = -5e-20
    x[5] = np.arange(64) - 31.5
    x[5, [0, 63]] = 127.0
    x[6] = rng.standard_normal(64)
    x[6, 40] = 1e9
    x[7] = rng.choice([-1.0, 1.0], 64) * 1e34
    x[8] = rng.standard_normal(64) * 1e-36
    x[9] = rng.standard_normal(64) * 1e-39
    found = quantized(level, x, terms, blocks_per_chunk=32)
    expected = make_records(x, terms)
    assert np.array_equal(found, expected.data[:, :10])
    units = np.ascontiguousarray(found[:, :, 32 * terms : 32 * terms + 8]).view(np.float32)
    assert np.isfinite(units).all()


@pytest.mark.parametrize("terms", [1, 2])
def test_what_records_hold_is_what_was_rounded(terms: int) -> None:
    """The helper that products are compared with: half a step away, or a whole one where a rest of 128 becomes 127."""
    x = prompt(5, 256)
    records = make_records(x, terms)
    steps = np.abs(x).reshape(5, 8, 32).max(axis=2) / (127 if terms == 1 else 127 * 256)
    assert (np.abs(records.values - x).reshape(5, 8, 32) <= (0.5, 1.0)[terms - 1] * 1.001 * steps[..., None]).all()
    for token in range(5):
        for block in range(8):
            record = records.data[block, token, 32 * terms :]
            unit, total = record[:8].view(np.float32).astype(np.float64)
            values = records.values[token, 32 * block : 32 * block + 32]
            assert total == pytest.approx(values.sum(), rel=1e-6, abs=1e-6 * np.abs(values).max())
            assert -record[8:].view(np.int32) * unit == pytest.approx(values.reshape(2, 16).sum(axis=1), rel=1e-6)


def test_two_terms_hold_eight_bits_more_than_one() -> None:
    x = prompt(4, 1024)
    errors = {terms: np.abs(make_records(x, terms).values - x).mean() for terms in (1, 2)}
    assert errors[2] < errors[1] / 200
    assert {terms: make_records(x, terms).data.shape[2] for terms in (1, 2)} == {1: 48, 2: 80}
    assert {terms: record.size_bytes for terms, record in RECORDS.items()} == {1: 48, 2: 80}


def test_where_precision_costs_two_terms() -> None:
    assert [terms_for(name, is_coarse=coarse) for name in PRECISIONS for coarse in (True, False)] == [1, 1, 1, 2, 2, 2]


@pytest.mark.parametrize("width", [16, 40, 576])
@pytest.mark.parametrize("level", LEVELS)
def test_select(level: str, width: int) -> None:
    x = np.random.default_rng(3).standard_normal((7, room(width))).astype(np.float32)
    wanted = np.array([6, 0, 3, 3], np.int32)
    memory, out = floats((4, room(width)))
    call(
        level, "row-select", 4, x=x, x_stride=x.strides[0], outputs=wanted, out=out, out_stride=out.strides[0],
        width=width,
    )  # fmt: skip
    memory.check()
    assert same_bits(out[:, :width], x[wanted, :width])


@pytest.mark.parametrize("mode", [SILU, GELU, SWIGLU, SIGMOID, RELU_SQUARED])
@pytest.mark.parametrize("level", LEVELS)
def test_gate(level: str, mode: int) -> None:
    """Over the range where the activations bend, and at values whose cubes and exponentials overflow."""
    memory, gate = floats((4, 512))
    gate[:] = np.linspace(-12.0, 12.0, 2048, dtype=np.float32).reshape(4, 512)
    gate[3, :8] = [-1e15, 1e15, -100.0, 100.0, 0.0, -0.0, 1e-30, -1e-30]
    up = np.random.default_rng(4).standard_normal(gate.shape).astype(np.float32)
    expected = gate_and_up(gate.astype(np.float64), up.astype(np.float64), ACTIVATIONS[mode])
    call(
        level, "row-gate", 4, gate=gate, gate_stride=gate.strides[0], up=up, up_stride=up.strides[0], width=512,
        mode=mode,
    )  # fmt: skip
    memory.check()
    np.testing.assert_allclose(gate, expected, rtol=2e-6, atol=1e-7)


@pytest.mark.parametrize("mode", [SILU, GELU, RELU_SQUARED])
@pytest.mark.parametrize("level", LEVELS)
def test_without_up_a_gate_is_the_activation_alone(level: str, mode: int) -> None:
    memory, gate = floats((4, 512))
    gate[:] = np.linspace(-12.0, 12.0, 2048, dtype=np.float32).reshape(4, 512)
    ones, expected = np.ones_like(gate), gate.copy()
    for x, up, stride in ((gate, 0, 0), (expected, ones, ones.strides[0])):
        call(level, "row-gate", 4, gate=x, gate_stride=x.strides[0], up=up, up_stride=stride, width=512, mode=mode)
    memory.check()
    assert same_bits(gate, expected)


@pytest.mark.parametrize("level", LEVELS)
def test_soft_cap(level: str) -> None:
    """From values that stay nearly as they are to those whose exponentials overflow."""
    memory, x = floats((2, 48))
    x[0, :40] = np.linspace(-90.0, 90.0, 40, dtype=np.float32)
    x[1, :40] = np.array([-1e30, 1e30, -1e4, 1e4, 0.0] * 8, np.float32)
    expected = soft_cap(x[:, :40].astype(np.float64), 30.0)
    call(level, "row-cap", 2, x=x, x_stride=x.strides[0], width=40, cap=30.0)
    memory.check()
    np.testing.assert_allclose(x[:, :40], expected, rtol=1e-6, atol=4e-6)


@pytest.mark.parametrize("level", LEVELS[1:])
def test_levels_agree_to_the_bit(level: str) -> None:
    """Gates of all magnitudes; the other kernels are compared with one description, bit by bit, above."""
    rng = np.random.default_rng(5)
    start = (rng.standard_normal((4, 512)) * np.exp(3 * rng.standard_normal((4, 512)))).astype(np.float32)
    up = rng.standard_normal((4, 512)).astype(np.float32)
    for mode in (SILU, GELU, SWIGLU, RELU_SQUARED):
        found = []
        for name in (level, LEVELS[0]):
            gate = start.copy()
            call(
                name, "row-gate", 4, gate=gate, gate_stride=gate.strides[0], up=up, up_stride=up.strides[0],
                width=512, mode=mode,
            )  # fmt: skip
            found.append(gate)
        assert same_bits(*found)
