"""Halves and exponentials, through the kernels that use them: every half, and the exponential over its range."""

from __future__ import annotations

import numpy as np
import pytest
from attention_pages import Heads, Pages, attend, store
from kernels import LEVELS, call, embed, floats, pack, same_bits

LARGEST_HALF = 65504.0


@pytest.mark.parametrize("level", LEVELS)
def test_every_half_becomes_the_float_that_it_is(level: str) -> None:
    halves = np.arange(65536, dtype=np.uint16).view(np.float16).reshape(256, 256)
    found = embed(pack(level, "F16", 256, halves.view(np.uint8)), np.arange(256))
    expected = halves.astype(np.float32)
    numbers = ~np.isnan(expected)
    assert same_bits(found[numbers], expected[numbers]) and np.isnan(found[~numbers]).all()


def floats_between_halves() -> np.ndarray:
    """Every finite half, what lies in the middle of two, and the floats next to both; then what is out of range."""
    halves = np.arange(0x7C00, dtype=np.uint16).view(np.float16).astype(np.float32)
    middles = (halves[:-1] + halves[1:]) / 2
    values = np.concatenate([halves, middles])
    values = np.concatenate([values, np.nextafter(values, np.float32(np.inf)), np.nextafter(values, np.float32(-1.0))])
    beyond = np.array([65519.9, 65520.0, 65536.0, 1e6, 3e38, np.inf, 1e-45, 1e-38], np.float32)
    values = np.concatenate([values, beyond])
    return np.concatenate([values, -values])


@pytest.mark.parametrize("level", LEVELS)
def test_floats_are_rounded_to_the_nearest_half(level: str) -> None:
    """As keys and values are stored.  What no half can hold becomes the largest: see rotate.py."""
    values = floats_between_halves()
    heads = Heads(head_dim=512)
    count = -(-len(values) // heads.head_dim)
    rows = np.zeros((count, 1, heads.head_dim), np.float32)
    rows.reshape(-1)[: len(values)] = values
    pages = Pages.new(heads, -(-count // 64))
    store(level, pages, rows[:, None], rows, rows)
    expected = np.clip(rows, -LARGEST_HALF, LARGEST_HALF).astype(np.float16).astype(np.float32)
    assert all(same_bits(stored, expected) for stored in pages.read(count))


@pytest.mark.parametrize("level", LEVELS)
def test_what_is_not_a_number_is_never_stored(level: str) -> None:
    """So that a spoilt position cannot spoil others, which give it no weight."""
    heads = Heads(head_dim=16)
    rows = np.full((1, 1, 16), np.nan, np.float32)
    pages = Pages.new(heads, 1)
    store(level, pages, rows[:, None], rows, rows)
    assert all(np.isfinite(part).all() for part in pages.read(1))


@pytest.mark.parametrize("level", LEVELS)
def test_exponential_of_positive_numbers(level: str) -> None:
    """silu(-x) is -x / (1 + e ** x)."""
    x = np.linspace(0.01, 87.9, 16384, dtype=np.float32).reshape(16, 1024)
    memory, gate = floats(x.shape)
    gate[:] = -x
    ones = np.ones_like(x)
    call(
        level, "row-gate", len(x), gate=gate, gate_stride=gate.strides[0], up=ones, up_stride=ones.strides[0],
        width=x.shape[1], mode=2,
    )  # fmt: skip
    memory.check()
    wide = x.astype(np.float64)
    np.testing.assert_allclose(gate, -wide / (1.0 + np.exp(wide)), rtol=3e-7)


@pytest.mark.parametrize("level", LEVELS)
def test_exponential_of_negative_numbers(level: str) -> None:
    """Of two keys with scores 0 and x and values 0 and 1, attention gives e ** x / (1 + e ** x)."""
    x = np.linspace(-86.9, 0.0, 4096, dtype=np.float32)
    heads = Heads(head_dim=16, per_kv=64)
    k, v = (np.zeros((2, 1, 16), np.float32) for _ in range(2))
    k[1, 0, 0] = 1.0
    v[1, 0] = 1.0
    pages = Pages.new(heads, 1)
    pages.write(k, v)
    found = []
    for first in range(0, len(x), heads.per_kv):
        q = np.zeros((1, heads.per_kv, 16), np.float32)
        q[0, :, 0] = x[first : first + heads.per_kv]
        found.append(attend(level, pages, q, np.array([1]), scale=1.0)[0, :, 0])
    exponential = np.exp(x.astype(np.float64))
    np.testing.assert_allclose(np.concatenate(found), exponential / (1.0 + exponential), rtol=3e-7)


@pytest.mark.parametrize("level", LEVELS)
def test_a_vanishing_exponential_is_zero_and_a_huge_one_finite(level: str) -> None:
    gate = np.array([-1e4, -88.5, -87.5, 88.5, 1e4, np.inf, 0.0, -0.0] * 2, np.float32)[None]
    ones = np.ones_like(gate)
    call(level, "row-gate", 1, gate=gate, gate_stride=0, up=ones, up_stride=0, width=16, mode=2)
    assert (np.abs(gate[0, :3]) < 1e-30).all() and gate[0, 3:6].tolist() == [88.5, 1e4, np.inf]
    assert (gate[0, 6:8] == 0).all()
