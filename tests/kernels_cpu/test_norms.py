"""The kernel that normalises rows and heads: by the root mean square, and as LayerNorm does."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kernels import LEVELS, Guarded, call, floats, same_bits
from oracle import normalize
from products import prompt
from records import make_records, padded_tokens, tree

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


def normalized(
    level: str,
    x: np.ndarray,
    weight: np.ndarray,
    *,
    bias: np.ndarray | None = None,
    is_centred: bool = False,
    start: np.ndarray | None = None,
    order: Any = None,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The kernel's floats and its records of one and of two terms."""
    count, width = x.shape
    wide, padded_weight = np.full((count, room(width)), 7.0, np.float32), np.zeros(room(width), np.float32)
    wide[:, :width], padded_weight[:width] = x, weight
    padded_bias = np.zeros(room(width), np.float32)
    padded_bias[:width] = 0.0 if bias is None else bias
    memory, out = floats((count, room(width)), 0.0)
    if start is not None:
        out[:, :width] = start
    num_blocks = -(-width // 64) * 2
    singles, single = records_memory(num_blocks, count, 1)
    doubles, double = records_memory(num_blocks, count, 2)
    call(
        level, "row-normalize", range(count) if order is None else order, x=wide, x_stride=wide.strides[0],
        weight=padded_weight, width=width, epsilon=EPSILON, out=out, out_stride=out.strides[0],
        add=int(start is not None), single=single, double=double, num_blocks=num_blocks, count=np.array([count]),
        heads=1, bias=0 if bias is None else padded_bias, own_bytes=0, is_centred=int(is_centred),
    )  # fmt: skip
    for part in (memory, singles, doubles):
        part.check()
    return out[:, :width], single[:, :count], double[:, :count]


def fused_normalize(x: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """To the bit: two chains of fused multiply-adds over vectors of 16, added, and summed by the tree."""
    count, width = x.shape
    vectors = np.zeros((count, -(-width // 16) * 16), np.float32)
    vectors[:, :width] = x
    vectors = vectors.reshape(count, -1, 16)
    chains = np.zeros((2, count, 16), np.float32)
    for idx in range(vectors.shape[1]):
        chain = idx % 2 if idx < width // 32 * 2 else 0
        square = vectors[:, idx].astype(np.longdouble) ** 2
        chains[chain] = (square + chains[chain]).astype(np.float32)
    mean = tree(chains[0] + chains[1]) / np.float32(width)
    factor = np.float32(1.0) / np.sqrt(mean + np.float32(EPSILON))
    return x * factor[:, None] * weight


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("level", LEVELS)
def test_normalize(level: str, width: int) -> None:
    rng = np.random.default_rng(1)
    x, weight = prompt(TOKENS, width), rng.standard_normal(width).astype(np.float32)
    found, _, _ = normalized(level, x, weight)
    wide = normalize(x.astype(np.float64), weight.astype(np.float64), EPSILON)
    np.testing.assert_allclose(found, wide, rtol=1e-6)
    assert same_bits(found, fused_normalize(x, weight))
    start = rng.standard_normal(x.shape).astype(np.float32)
    added, _, _ = normalized(level, x, weight, start=start)
    assert same_bits(added, start + found)


@pytest.mark.parametrize("width", [width for width in WIDTHS if width % 32 == 0])
@pytest.mark.parametrize("level", LEVELS)
def test_what_was_normalised_is_rounded_to_records(level: str, width: int) -> None:
    x, weight = prompt(TOKENS, width), np.ones(width, np.float32)
    start = prompt(TOKENS, width, seed=1)
    for before in (None, start):
        found, single, double = normalized(level, x, weight, start=before, order=[4, 0, 5, 2, 1, 3])
        for terms, records in ((1, single), (2, double)):
            assert np.array_equal(records, make_records(found, terms).data[:, :TOKENS])


@pytest.mark.parametrize("level", LEVELS)
def test_a_row_is_normalised_the_same_in_any_batch(level: str) -> None:
    x, weight = prompt(TOKENS, 576), np.linspace(0.5, 2.0, 576, dtype=np.float32)
    whole = normalized(level, x, weight)
    for count in range(1, TOKENS):
        for part, all_of_it in zip(normalized(level, x[:count], weight), whole, strict=True):
            same = all_of_it[:, :count] if part.dtype == np.uint8 else all_of_it[:count]
            assert np.array_equal(part, same)


@pytest.mark.parametrize("level", LEVELS)
def test_rows_of_zeros_and_of_huge_values_are_normalised(level: str) -> None:
    x = np.zeros((3, 96), np.float32)
    x[1] = 1e18
    x[2, 7] = -3e4
    found, single, _ = normalized(level, x, np.ones(96, np.float32))
    assert (found[0] == 0).all() and (single[:, 0] == 0).all()
    assert found[1] == pytest.approx(1.0) and found[2, 7] == pytest.approx(-np.sqrt(96.0))


@pytest.mark.parametrize("level", LEVELS)
def test_heads_of_a_row_are_normalised_by_themselves(level: str) -> None:
    memory, out = floats((3, 4 * 32))
    x = np.random.default_rng(6).standard_normal(out.shape).astype(np.float32)
    weight = np.linspace(0.5, 1.5, 32, dtype=np.float32)
    call(
        level, "row-normalize", 3 * 4, x=x, x_stride=x.strides[0], weight=weight, width=32, epsilon=EPSILON, out=out,
        out_stride=out.strides[0], add=0, single=0, double=0, num_blocks=0, count=np.array([3]), heads=4,
        bias=0, own_bytes=0, is_centred=0,
    )  # fmt: skip
    memory.check()
    heads = x.reshape(3, 4, 32).astype(np.float64)
    expected = heads / np.sqrt((heads**2).mean(axis=-1, keepdims=True) + EPSILON) * weight
    np.testing.assert_allclose(out, expected.reshape(3, -1), rtol=1e-5)


@settings(deadline=None, max_examples=30)
@given(
    width=st.integers(1, 700),
    count=st.integers(1, TOKENS),
    offset=st.floats(-30.0, 30.0),
    has_bias=st.booleans(),
    seed=st.integers(0, 1000),
)
@pytest.mark.parametrize("level", LEVELS)
def test_a_layer_norm_takes_the_mean_off_and_is_the_same_in_any_batch(
    level: str, width: int, count: int, offset: float, has_bias: bool, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    x = (rng.standard_normal((count, width)) + offset).astype(np.float32)
    weight, bias = rng.standard_normal((2, width)).astype(np.float32)
    options: dict[str, Any] = {"bias": bias if has_bias else None, "is_centred": True}
    found, single, double = normalized(level, x, weight, **options)
    wide = normalize(x.astype(np.float64), weight.astype(np.float64), EPSILON, is_centred=True)
    expected = wide + bias if has_bias else wide
    np.testing.assert_allclose(found, expected, rtol=2e-5, atol=2e-6 * (1.0 + abs(offset)) ** 2)
    for row in range(count):
        alone = normalized(level, x[row : row + 1], weight, **options)
        assert same_bits(alone[0][0], found[row])
        assert np.array_equal(alone[1][:, 0], single[:, row]) and np.array_equal(alone[2][:, 0], double[:, row])


@pytest.mark.parametrize("level", LEVELS)
def test_levels_normalise_to_the_same_bits(level: str) -> None:
    x = prompt(TOKENS, 576)
    weight, bias = np.random.default_rng(7).standard_normal((2, 576)).astype(np.float32)
    found = [normalized(name, x, weight, bias=bias, is_centred=True)[0] for name in (level, LEVELS[0])]
    assert same_bits(*found)


@pytest.mark.parametrize("is_centred", [True, False])
@pytest.mark.parametrize("level", LEVELS)
def test_heads_may_have_weights_and_biases_of_their_own(level: str, is_centred: bool) -> None:
    memory, x = floats((3, 4 * 32))
    rng = np.random.default_rng(8)
    x[:] = rng.standard_normal(x.shape) + 1.0
    weight, bias = rng.standard_normal((2, 4 * 32)).astype(np.float32)
    heads = x.reshape(3, 4, 32).astype(np.float64)
    expected = normalize(heads, weight.reshape(4, 32), EPSILON, is_centred=is_centred) + bias.reshape(4, 32)
    call(
        level, "row-normalize", [5, 0, 3, 1, 11, 10, 2, 4, 9, 8, 7, 6], x=x, x_stride=x.strides[0], weight=weight,
        width=32, epsilon=EPSILON, out=x, out_stride=x.strides[0], add=0, single=0, double=0, num_blocks=0,
        count=np.array([3]), heads=4, bias=bias, own_bytes=4 * 32, is_centred=int(is_centred),
    )  # fmt: skip
    memory.check()
    np.testing.assert_allclose(x, expected.reshape(3, -1), rtol=1e-5, atol=1e-5)
