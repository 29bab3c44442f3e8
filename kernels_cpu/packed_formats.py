"""How weights lie in memory for the CPU kernels: one table, read by packing, tiles and the memory bill.

Owns the packed layouts.  Does not know files or instructions.

Rows are packed in groups of L (the instruction set's lanes): lane l of every vector belongs to row l.  A group is a
sequence of packed blocks of `columns` columns; a packed block is a header followed by units, all of it read once and
in order.  Sizes below are bytes a row, so a packed block takes L times as much.

Header, in this order, each item [index][lane]:
    scales          one byte for every scale group (byte scales and exponents only)
    minima          one byte for every scale group (byte minima only)
    half scales     float16: one a block of 32, or one for the packed block when scales are bytes; none with exponents
    half minima     the same
    padding         to a whole number of 4 bytes

Unit: 8 steps of 4 columns, `parts` blocks of 32 columns side by side in the bits of one byte.
    high bits       `high_bits` bits a weight, in vectors of [lane][4 bytes]; one vector serves
                    8 / (parts * high_bits) steps.  Byte j of a lane belongs to column j of a step; in it the bits of
                    part p and step s (within the vector's steps) stand at (p * steps + s) * high_bits, except that
                    formats of 2 low bits order them (s * parts + p).
    low bits        8 vectors, one a step: part p of byte j in bits [p * low_bits, (p + 1) * low_bits)

A weight is (q - zero_point) * scale + minimum with q = low | high << low_bits, or, where there are code values,
q = code_values[low].  Scale of a byte-scaled group: half scale * byte; minimum: -(half minimum * byte); an exponent e
is a scale of 2 ** (e - 128).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from models.formats import E2M1_VALUES, IQ4_VALUES

BLOCK = 32  # columns that share one activation scale; also the columns of one part of a unit
STEPS = 8  # of 4 columns in a unit


@dataclass(frozen=True, kw_only=True)
class PackedFormat:
    """group: columns that share a weight scale (32 or 16).  byte_scales: scales are bytes times a half."""

    name: str
    columns: int
    low_bits: int
    high_bits: int = 0
    zero_point: int = 0
    group: int = 32
    byte_scales: bool = False
    signed_scales: bool = False
    has_minima: bool = False
    nibble_scales: bool = False  # one byte holds a 4-bit scale (low) and a 4-bit minimum (high)
    exponent_scales: bool = False  # one byte a block of 32
    code_values: tuple[int, ...] | None = None  # unsigned: what the 16 codes of 4 bits stand for, plus the zero point

    @property
    def parts(self) -> int:
        """Blocks of 32 columns that share the bytes of a unit."""
        return 8 // self.low_bits

    @property
    def units(self) -> int:
        return self.columns // (BLOCK * self.parts)

    @property
    def num_groups(self) -> int:
        """Scale groups of a packed block."""
        return self.columns // self.group

    @property
    def minima_at(self) -> int:
        """Where the byte minima begin (bytes a row)."""
        return self.num_groups

    @property
    def halves_at(self) -> int:
        """Where the half scales begin."""
        if not self.byte_scales:
            return self.num_groups if self.exponent_scales else 0
        return self.num_groups * (2 if self.has_minima and not self.nibble_scales else 1)

    @property
    def num_halves(self) -> int:
        if self.exponent_scales:
            return 0
        return 1 if self.byte_scales else self.columns // BLOCK

    @property
    def half_minima_at(self) -> int:
        return self.halves_at + 2 * self.num_halves

    @property
    def header_bytes(self) -> int:
        end = self.half_minima_at + (2 * self.num_halves if self.has_minima else 0)
        return -(-end // 4) * 4

    @property
    def steps_per_high_vector(self) -> int:
        return 8 // (self.parts * self.high_bits)

    @property
    def high_vectors(self) -> int:
        """Vectors of high bits in a unit."""
        return STEPS // self.steps_per_high_vector if self.high_bits else 0

    @property
    def unit_bytes(self) -> int:
        return 4 * (self.high_vectors + STEPS)

    @property
    def block_bytes(self) -> int:
        """Bytes a row of one packed block."""
        return self.header_bytes + self.units * self.unit_bytes

    def high_position(self, part: int, step: int) -> int:
        """The bit of a byte of high bits where `part` of the vector's step number `step` begins."""
        order = step * self.parts + part if self.low_bits == 2 else part * self.steps_per_high_vector + step
        return order * self.high_bits

    @property
    def bits(self) -> int:
        """Of the unsigned numbers that are multiplied."""
        return self.low_bits + self.high_bits if self.code_values is None else max(self.code_values).bit_length()

    def group_bytes(self, num_columns: int, lanes: int) -> int:
        """Bytes of one group of `lanes` rows."""
        return -(-num_columns // self.columns) * self.block_bytes * lanes

    def matrix_bytes(self, num_rows: int, num_columns: int, lanes: int) -> int:
        """Bytes of a packed matrix."""
        return -(-num_rows // lanes) * self.group_bytes(num_columns, lanes)


def _raised(values: tuple[int, ...], zero_point: int) -> tuple[int, ...]:
    return tuple(value + zero_point for value in values)


PACKED_FORMATS: Mapping[str, PackedFormat] = {
    form.name: form
    for form in (
        PackedFormat(name="Q4_0", columns=64, low_bits=4, zero_point=8),
        PackedFormat(name="Q4_1", columns=64, low_bits=4, has_minima=True),
        PackedFormat(name="Q5_0", columns=64, low_bits=4, high_bits=1, zero_point=16),
        PackedFormat(name="Q5_1", columns=64, low_bits=4, high_bits=1, has_minima=True),
        PackedFormat(name="Q8_0", columns=64, low_bits=8, zero_point=128),
        PackedFormat(name="IQ4_NL", columns=64, low_bits=4, zero_point=128, code_values=_raised(IQ4_VALUES, 128)),
        PackedFormat(
            name="IQ4_XS",
            columns=256,
            low_bits=4,
            zero_point=128,
            byte_scales=True,
            signed_scales=True,
            code_values=_raised(IQ4_VALUES, 128),
        ),
        PackedFormat(
            name="MXFP4",
            columns=64,
            low_bits=4,
            zero_point=16,
            exponent_scales=True,
            code_values=_raised(E2M1_VALUES, 16),
        ),
        PackedFormat(
            name="Q2_K", columns=256, low_bits=2, group=16, byte_scales=True, has_minima=True, nibble_scales=True
        ),
        PackedFormat(
            name="Q3_K",
            columns=256,
            low_bits=2,
            high_bits=1,
            zero_point=4,
            group=16,
            byte_scales=True,
            signed_scales=True,
        ),
        PackedFormat(name="Q4_K", columns=256, low_bits=4, byte_scales=True, has_minima=True),
        PackedFormat(name="Q5_K", columns=256, low_bits=4, high_bits=1, byte_scales=True, has_minima=True),
        PackedFormat(
            name="Q6_K",
            columns=256,
            low_bits=4,
            high_bits=2,
            zero_point=32,
            group=16,
            byte_scales=True,
            signed_scales=True,
        ),
    )
}

FLOAT_FORMATS: Mapping[str, int] = {"F32": 4, "F16": 2, "BF16": 2}


def padded_columns(num_columns: int) -> int:
    """Columns for which activation records exist: whole pairs of blocks, as the formats of 64 columns need."""
    return -(-num_columns // (2 * BLOCK)) * 2 * BLOCK


def packed_bytes(format_name: str, num_rows: int, num_columns: int, lanes: int) -> int:
    """Bytes that a matrix takes once packed."""
    if format_name in FLOAT_FORMATS:
        return -(-num_rows // lanes) * lanes * num_columns * FLOAT_FORMATS[format_name]
    return PACKED_FORMATS[format_name].matrix_bytes(num_rows, num_columns, lanes)
