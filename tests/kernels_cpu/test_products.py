"""Products of quantised matrices with records: right against float64, and the same bits however they are cut."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import pytest
from gated_products import activate
from kernels import LEVELS, pack, same_bits
from products import ACTIVATIONS, ADD, GELU, SILU, Cut, expected_product, multiply, prompt, weights_of
from records import make_records
from tiny_models import random_rows

from kernels_cpu.isa import choose
from kernels_cpu.packed_formats import PACKED_FORMATS
from models.formats import FORMATS

QUANTISED = tuple(PACKED_FORMATS)
TOKENS = 13
ROWS = 37
# Where a kernel's result could begin to depend on the tile: around its sizes of 1, 4 and 8 tokens.
BATCHES = (1, 2, 3, 4, 5, 8, 13)


def width_of(format_name: str) -> int:
    """Two super-blocks, or an odd number of blocks of 32: formats packed in pairs of them have half a pair left."""
    return 512 if FORMATS[format_name].block_elements == 256 else 7 * 32


@lru_cache(maxsize=64)
def rows_of(format_name: str, seed: int = 0) -> np.ndarray:
    shape = (ROWS, width_of(format_name))
    return random_rows(format_name, shape, np.random.default_rng(seed), std=shape[1] ** -0.5)


@lru_cache(maxsize=64)
def product_of(level: str, format_name: str, terms: int) -> np.ndarray:
    """All tokens at once, one group of rows a chunk."""
    matrix = pack(level, format_name, width_of(format_name), rows_of(format_name))
    return multiply(matrix, make_records(prompt(TOKENS, width_of(format_name)), terms), TOKENS)


@pytest.mark.parametrize("terms", [1, 2])
@pytest.mark.parametrize("format_name", QUANTISED)
@pytest.mark.parametrize("level", LEVELS)
def test_a_product_is_that_of_weights_and_records(level: str, format_name: str, terms: int) -> None:
    found = product_of(level, format_name, terms)
    records = make_records(prompt(TOKENS, width_of(format_name)), terms)
    expected, bound = expected_product(weights_of(format_name, rows_of(format_name)), records.values)
    assert (np.abs(found - expected) <= bound).all()
    assert np.abs(expected).max() > 100 * bound.max()


@pytest.mark.parametrize("terms", [1, 2])
@pytest.mark.parametrize("format_name", QUANTISED)
@pytest.mark.parametrize("level", LEVELS)
def test_neither_batch_nor_chunks_change_a_bit(level: str, format_name: str, terms: int) -> None:
    columns = width_of(format_name)
    x = prompt(TOKENS, columns)
    matrix = pack(level, format_name, columns, rows_of(format_name))
    whole = product_of(level, format_name, terms)
    for count in BATCHES:
        records = make_records(x[-count:], terms)
        for cut in (Cut(), Cut(groups=2, tokens=8), Cut(groups=100, tokens=4)):
            assert same_bits(multiply(matrix, records, count, cut=cut), whole[-count:])
    chunks = matrix.num_groups * 2
    backwards = multiply(matrix, make_records(x, terms), TOKENS, cut=Cut(tokens=8), order=range(chunks)[::-1])
    assert same_bits(backwards, whole)


@pytest.mark.parametrize("terms", [1, 2])
@pytest.mark.parametrize("format_name", QUANTISED)
@pytest.mark.parametrize("level", LEVELS[1:])
def test_levels_agree_to_the_bit(level: str, format_name: str, terms: int) -> None:
    assert same_bits(product_of(level, format_name, terms), product_of(LEVELS[0], format_name, terms))


@pytest.mark.parametrize("format_name", QUANTISED)
@pytest.mark.parametrize("level", LEVELS)
def test_bias_scale_and_sum_of_a_product(level: str, format_name: str) -> None:
    columns = width_of(format_name)
    rng = np.random.default_rng(5)
    matrix = pack(level, format_name, columns, rows_of(format_name))
    records = make_records(prompt(TOKENS, columns), 1)
    plain = product_of(level, format_name, 1)
    bias = rng.standard_normal(ROWS).astype(np.float32)
    start = rng.standard_normal((TOKENS, ROWS)).astype(np.float32)
    assert same_bits(multiply(matrix, records, TOKENS, bias=bias), plain + bias)
    assert same_bits(multiply(matrix, records, TOKENS, mode=ADD, start=start), start + plain)
    assert same_bits(multiply(matrix, records, TOKENS, mode=ADD, start=start, bias=bias), start + (plain + bias))
    scaled = multiply(matrix, records, TOKENS, mode=ADD, start=start, bias=bias, scale=0.22)
    assert same_bits(scaled, start + (plain + bias) * np.float32(0.22))


@pytest.mark.parametrize("mode", [SILU, GELU])
@pytest.mark.parametrize("format_name", QUANTISED)
@pytest.mark.parametrize("level", LEVELS)
def test_gate_and_up_are_multiplied_together(level: str, format_name: str, mode: int) -> None:
    columns = width_of(format_name)
    gate, up = rows_of(format_name), rows_of(format_name, seed=1)
    x = 3 * prompt(TOKENS, columns)
    both = pack(level, format_name, columns, gate, up)
    alone = [pack(level, format_name, columns, raw) for raw in (gate, up)]
    whole = multiply(both, make_records(x, 2), TOKENS, mode=mode, cut=Cut(groups=2))
    gates, ups = (multiply(matrix, make_records(x, 2), TOKENS).astype(np.float64) for matrix in alone)
    expected = activate(gates, ACTIVATIONS[mode]) * ups
    assert np.abs(whole - expected).max() <= 1e-6 * np.abs(expected).max()
    np.testing.assert_allclose(whole, expected, rtol=2e-6, atol=1e-6 * np.abs(ups).max())
    for count in BATCHES:
        assert same_bits(multiply(both, make_records(x[:count], 2), count, mode=mode), whole[:count])


def extremes(columns: int) -> np.ndarray:
    """Rows of activations that try records: zeros of both signs, one value, all equal, one outlier, the tiniest."""
    rng = np.random.default_rng(6)
    rows = np.zeros((9, columns), np.float32)
    rows[1] = -0.0
    rows[2, 5] = 1.0
    rows[3] = 0.75
    rows[4] = -0.75
    rows[5] = rng.standard_normal(columns)
    rows[5, 40] = 3e4
    rows[6] = rng.standard_normal(columns) * 1e-39
    rows[7] = rng.standard_normal(columns) * 1e-36
    rows[8] = rng.choice([-1.0, 1.0], columns) * 1e28
    return rows


@pytest.mark.parametrize("terms", [1, 2])
@pytest.mark.parametrize("format_name", QUANTISED)
@pytest.mark.parametrize("level", LEVELS)
def test_extreme_weights_and_activations(level: str, format_name: str, terms: int) -> None:
    """Every code at its least and at its greatest, subnormal and vanishing scales: nothing may overflow or saturate."""
    columns, form = width_of(format_name), FORMATS[format_name]
    raw = rows_of(format_name).copy().reshape(-1, form.block_bytes)
    raw[: 8 * columns // form.block_elements] = 0xFF
    raw[8 * columns // form.block_elements : 16 * columns // form.block_elements] = 0x00
    scales = np.array([1.0, -1.0, 6e-8, 1e-6, 0.0, -0.0, 65504.0, 0.01], np.float16)
    raw = raw.reshape(ROWS, -1, form.block_bytes)
    if form.scale_encoding == "exponent":  # the two subnormal ones, the least normal ones, and up to a half's largest
        raw[:16, :, 0] = np.array([0, 1, 2, 3, 104, 128, 143, 120] * 2)[:, None]
    for field in ("scale", "minimum"):
        if form.has_field(field) and form.scale_encoding == "half":
            at = form.field(field).offset_bytes
            raw[:16, :, at : at + 2] = np.tile(scales, 2)[:, None, None].view(np.uint8)
    raw = np.ascontiguousarray(raw.reshape(ROWS, -1))
    x = extremes(columns)
    records = make_records(x, terms)
    expected, bound = expected_product(weights_of(format_name, raw), records.values)
    found = multiply(pack(level, format_name, columns, raw), records, len(x))
    assert (np.abs(found - expected) <= bound).all()
    assert (found[:2] == 0).all()
    assert (found[:, 4:6] == 0).all() or form.scale_encoding == "exponent"


@pytest.mark.parametrize("level", LEVELS)
def test_a_matrix_of_fewer_rows_than_lanes(level: str) -> None:
    for num_rows in (1, choose(level).lanes - 1):
        raw = rows_of("Q4_K")[:num_rows]
        found = multiply(pack(level, "Q4_K", 512, raw), make_records(prompt(TOKENS, 512), 1), TOKENS)
        assert same_bits(found, product_of(level, "Q4_K", 1)[:, :num_rows])
