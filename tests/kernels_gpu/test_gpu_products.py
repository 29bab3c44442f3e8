"""Products, gated products and embeddings of every format on the emulated card, against gguf.quants in float64."""

from __future__ import annotations

import numpy as np
import pytest
from gated_products import gate_and_up
from gguf import GGMLQuantizationType, quants
from gpu_bench import PLACES, Array, Bench, Place, bench, make_records
from tiny_models import random_rows

from kernels_gpu.device import Region
from kernels_gpu.layout import PLANE_FORMATS, defines_for, plain_row_bytes
from kernels_gpu.product_steps import NO_PART
from kernels_gpu.repacking import repack
from models.formats import FORMATS
from models.program import Activation

QUANTISED = tuple(PLANE_FORMATS)
PLAIN = ("F32", "F16", "BF16")
STORE, ADD, SILU, GELU_TANH, CLAMPED_SWIGLU = range(5)
# Every second format in one term, so that each is built once; both ways of Q4_K run in test_gpu_model.py.
TERMS = {name: 1 + idx % 2 for idx, name in enumerate(FORMATS)}
COLUMNS = {name: 512 if FORMATS[name].block_elements == 256 else 288 for name in FORMATS}


def defines_of(format_name: str) -> tuple[str, ...]:
    return defines_for(format_name, TERMS[format_name])


def matrix(format_name: str, rows: int, columns: int, seed: int = 1) -> tuple[Array, Array]:
    """The file's bytes and the float64 values of a random matrix."""
    raw = random_rows(format_name, (rows, columns), np.random.default_rng(seed), std=columns**-0.5)
    values = quants.dequantize(raw, GGMLQuantizationType(FORMATS[format_name].ggml_id))
    return raw, values.astype(np.float64).reshape(rows, columns)


