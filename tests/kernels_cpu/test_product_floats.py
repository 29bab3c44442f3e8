"""Products of F32, F16 and BF16 matrices with float32 activations."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import pytest
from gated_products import activate
from kernels import LEVELS, pack, same_bits
from products import ACTIVATIONS, ADD, GELU, SILU, Cut, expected_product, multiply, prompt, weights_of
from tiny_models import random_rows

from kernels_cpu.packed_formats import FLOAT_FORMATS

TOKENS = 13
ROWS = 37
COLUMNS = (1, 3, 96, 155)  # below, and no multiple of, the four chains that a sum is made of
BATCHES = (1, 2, 3, 4, 5, 8, 13)


@lru_cache(maxsize=64)
def rows_of(format_name: str, num_columns: int, seed: int = 0) -> np.ndarray:
    return random_rows(format_name, (ROWS, num_columns), np.random.default_rng(seed), std=num_columns**-0.5)


def fused_chains(weights: np.ndarray, x: np.ndarray) -> np.ndarray:
    """Four chains of fused multiply-adds over columns 0, 4, ..., 1, 5, ...; float32 [tokens, rows].

    A product of two float32 is exact in a long double, whose 64 bits make a second rounding all but impossible.
    """
    num_columns = weights.shape[1]
    chains = np.zeros((4, len(x), len(weights)), np.float32)
    for column in range(num_columns):
        product = np.multiply.outer(x[:, column].astype(np.longdouble), weights[:, column].astype(np.longdouble))
        # Columns past the last whole four go to the first chain.
        chain = column % 4 if column < num_columns // 4 * 4 else 0
        chains[chain] = (product + chains[chain]).astype(np.float32)
    return (chains[0] + chains[1]) + (chains[2] + chains[3])


@pytest.mark.parametrize("num_columns", COLUMNS)
@pytest.mark.parametrize("format_name", tuple(FLOAT_FORMATS))
@pytest.mark.parametrize("level", LEVELS)
def test_a_product_is_four_chains_of_fused_multiply_adds(level: str, format_name: str, num_columns: int) -> None:
    raw, x = rows_of(format_name, num_columns), prompt(TOKENS, num_columns)
    weights = weights_of(format_name, raw)
    found = multiply(pack(level, format_name, num_columns, raw), x, TOKENS)
    assert same_bits(found, fused_chains(weights, x))
    expected, bound = expected_product(weights, x.astype(np.float64))
    assert (np.abs(found - expected) <= bound).all()


@pytest.mark.parametrize("num_columns", COLUMNS)
@pytest.mark.parametrize("format_name", tuple(FLOAT_FORMATS))
@pytest.mark.parametrize("level", LEVELS)
def test_neither_batch_nor_chunks_change_a_bit(level: str, format_name: str, num_columns: int) -> None:
    x = prompt(TOKENS, num_columns)
    matrix = pack(level, format_name, num_columns, rows_of(format_name, num_columns))
    whole = multiply(matrix, x, TOKENS)
    for count in BATCHES:
        for cut in (Cut(groups=2, tokens=8), Cut(groups=100, tokens=3)):
            assert same_bits(multiply(matrix, x[-count:].copy(), count, cut=cut), whole[-count:])


@pytest.mark.parametrize("format_name", tuple(FLOAT_FORMATS))
@pytest.mark.parametrize("level", LEVELS)
def test_bias_sum_and_gate(level: str, format_name: str) -> None:
    rng = np.random.default_rng(5)
    x = prompt(TOKENS, 96)
    raws = [rows_of(format_name, 96, seed) for seed in (0, 1)]
    gate, up = (pack(level, format_name, 96, raw) for raw in raws)
    gates, ups = multiply(gate, x, TOKENS), multiply(up, x, TOKENS)
    bias = rng.standard_normal(ROWS).astype(np.float32)
    start = rng.standard_normal((TOKENS, ROWS)).astype(np.float32)
    assert same_bits(multiply(gate, x, TOKENS, mode=ADD, start=start, bias=bias), start + (gates + bias))
    both = pack(level, format_name, 96, *raws)
    for mode in (SILU, GELU):
        found = multiply(both, x, TOKENS, mode=mode, cut=Cut(groups=2, tokens=4))
        expected = activate(gates.astype(np.float64), ACTIVATIONS[mode]) * ups
        np.testing.assert_allclose(found, expected, rtol=2e-6, atol=1e-6 * np.abs(ups).max())


@pytest.mark.parametrize("level", LEVELS)
def test_subnormal_and_infinite_weights(level: str) -> None:
    """Subnormal halves count; an infinite weight spoils its own row alone."""
    raw = np.zeros((ROWS, 8), np.float16)
    raw[0] = np.arange(8, dtype=np.uint16).view(np.float16)
    raw[1] = 1.0
    raw[2, 3] = np.inf
    x = np.full((3, 8), 2.0, np.float32)
    found = multiply(pack(level, "F16", 8, raw.view(np.uint8)), x, 3)
    assert (found[:, 0] == 2 * 28 * 2.0**-24).all()
    assert (found[:, 1] == 16).all() and np.isinf(found[:, 2]).all() and (found[:, 3:] == 0).all()
