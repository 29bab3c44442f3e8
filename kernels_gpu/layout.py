"""How a matrix lies in the card's memory: planes, each of which a warp reads in whole, aligned pieces.

Owns the planes of every format, derived from the table in models.formats, and the #defines that tell the .cu sources.
repacking.py fills the planes.  Does not know kernels.

A row of a quantised matrix is cut into units of 32 columns, what one lane multiplies at a time.  Planes lie one after
the other, each at a multiple of 256 bytes:

    low     [rows][units][16 or 8 bytes]                       the low bits of a unit's codes (8 bits: two such planes)
    high    [rows][units][4 or 8 bytes]                        the high bits of a unit's codes
    sub     [rows][units][1 or 2 bytes]                        sub-scales (and sub-minima) of its groups
    scale   [rows][units / units_per_scale][1, 2 or 4 bytes]   an exponent, or a float16 scale (and minimum)

Codes in a plane of 4 bits: byte j of 16 holds element j (low nibble) and 16 + j.  2 bits: byte j of 8 holds elements
j, 8 + j, 16 + j, 24 + j.  1 bit: bit i of byte k of 4 belongs to element 4 * i + k.  8 bits: element j of its half.
So four codes that meet four activations in one dp4a come out of one word by a shift and a mask; codes that stand for
values of a table by byte permutations beside.

Plain matrices (F32, F16, BF16) stay rows of their own numbers, each row a multiple of 16 bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from models.formats import FORMATS, BlockFormat

UNIT = 32  # columns
PLANE_ALIGNMENT = 256
_SUB_KINDS = {None: 0, "six_bit_pairs": 1, "nibble_pairs": 2, "six_bit": 3, "int8": 3, "four_and_two_bits": 4}
_SUB_BYTES = (0, 2, 2, 2, 1)  # by kind
_PLAIN_KINDS = {"F32": 0, "F16": 1, "BF16": 2}


@dataclass(frozen=True, kw_only=True)
class PlaneFormat:
    """A format as planes.

    sub_kind: 0 none, 1 a scale and a minimum, 2 two of both in nibbles, 3 two signed scales, 4 one signed scale.
    has_exponents: a byte is the scale (see models.formats).  code_values: what 16 codes stand for, if not themselves.
    """

    name: str
    low_bits: int
    high_bits: int
    group_columns: int
    zero_point: int
    minimum_sign: int
    sub_kind: int
    units_per_scale: int
    has_exponents: bool
    code_values: tuple[int, ...] | None

    @property
    def low_bytes(self) -> int:
        """Of one unit in one plane of low bits."""
        return min(16, self.low_bits * UNIT // 8)

    @property
    def num_low_planes(self) -> int:
        return max(1, self.low_bits // 4)

    @property
    def high_bytes(self) -> int:
        return self.high_bits * UNIT // 8

    @property
    def sub_bytes(self) -> int:
        return _SUB_BYTES[self.sub_kind]

    @property
    def scale_bytes(self) -> int:
        return 1 if self.has_exponents else 4 if self.minimum_sign else 2

    def defines(self) -> tuple[str, ...]:
        """What the sources are told."""
        return (
            f"LOW_BITS {self.low_bits}",
            f"HIGH_BITS {self.high_bits}",
            f"GROUP_COLUMNS {self.group_columns}",
            f"ZERO_POINT {self.zero_point}",
            f"MINIMUM_SIGN {self.minimum_sign}",
            f"SUB_KIND {self.sub_kind}",
            f"UNITS_PER_SCALE {self.units_per_scale}",
            f"HAS_EXPONENTS {int(self.has_exponents)}",
            f"HAS_CODE_VALUES {int(self.code_values is not None)}",
            *([] if self.code_values is None else [f"CODE_VALUES {_words(self.code_values)}"]),
        )


@dataclass(frozen=True, kw_only=True)
class Plane:
    """A plane of one matrix: where it begins, and its bytes."""

    offset_bytes: int
    size_bytes: int


@dataclass(frozen=True, kw_only=True)
class MatrixLayout:
    """The planes of one matrix, by name ("low", "high", "sub", "scale"), and all bytes together."""

    planes: Mapping[str, Plane]
    size_bytes: int


def _words(values: tuple[int, ...]) -> str:
    """16 signed bytes as four words of C, the first value lowest."""
    return ", ".join(f"0x{word:08x}u" for word in np.array(values, np.int8).view("<u4"))


def _plane_format(block_format: BlockFormat) -> PlaneFormat:
    """A format's planes.  A group of 16 or 32 columns shares a sub-scale."""
    is_bytes = block_format.has_field("values")
    low = block_format.field("values" if is_bytes else "low_bits")
    return PlaneFormat(
        name=block_format.name,
        low_bits=low.bits,
        high_bits=block_format.field("high_bits").bits if block_format.has_field("high_bits") else 0,
        group_columns=block_format.group_elements,
        zero_point=block_format.zero_point,
        minimum_sign=block_format.minimum_sign,
        sub_kind=_SUB_KINDS[block_format.sub_scale_encoding],
        units_per_scale=block_format.block_elements // UNIT,
        has_exponents=block_format.scale_encoding == "exponent",
        code_values=block_format.code_values,
    )


PLANE_FORMATS: Mapping[str, PlaneFormat] = MappingProxyType(
    {name: _plane_format(block_format) for name, block_format in FORMATS.items() if not block_format.is_plain}
)
"""The quantised formats, by name."""


def is_plain(format_name: str) -> bool:
    return FORMATS[format_name].is_plain


def aligned(size_bytes: int) -> int:
    """Up to the next beginning of a plane."""
    return -(-size_bytes // PLANE_ALIGNMENT) * PLANE_ALIGNMENT


def plain_row_bytes(format_name: str, num_columns: int) -> int:
    """Bytes of a row of a plain matrix: whole pieces of 16."""
    return -(-FORMATS[format_name].row_bytes(num_columns) // 16) * 16


def matrix_layout(format_name: str, num_rows: int, num_columns: int) -> MatrixLayout:
    """Where the planes of a matrix lie."""
    if is_plain(format_name):
        sizes = {"low": num_rows * plain_row_bytes(format_name, num_columns)}
    else:
        planes = PLANE_FORMATS[format_name]
        units = num_rows * (num_columns // UNIT)
        sizes = {
            "low": planes.num_low_planes * units * planes.low_bytes,
            "high": units * planes.high_bytes,
            "sub": units * planes.sub_bytes,
            "scale": units // planes.units_per_scale * planes.scale_bytes,
        }
    found: dict[str, Plane] = {}
    offset = 0
    for name, size in sizes.items():
        found[name] = Plane(offset_bytes=offset, size_bytes=size)
        offset += aligned(size)
    return MatrixLayout(planes=MappingProxyType(found), size_bytes=offset)


def defines_for(format_name: str, terms: int) -> tuple[str, ...]:
    """The lines of layout.h for the products of one format.  terms: int8 numbers an activation."""
    if is_plain(format_name):
        return (f"PLAIN_KIND {_PLAIN_KINDS[format_name]}",)
    return (*PLANE_FORMATS[format_name].defines(), f"TERMS {terms}")
