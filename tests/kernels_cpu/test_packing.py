"""Packed weights: what was packed, read back through the embedding's kernel, is what `gguf` reads in the file."""

from __future__ import annotations

import numpy as np
import pytest
from gguf import GGMLQuantizationType, quants
from kernels import LEVELS, embed, pack, same_bits
from tiny_models import random_rows

from kernels_cpu.isa import choose
from kernels_cpu.packed_formats import FLOAT_FORMATS, PACKED_FORMATS, packed_bytes
from models.formats import FORMATS

QUANTISED = tuple(PACKED_FORMATS)


def columns_of(format_name: str) -> tuple[int, ...]:
    """Widths of one block, of an odd and of an even number of them."""
    block = FORMATS[format_name].block_elements
    return (block, 2 * block, 7 * block) if block == 32 else (block, 3 * block)


def dequantised(format_name: str, raw: np.ndarray) -> np.ndarray:
    with np.errstate(invalid="ignore", over="ignore"):
        return quants.dequantize(raw, GGMLQuantizationType(FORMATS[format_name].ggml_id))


@pytest.mark.parametrize("format_name", QUANTISED)
@pytest.mark.parametrize("level", LEVELS)
def test_rows_come_back_as_they_were(level: str, format_name: str) -> None:
    rng = np.random.default_rng(1)
    lanes = choose(level).lanes
    for num_columns in columns_of(format_name):
        for num_rows in (1, lanes, 2 * lanes + 3):
            raw = random_rows(format_name, (num_rows, num_columns), rng, std=0.05)
            packed = pack(level, format_name, num_columns, raw)
            rows = embed(packed, np.arange(num_rows))
            np.testing.assert_array_equal(rows, dequantised(format_name, raw))


@pytest.mark.parametrize("format_name", QUANTISED)
@pytest.mark.parametrize("level", LEVELS)
def test_any_bytes_at_all_come_back(level: str, format_name: str) -> None:
    """Blocks of a damaged file: scales that are subnormal, infinite or not a number, and every code."""
    rng = np.random.default_rng(2)
    num_rows, num_columns = 37, FORMATS[format_name].block_elements * 5
    raw = rng.integers(0, 256, (num_rows, FORMATS[format_name].row_bytes(num_columns)), np.uint8)
    at, is_half = FORMATS[format_name].field("scale").offset_bytes, FORMATS[format_name].scale_encoding == "half"
    scales = np.array([0x0001, 0x83FF, 0x8000, 0x7C00, 0x7E01], np.uint16)
    if is_half:
        raw[: len(scales), at : at + 2] = scales[:, None].view(np.uint8)
    else:
        raw.reshape(-1, FORMATS[format_name].block_bytes)[:, at] = np.arange(len(raw) * 5) * 7 % 256
    packed = pack(level, format_name, num_columns, raw, groups_per_chunk=3)
    rows = embed(packed, np.arange(num_rows))
    np.testing.assert_array_equal(rows, dequantised(format_name, raw))
    assert np.isnan(rows[4]).any() or not is_half


@pytest.mark.parametrize("format_name", tuple(FLOAT_FORMATS))
@pytest.mark.parametrize("level", LEVELS)
def test_floats_come_back_with_every_bit(level: str, format_name: str) -> None:
    """All 65536 halves, among them subnormals, infinities and NaNs; for F32, those and neighbours of each."""
    codes = np.arange(65536, dtype=np.uint16)
    if format_name == "F32":
        raw = (codes.astype(np.uint32) << 16 | codes[::-1]).view(np.uint8)
    else:
        raw = codes.view(np.uint8)
    num_columns = 96
    num_rows = len(raw) // (num_columns * FLOAT_FORMATS[format_name])
    raw = raw[: num_rows * num_columns * FLOAT_FORMATS[format_name]].reshape(num_rows, -1)
    packed = pack(level, format_name, num_columns, raw, groups_per_chunk=5)
    rows, expected = embed(packed, np.arange(num_rows)), dequantised(format_name, raw)
    numbers = ~np.isnan(expected)
    assert same_bits(rows[numbers], expected[numbers])
    assert np.isnan(rows[~numbers]).all()


@pytest.mark.parametrize("format_name", ["Q4_K", "Q5_0", "F16"])
@pytest.mark.parametrize("level", LEVELS)
def test_gate_and_up_stand_side_by_side(level: str, format_name: str) -> None:
    rng = np.random.default_rng(3)
    num_rows, num_columns = 21, 256
    gate, up = (random_rows(format_name, (num_rows, num_columns), rng, std=0.1) for _ in range(2))
    both = pack(level, format_name, num_columns, gate, up)
    alone = [pack(level, format_name, num_columns, raw) for raw in (gate, up)]
    groups = both.memory.bytes.reshape(-1, 2, both.group_bytes)
    for side, matrix in enumerate(alone):
        assert np.array_equal(groups[:, side].reshape(-1), matrix.memory.bytes)


@pytest.mark.parametrize("format_name", [*QUANTISED, *FLOAT_FORMATS])
@pytest.mark.parametrize("level", LEVELS)
def test_an_embedding_is_scaled_and_gathered_in_any_order(level: str, format_name: str) -> None:
    rng = np.random.default_rng(4)
    num_columns = FORMATS[format_name].block_elements * 3
    raw = random_rows(format_name, (50, num_columns), rng, std=1.0)
    ids = np.array([49, 0, 0, 17, 48, 16, 31, 32])
    rows = embed(pack(level, format_name, num_columns, raw), ids, scale=np.sqrt(640.0))
    np.testing.assert_array_equal(rows, dequantised(format_name, raw)[ids] * np.float32(np.sqrt(640.0)))


@pytest.mark.parametrize("lanes", [4, 8, 16])
def test_how_much_a_packed_block_takes(lanes: int) -> None:
    """Bytes a row and super-block, as the design has them: at most 3 % more than in the file, but for Q3_K."""
    sizes = {name: form.block_bytes for name, form in PACKED_FORMATS.items()}
    assert sizes == {
        "Q4_0": 36, "Q4_1": 40, "Q5_0": 44, "Q5_1": 48, "Q8_0": 68,
        "IQ4_NL": 36, "IQ4_XS": 140, "MXFP4": 36, "Q2_K": 84, "Q3_K": 116, "Q4_K": 148, "Q5_K": 180, "Q6_K": 212,
    }  # fmt: skip
    assert packed_bytes("Q4_K", 2 * lanes + 1, 512, lanes) == 3 * lanes * 2 * 148
    assert packed_bytes("Q8_0", 1, 96, lanes) == lanes * 2 * 68
    assert packed_bytes("BF16", lanes + 1, 7, lanes) == 2 * lanes * 7 * 2
