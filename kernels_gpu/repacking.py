"""From a GGUF file's blocks to the planes that the card reads.

Owns the rearranging, with NumPy, a run of rows at a time; nothing is rounded.  layout.py says where everything goes.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from kernels_gpu.layout import PLANE_FORMATS, UNIT, MatrixLayout, PlaneFormat, is_plain, matrix_layout, plain_row_bytes
from models.formats import FORMATS, BlockFormat, Field

Bytes = np.ndarray
"""uint8 arrays; shapes below in [brackets]."""


def repack(format_name: str, raw: Bytes, num_columns: int) -> Bytes:
    """The planes of a matrix.  raw: uint8 [rows, row_bytes], as the file holds them."""
    layout = matrix_layout(format_name, len(raw), num_columns)
    out = np.zeros(layout.size_bytes, np.uint8)
    for offset, piece in pieces(format_name, raw, num_columns, layout, first_row=0, num_rows=len(raw)):
        out[offset : offset + len(piece)] = piece
    return out


def pieces(
    format_name: str, raw: Bytes, num_columns: int, layout: MatrixLayout, *, first_row: int, num_rows: int
) -> Iterator[tuple[int, Bytes]]:
    """What some rows, beginning with first_row of num_rows, contribute: (offset in the matrix, bytes)."""
    if is_plain(format_name):
        row_bytes = plain_row_bytes(format_name, num_columns)
        rows = np.zeros((len(raw), row_bytes), np.uint8)
        rows[:, : raw.shape[1]] = raw
        yield first_row * row_bytes, rows.reshape(-1)
        return
    planes, block_format = PLANE_FORMATS[format_name], FORMATS[format_name]
    units = num_columns // UNIT
    blocks = raw.reshape(len(raw), -1, block_format.block_bytes)
    for idx, plane in enumerate(_low_planes(planes, block_format, blocks)):
        at = idx * (layout.planes["low"].size_bytes // planes.num_low_planes)
        yield at + first_row * units * planes.low_bytes, plane
    if planes.high_bits:
        codes = field_codes(blocks, block_format.field("high_bits"))
        at = layout.planes["high"].offset_bytes
        yield at + first_row * units * planes.high_bytes, _pack(codes, planes.high_bits)
    if planes.sub_kind:
        sub = _sub_scales(planes, block_format, blocks)
        yield layout.planes["sub"].offset_bytes + first_row * units * planes.sub_bytes, sub.reshape(-1)
    row_bytes = units // planes.units_per_scale * planes.scale_bytes
    yield layout.planes["scale"].offset_bytes + first_row * row_bytes, _scales(block_format, blocks)


def field_codes(blocks: Bytes, field: Field) -> Bytes:
    """The unsigned codes [units, 32] that a field holds; the formula is in models.formats."""
    values = blocks[..., field.offset_bytes : field.offset_bytes + field.size_bytes]
    per_byte = 8 // field.bits
    runs = values.reshape(-1, field.size_bytes // field.run_bytes, 1, field.run_bytes)
    shifts = (np.arange(per_byte, dtype=np.uint8) * field.bits)[:, None]
    mask = np.uint8((1 << field.bits) - 1)
    return ((runs >> shifts) & mask).reshape(-1, UNIT)


def _low_planes(planes: PlaneFormat, block_format: BlockFormat, blocks: Bytes) -> list[Bytes]:
    if planes.low_bits == 8:
        codes = field_codes(blocks, block_format.field("values"))
        return [np.ascontiguousarray(codes[:, half : half + 16]).reshape(-1) for half in (0, 16)]
    field = block_format.field("low_bits")
    if planes.low_bits == 4:
        return [_regrouped_nibbles(blocks, field)]
    return [_pack(field_codes(blocks, field), planes.low_bits)]


def _regrouped_nibbles(blocks: Bytes, field: Field) -> Bytes:
    """4-bit codes: runs of 16, 32 or 64 bytes, whose low nibbles come before the high ones, as units of 16 bytes."""
    values = blocks[..., field.offset_bytes : field.offset_bytes + field.size_bytes]
    if field.run_bytes == UNIT // 2:
        return np.ascontiguousarray(values).reshape(-1)
    halves = values.reshape(-1, field.run_bytes // UNIT, 2, UNIT // 2)  # runs, units of each half, halves of a unit
    first, last = halves[:, :, 0], halves[:, :, 1]
    low = (first & np.uint8(15)) | (last << np.uint8(4))
    high = (first >> np.uint8(4)) | (last & np.uint8(0xF0))
    return np.stack([low, high], axis=1).reshape(-1)


def _pack(codes: Bytes, bits: int) -> Bytes:
    """Codes [units, 32] of 4, 2 or 1 bits as the planes hold them."""
    per_byte = 8 // bits
    # 1 bit: bit i of byte k is element 4 i + k; wider: bits i of byte j are element i * (32 / per_byte) + j. The same.
    spread = codes.reshape(-1, per_byte, UNIT // per_byte)
    packed = np.zeros((len(spread), UNIT // per_byte), np.uint8)
    for idx in range(per_byte):
        packed |= spread[:, idx] << np.uint8(idx * bits)
    return packed.reshape(-1)


def _sub_scales(planes: PlaneFormat, block_format: BlockFormat, blocks: Bytes) -> Bytes:
    """Two bytes a unit: scale and minimum, or what belongs to its first and its last 16 columns; or one byte."""
    field = block_format.field("sub_scales")
    stored = blocks[..., field.offset_bytes : field.offset_bytes + field.size_bytes]
    match block_format.sub_scale_encoding:
        case "six_bit_pairs":
            first, second, third = stored[..., 0:4], stored[..., 4:8], stored[..., 8:12]
            scales = np.concatenate([first & 63, (third & 15) | (first >> 6 << 4)], axis=-1)
            minima = np.concatenate([second & 63, (third >> 4) | (second >> 6 << 4)], axis=-1)
            return np.stack([scales, minima], axis=-1)
        case "six_bit":
            groups = np.arange(16)
            low = stored[..., groups % 8] >> (groups // 8 * 4).astype(np.uint8) & np.uint8(15)
            high = stored[..., 8 + groups % 4] >> (groups // 4 * 2).astype(np.uint8) & np.uint8(3)
            return (low | high << np.uint8(4)) - np.uint8(32)
        case "four_and_two_bits":
            groups = np.arange(8)
            low = stored[..., 2 + groups // 2] >> (groups % 2 * 4).astype(np.uint8) & np.uint8(15)
            high = stored[..., groups // 4] >> (groups % 4 * 2).astype(np.uint8) & np.uint8(3)
            return (low | high << np.uint8(4)) - np.uint8(32)
        case _:
            assert planes.sub_kind in (2, 3), "a new encoding of sub-scales"
            return np.ascontiguousarray(stored)


def _scales(block_format: BlockFormat, blocks: Bytes) -> Bytes:
    names = ("scale", "minimum") if block_format.minimum_sign else ("scale",)
    fields = [block_format.field(name) for name in names]
    parts = [blocks[..., field.offset_bytes : field.offset_bytes + field.size_bytes] for field in fields]
    return np.concatenate(parts, axis=-1).reshape(-1)
