"""Norms, rounding, choosing rows and gating on the emulated card, and the repacking of weights on its own."""

from __future__ import annotations

import numpy as np
import pytest
from emulated_device import KernelFault
from gated_products import gate_and_up
from gpu_bench import PLACES, Place, bench, make_records, record_bytes
from oracle import normalize
from tiny_models import random_rows

from kernels_gpu.layout import PLANE_FORMATS, matrix_layout
from kernels_gpu.repacking import pieces, repack
from models.formats import FORMATS
from models.program import Activation


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("is_added", [False, True])
def test_a_norm_equals_the_oracle_and_leaves_records(place: Place, is_added: bool) -> None:
    tokens, columns, capacity = 3, 2208, 4
    rng = np.random.default_rng(1)
    x, before = (rng.standard_normal((tokens, columns)).astype(np.float32) for _ in range(2))
    weight = rng.standard_normal(columns).astype(np.float32)
    stand = bench(place)
    out = stand.put(before)
    single, pair = (stand.empty(record_bytes(capacity, columns, terms)) for terms in (1, 2))
    stand.run(
        "rows.cu", "normalize", stand.put(x), columns, stand.put(weight), 1e-6, int(is_added), out, columns,
        columns // 32, single, pair, capacity, grid=(tokens,), block=256,
    )  # fmt: skip
    expected = normalize(x.astype(np.float64), weight, 1e-6) + (before if is_added else 0)
    found = stand.get(out, x.shape)
    np.testing.assert_allclose(found, expected, rtol=2e-6, atol=2e-6)
    for region, terms in ((single, 1), (pair, 2)):
        wanted, _ = make_records(found, terms, capacity)
        np.testing.assert_array_equal(stand.get(region, wanted.shape, np.uint8), wanted)


@pytest.mark.parametrize("columns", [32, 96, 2080])
def test_rows_are_rounded_as_numpy_rounds_them(columns: int) -> None:
    tokens, stride = 3, columns + 32
    x = np.random.default_rng(2).standard_normal((tokens, stride)).astype(np.float32)
    x[1, :32] = 0.0
    x[2] *= 1e-3
    stand = bench("shuffled")
    single, pair = (stand.empty(record_bytes(tokens, columns, terms)) for terms in (1, 2))
    stand.run(
        "rows.cu", "quantize", stand.put(x), stride, columns // 32, single, pair, tokens,
        grid=(-(-columns // 2048), tokens), block=256,
    )  # fmt: skip
    for region, terms, precision in ((single, 1, 1 / 254), (pair, 2, 1 / 65024)):
        wanted, values = make_records(x[:, :columns], terms, tokens)
        np.testing.assert_array_equal(stand.get(region, wanted.shape, np.uint8), wanted)
        units = np.abs(x[:, :columns] - values).reshape(tokens, -1, 32)
        most = np.abs(x[:, :columns]).reshape(tokens, -1, 32).max(axis=-1, keepdims=True)
        assert (units <= most * precision * 1.01).all()


def test_rows_are_chosen() -> None:
    x = np.random.default_rng(3).standard_normal((5, 64)).astype(np.float32)
    outputs = np.array([1, 4], np.int32)
    stand = bench("descending")
    out = stand.empty(2 * 64 * 4)
    stand.run("rows.cu", "select_rows", stand.put(x), 64, stand.put(outputs), out, 64, 2, grid=(2,), block=256)
    np.testing.assert_array_equal(stand.get(out, (2, 64)), x[outputs])


@pytest.mark.parametrize(("mode", "activation"), [(2, "silu"), (3, "gelu_tanh"), (4, "clamped_swiglu")])
def test_a_gate_is_combined(mode: int, activation: Activation) -> None:
    rng = np.random.default_rng(4)
    gate, up = (rng.standard_normal((2, 300)).astype(np.float32) * 4 for _ in range(2))
    stand = bench("ascending")
    out = stand.put(gate)
    stand.run("rows.cu", "combine_gate", out, 300, stand.put(up), 300, 300, mode, grid=(2, 2), block=256)
    expected = gate_and_up(gate.astype(np.float64), up.astype(np.float64), activation)
    np.testing.assert_allclose(stand.get(out, gate.shape), expected, rtol=3e-6, atol=1e-6)


def test_logits_are_capped_softly() -> None:
    x = np.random.default_rng(6).standard_normal((2, 300)).astype(np.float32) * 40
    stand = bench("shuffled")
    out = stand.put(x)
    stand.run("rows.cu", "cap_softly", out, 300, 290, 30.0, grid=(2, 2), block=256)
    found = stand.get(out, x.shape)
    np.testing.assert_allclose(found[:, :290], 30 * np.tanh(x[:, :290].astype(np.float64) / 30), rtol=2e-6)
    np.testing.assert_array_equal(found[:, 290:], x[:, 290:])


def test_an_overrun_is_noticed() -> None:
    stand = bench("ascending")
    x = stand.put(np.ones((1, 64), np.float32))
    out = stand.empty(32 * 4)
    stand.run("rows.cu", "select_rows", x, 64, stand.put(np.zeros(1, np.int32)), out, 64, 2, grid=(1,), block=256)
    with pytest.raises(KernelFault, match="beside an allocation of 128 bytes"):
        stand.get(out, (32,))


@pytest.mark.parametrize("format_name", tuple(FORMATS))
def test_rows_packed_in_pieces_are_the_whole(format_name: str) -> None:
    columns, rows = 512, 7
    raw = random_rows(format_name, (rows, columns), np.random.default_rng(5), std=0.1)
    layout = matrix_layout(format_name, rows, columns)
    out = np.zeros(layout.size_bytes, np.uint8)
    for first, last in ((0, 3), (3, 4), (4, 7)):
        for offset, part in pieces(format_name, raw[first:last], columns, layout, first_row=first, num_rows=rows):
            out[offset : offset + len(part)] = part
    np.testing.assert_array_equal(out, repack(format_name, raw, columns))


@pytest.mark.parametrize("format_name", PLANE_FORMATS)
def test_packed_weights_take_hardly_more_room(format_name: str) -> None:
    raw_bytes = 64 * FORMATS[format_name].row_bytes(4096)
    assert matrix_layout(format_name, 64, 4096).size_bytes <= 1.04 * raw_bytes