def multiply(
    stand: Bench, format_name: str, packed: Region, records: Region, *, rows: int, columns: int, first: int, count: int,
    capacity: int, shift: int = 0, bucket: int | None = None, bias: Region | None = None,
    scale: float = 1.0, mode: int = STORE, out: Region, out_stride: int,
) -> None:  # fmt: skip
    bucket = bucket or next(size for size in (1, 2, 4, 8) if size >= count)
    stand.run(
        "product.cu", f"product_{bucket}", columns // 32, records, capacity, first, count, shift, scale, mode,
        packed, rows, bias, out, out_stride, *NO_PART, *NO_PART, grid=(-(-rows // (4 >> shift)),), block=128,
        defines=defines_of(format_name),
    )  # fmt: skip


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("format_name", QUANTISED)
def test_a_product_equals_the_oracle(format_name: str, place: Place) -> None:
    rows, columns, count, first, capacity = 10, COLUMNS[format_name], 3, 1, 5
    raw, weights = matrix(format_name, rows, columns)
    x = np.random.default_rng(2).standard_normal((first + count, columns)).astype(np.float32)
    records, values = make_records(x, TERMS[format_name], capacity)
    stand = bench(place)
    before = np.random.default_rng(3).standard_normal((capacity, rows + 2)).astype(np.float32)
    bias = np.arange(rows, dtype=np.float32)
    out = stand.put(before)
    multiply(
        stand, format_name, stand.put(repack(format_name, raw, columns)), stand.put(records), rows=rows,
        columns=columns, first=first, count=count, capacity=capacity, shift=1, bias=stand.put(bias), scale=0.75,
        mode=ADD, out=out, out_stride=rows + 2,
    )  # fmt: skip
    expected = before.astype(np.float64)
    expected[first : first + count, :rows] += 0.75 * (values[first:] @ weights.T + bias)
    np.testing.assert_allclose(stand.get(out, before.shape), expected, rtol=2e-6, atol=2e-5)


@pytest.mark.parametrize("format_name", QUANTISED)
def test_the_number_of_tokens_changes_no_bit(format_name: str) -> None:
    rows, columns = 5, COLUMNS[format_name]
    raw, weights = matrix(format_name, rows, columns)
    x = np.random.default_rng(2).standard_normal((8, columns)).astype(np.float32)
    records, values = make_records(x, TERMS[format_name], 8)
    stand = bench("ascending")
    packed, given = stand.put(repack(format_name, raw, columns)), stand.put(records)
    found = []
    for size in (1, 2, 4, 8):
        out = stand.empty(8 * rows * 4)
        for first in range(0, 8, size):
            multiply(
                stand, format_name, packed, given, rows=rows, columns=columns, first=first, count=size, capacity=8,
                out=out, out_stride=rows,
            )  # fmt: skip
        found.append(stand.get(out, (8, rows)))
    np.testing.assert_allclose(found[0], values @ weights.T, rtol=2e-6, atol=2e-5)
    for other in found[1:]:
        np.testing.assert_array_equal(found[0], other)


@pytest.mark.parametrize("shift", [0, 1, 2])
@pytest.mark.parametrize("columns", [768, 1280, 3328])
def test_rows_of_any_length_by_one_two_or_four_warps(columns: int, shift: int) -> None:
    """One token takes two units at a time, and a rest; more tokens one at a time: the same bits."""
    format_name, rows, count = "Q4_K", 5, 3
    raw, weights = matrix(format_name, rows, columns)
    x = np.random.default_rng(2).standard_normal((count, columns)).astype(np.float32)
    records, values = make_records(x, TERMS[format_name], count)
    stand = bench("shuffled")
    packed, given = stand.put(repack(format_name, raw, columns)), stand.put(records)
    found = []
    for size in (1, 3):
        out = stand.empty(count * rows * 4)
        for first in range(0, count, size):
            multiply(
                stand, format_name, packed, given, rows=rows, columns=columns, first=first, count=size,
                capacity=count, shift=shift, out=out, out_stride=rows,
            )  # fmt: skip
        found.append(stand.get(out, (count, rows)))
    np.testing.assert_allclose(found[0], values @ weights.T, rtol=2e-6, atol=5e-5)
    np.testing.assert_array_equal(found[0], found[1])


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("sizes", [(10, 3, 5), (4, 8), (1, 1, 1), (9,)])
@pytest.mark.parametrize("shift", [0, 1])
def test_matrices_of_one_launch_are_multiplied_each(sizes: tuple[int, ...], shift: int, place: Place) -> None:
    format_name, columns, count = "Q6_K", 512, 3
    x = np.random.default_rng(2).standard_normal((count, columns)).astype(np.float32)
    records, values = make_records(x, TERMS[format_name], count)
    stand = bench(place)
    parts: list[tuple[Region | int | None, ...]] = []
    expected, outs = [], []
    for idx, rows in enumerate(sizes):
        raw, weights = matrix(format_name, rows, columns, seed=idx)
        bias = np.arange(rows, dtype=np.float32) + idx if idx != 1 else None
        out = stand.empty(4 * count * rows)
        packed = stand.put(repack(format_name, raw, columns))
        parts.append((packed, rows, None if bias is None else stand.put(bias), out, rows))
        outs.append(out)
        expected.append(0.5 * (values @ weights.T + (0 if bias is None else bias)))
    rest = [*NO_PART] * (3 - len(parts))
    blocks = sum(-(-(rows << shift) // 4) for rows in sizes)
    stand.run(
        "product.cu", "product_4", columns // 32, stand.put(records), count, 0, count, shift, 0.5, STORE,
        *(argument for part in parts for argument in part), *rest, grid=(blocks,), block=128,
        defines=defines_of(format_name),
    )  # fmt: skip
    for rows, out, wanted in zip(sizes, outs, expected, strict=True):
        np.testing.assert_allclose(stand.get(out, (count, rows)), wanted, rtol=2e-6, atol=2e-5)


@pytest.mark.parametrize(
    ("mode", "activation"), [(SILU, "silu"), (GELU_TANH, "gelu_tanh"), (CLAMPED_SWIGLU, "clamped_swiglu")]
)
@pytest.mark.parametrize("format_name", ["Q4_0", "Q4_K", "Q6_K"])
def test_a_gated_product_equals_the_oracle(format_name: str, mode: int, activation: Activation) -> None:
    rows, columns, count = 6, COLUMNS[format_name], 3
    raw_gate, gate = matrix(format_name, rows, columns, 1)
    raw_up, up = matrix(format_name, rows, columns, 2)
    x = np.random.default_rng(3).standard_normal((count, columns)).astype(np.float32)
    records, values = make_records(x, TERMS[format_name], count)
    stand = bench("shuffled")
    out = stand.empty(count * rows * 4)
    stand.run(
        "product.cu", "gated_4", stand.put(repack(format_name, raw_gate, columns)),
        stand.put(repack(format_name, raw_up, columns)), rows, columns // 32, stand.put(records), count, 0, count, 2,
        mode, out, rows, grid=(rows,), block=128, defines=defines_of(format_name),
    )  # fmt: skip
    expected = gate_and_up(values @ gate.T, values @ up.T, activation)
    np.testing.assert_allclose(stand.get(out, (count, rows)), expected, rtol=5e-6, atol=1e-5)


@pytest.mark.parametrize("format_name", PLAIN)
@pytest.mark.parametrize("place", PLACES)
def test_a_product_of_plain_numbers_equals_the_oracle(format_name: str, place: Place) -> None:
    rows, columns, count = 6, 160, 3
    raw, weights = matrix(format_name, rows, columns)
    x = np.random.default_rng(2).standard_normal((count, columns)).astype(np.float32)
    stand = bench(place)
    packed, given = stand.put(repack(format_name, raw, columns)), stand.put(x)
    found = []
    for bucket in (4, 8):
        out = stand.empty(count * rows * 4)
        stand.run(
            "product_plain.cu", f"product_{bucket}", packed, rows, plain_row_bytes(format_name, columns) // 16, given,
            columns, 0, count, 1, None, -2.0, STORE, out, rows, grid=(-(-rows // 2),), block=128,
            defines=defines_of(format_name),
        )  # fmt: skip
        found.append(stand.get(out, (count, rows)))
    np.testing.assert_allclose(found[0], -2.0 * x.astype(np.float64) @ weights.T, rtol=2e-6, atol=2e-5)
    np.testing.assert_array_equal(found[0], found[1])


@pytest.mark.parametrize("format_name", tuple(FORMATS))
def test_an_embedding_equals_the_oracle(format_name: str) -> None:
    rows, columns = 7, COLUMNS[format_name]
    raw, weights = matrix(format_name, rows, columns)
    ids = np.array([6, 0, 3], np.int32)
    stand = bench("descending")
    out = stand.empty(len(ids) * columns * 4)
    plain = FORMATS[format_name].is_plain
    pieces = plain_row_bytes(format_name, columns) // 16 if plain else columns // 32
    stand.run(
        "product_plain.cu" if plain else "product.cu", "embed", stand.put(repack(format_name, raw, columns)), rows,
        pieces, stand.put(ids), 1.5, out, columns, grid=(len(ids),), block=128, defines=defines_of(format_name),
    )  # fmt: skip
    np.testing.assert_allclose(stand.get(out, (len(ids), columns)), 1.5 * weights[ids], rtol=1e-6, atol=1e-7)
