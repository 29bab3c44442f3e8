"""The table of block formats against the `gguf` package: sizes, and every bit of every layout."""

from __future__ import annotations

from itertools import pairwise

import gguf
import numpy as np
import pytest
from gguf import quants
from tiny_models import random_rows

from models.errors import TensorError
from models.formats import FORMATS, BlockFormat, FieldName, format_of

NAMES = ["F32", "F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K"]
NAMES += ["IQ4_NL", "IQ4_XS", "MXFP4"]
QUANTIZED = [name for name in NAMES if not FORMATS[name].is_plain]


def test_the_table_holds_the_formats_that_are_computed_with() -> None:
    assert sorted(FORMATS) == sorted(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_numbers_and_sizes_are_those_of_ggml(name: str) -> None:
    block_format, kind = FORMATS[name], gguf.GGMLQuantizationType[name]
    assert block_format.name == name
    assert block_format.ggml_id == kind.value
    assert (block_format.block_elements, block_format.block_bytes) == gguf.GGML_QUANT_SIZES[kind]
    assert format_of(kind.value) is block_format


@pytest.mark.parametrize("name", NAMES)
def test_fields_fill_the_block_without_gap_or_overlap(name: str) -> None:
    block_format = FORMATS[name]
    fields = sorted(block_format.fields, key=lambda field: field.offset_bytes)
    assert fields[0].offset_bytes == 0
    assert all(before.offset_bytes + before.size_bytes == after.offset_bytes for before, after in pairwise(fields))
    assert fields[-1].offset_bytes + fields[-1].size_bytes == block_format.block_bytes
    for field in block_format.fields:
        if field.name in ("values", "low_bits", "high_bits"):
            assert field.size_bytes * 8 == field.bits * block_format.block_elements
        assert block_format.field(field.name) is field
        assert block_format.has_field(field.name)


def test_a_field_that_a_format_lacks_is_a_key_error() -> None:
    assert not FORMATS["Q4_0"].has_field("minimum")
    with pytest.raises(KeyError, match="Q4_0 has no minimum"):
        FORMATS["Q4_0"].field("minimum")


@pytest.mark.parametrize("name", QUANTIZED)
def test_weights_read_by_the_table_equal_the_reference(name: str) -> None:
    """Any bits in codes and sub-scales: float64 by the table's rules, float32 by gguf.quants."""
    block_format = FORMATS[name]
    rows = random_rows(name, (64, 512), np.random.default_rng(7), std=1.0)
    expected = quants.dequantize(rows, gguf.GGMLQuantizationType[name])
    blocks = rows.reshape(-1, block_format.block_bytes)
    weights = dequantized(block_format, blocks).reshape(64, 512)
    assert np.abs(weights - expected).max() <= 1e-6 * np.abs(expected).max()


@pytest.mark.parametrize("name", [name for name in NAMES if name not in ("F32", "F16")])
def test_rows_are_as_long_as_the_reference_makes_them(name: str) -> None:
    kind = gguf.GGMLQuantizationType[name]
    assert FORMATS[name].row_bytes(1024) == quants.quant_shape_to_byte_shape((1024,), kind)[0]
    assert FORMATS[name].row_bytes(0) == 0


def test_a_row_that_does_not_fill_its_blocks_is_refused() -> None:
    with pytest.raises(TensorError, match=r"A row of 100 elements cannot be stored as Q4_0, whose blocks hold 32"):
        FORMATS["Q4_0"].row_bytes(100)


def test_a_type_that_is_not_in_the_table_is_named() -> None:
    with pytest.raises(TensorError, match=r"Expected one of F32, F16, Q4_0.*BF16, found type IQ2_XXS \(number 16\)\."):
        format_of(16)
    with pytest.raises(TensorError, match=r"found the unknown type number 4\."):
        format_of(4)


@pytest.mark.parametrize("kind", [kind for kind in gguf.GGMLQuantizationType if kind.name not in NAMES])
def test_every_other_type_of_ggml_is_known_by_name(kind: gguf.GGMLQuantizationType) -> None:
    with pytest.raises(TensorError, match=rf"found type {kind.name} \(number {kind.value}\)"):
        format_of(kind.value)


def dequantized(block_format: BlockFormat, blocks: np.ndarray) -> np.ndarray:
    """float64 [blocks, block_elements], by nothing but the table and the rules in its module's docstring."""
    elements = np.arange(block_format.block_elements)
    if block_format.has_field("values"):
        codes = field_bytes(block_format, "values", blocks).view(np.int8).astype(np.float64)
    else:
        codes = codes_of(block_format, "low_bits", blocks).astype(np.float64)
    if block_format.has_field("high_bits"):
        low_bits = block_format.field("low_bits").bits
        codes += codes_of(block_format, "high_bits", blocks).astype(np.float64) * (1 << low_bits)
    if block_format.code_values is not None:
        codes = np.array(block_format.code_values)[codes.astype(np.int64)].astype(np.float64)
    group = elements // block_format.group_elements
    sub_scales, sub_minima = sub_scales_of(block_format, blocks)
    scale = scales_of(block_format, blocks) * sub_scales[:, group]
    weights = scale * (codes - block_format.zero_point)
    if block_format.minimum_sign:
        weights += block_format.minimum_sign * half(block_format, "minimum", blocks) * sub_minima[:, group]
    return weights


def field_bytes(block_format: BlockFormat, name: FieldName, blocks: np.ndarray) -> np.ndarray:
    field = block_format.field(name)
    return np.ascontiguousarray(blocks[:, field.offset_bytes : field.offset_bytes + field.size_bytes])


def half(block_format: BlockFormat, name: FieldName, blocks: np.ndarray) -> np.ndarray:
    return field_bytes(block_format, name, blocks).view("<f2").astype(np.float64)


def scales_of(block_format: BlockFormat, blocks: np.ndarray) -> np.ndarray:
    if block_format.scale_encoding == "half":
        return half(block_format, "scale", blocks)
    return 2.0 ** (field_bytes(block_format, "scale", blocks).astype(np.float64) - 128)


def codes_of(block_format: BlockFormat, name: FieldName, blocks: np.ndarray) -> np.ndarray:
    field = block_format.field(name)
    data = field_bytes(block_format, name, blocks)
    out = np.full((len(blocks), block_format.block_elements), 255, np.uint8)
    per_byte = 8 // field.bits
    for byte_idx in range(field.size_bytes):
        for shift in range(per_byte):
            run = byte_idx // field.run_bytes * per_byte + shift
            element = run * field.run_bytes + byte_idx % field.run_bytes
            out[:, element] = data[:, byte_idx] >> shift * field.bits & (1 << field.bits) - 1
    return out


def sub_scales_of(block_format: BlockFormat, blocks: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    num_groups = block_format.block_elements // block_format.group_elements
    if block_format.sub_scale_encoding is None:
        ones = np.ones((len(blocks), num_groups))
        return ones, ones
    b = field_bytes(block_format, "sub_scales", blocks).astype(np.int64)
    scales, minima = [], []
    for g in range(num_groups):
        match block_format.sub_scale_encoding:
            case "nibble_pairs":
                scale, minimum = b[:, g] & 15, b[:, g] >> 4
            case "six_bit_pairs" if g < 4:
                scale, minimum = b[:, g] & 63, b[:, g + 4] & 63
            case "six_bit_pairs":
                scale = b[:, g + 4] & 15 | b[:, g - 4] >> 6 << 4
                minimum = b[:, g + 4] >> 4 | b[:, g] >> 6 << 4
            case "six_bit":
                low, high = b[:, g % 8] >> 4 * (g // 8) & 15, b[:, 8 + g % 4] >> 2 * (g // 4) & 3
                scale, minimum = (low | high << 4) - 32, b[:, 0] * 0
            case "four_and_two_bits":
                low, high = b[:, 2 + g // 2] >> 4 * (g % 2) & 15, b[:, g // 4] >> 2 * (g % 4) & 3
                scale, minimum = (low | high << 4) - 32, b[:, 0] * 0
            case _:
                scale, minimum = b[:, g].astype(np.uint8).view(np.int8), b[:, 0] * 0
        scales.append(scale)
        minima.append(minimum)
    return np.stack(scales, axis=1).astype(np.float64), np.stack(minima, axis=1).astype(np.float64)
