"""The block formats of GGUF tensors: one table, read by everything that touches weights.

Owns how many elements and bytes a block has and where its scales, minima, low bits and high bits lie.  CPU packing
reads this table, the GPU sources get it as generated #defines.  Does not know files or kernels.

Layouts follow ggml's block structs (ggml-common.h); all numbers are little-endian.

Reading a block.  A field of `bits` bits an element, stored in runs of `run_bytes` bytes, holds in bit group `shift`
(0 = lowest) of byte `j` what belongs to element

    (j // run_bytes * (8 // bits) + shift) * run_bytes + j % run_bytes

The unsigned code of an element is low bits + (high bits << low field's bits).  The weight is then

    scale * sub_scale * (code - zero_point) + minimum                   minimum_sign +1
    scale * sub_scale * (code - zero_point) - minimum * sub_minimum     minimum_sign -1

where sub-scales hold for `group_elements` elements each and are 1 where the format has none.  Where a format has
`code_values`, code c stands for code_values[c].  Where its scale is an "exponent", a byte e stands for 2 ** (e - 128).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

from models.errors import TensorError

FieldName = Literal["values", "scale", "minimum", "sub_scales", "low_bits", "high_bits"]

SubScaleEncoding = Literal["nibble_pairs", "six_bit_pairs", "six_bit", "four_and_two_bits", "int8"]
"""How sub-scales are stored.

nibble_pairs (Q2_K): byte g = sub_scale | sub_minimum << 4.
six_bit_pairs (Q4_K, Q5_K), 12 bytes for 8 groups: for g < 4 the sub-scale is b[g] & 63, the sub-minimum
    b[g + 4] & 63; for g >= 4 they are (b[g + 4] & 15) | b[g - 4] >> 6 << 4 and b[g + 4] >> 4 | b[g] >> 6 << 4.
six_bit (Q3_K), 12 bytes for 16 groups: nibble g // 8 (0 = low) of b[g % 8], above it the two bits
    b[8 + g % 4] >> 2 * (g // 4) & 3, less 32.
four_and_two_bits (IQ4_XS), 6 bytes for 8 groups: nibble g % 2 (0 = low) of b[2 + g // 2], above it the two bits
    b[g // 4] >> 2 * (g % 4) & 3, less 32.
int8 (Q6_K): one signed byte a group.
"""


@dataclass(frozen=True, kw_only=True)
class Field:
    """A part of a block.  `bits` and `run_bytes`: see the module's docstring (for `values`: a whole element)."""

    name: FieldName
    offset_bytes: int
    size_bytes: int
    bits: int
    run_bytes: int
    meaning: str


@dataclass(frozen=True, kw_only=True)
class BlockFormat:
    """How one ggml type stores a run of `block_elements` elements in `block_bytes` bytes."""

    name: str
    ggml_id: int
    block_elements: int
    block_bytes: int
    fields: tuple[Field, ...]
    group_elements: int
    zero_point: int = 0
    minimum_sign: Literal[-1, 0, 1] = 0
    sub_scale_encoding: SubScaleEncoding | None = None
    scale_encoding: Literal["half", "exponent"] = "half"
    code_values: tuple[int, ...] | None = None

    def field(self, name: FieldName) -> Field:
        """The field of that name.  KeyError where the format has none."""
        for field in self.fields:
            if field.name == name:
                return field
        raise KeyError(f"{self.name} has no {name}")

    def has_field(self, name: FieldName) -> bool:
        return any(field.name == name for field in self.fields)

    def row_bytes(self, num_columns: int) -> int:
        """Bytes of a row of that many elements.  TensorError where they do not fill whole blocks."""
        if num_columns % self.block_elements:
            raise TensorError(
                f"A row of {num_columns} elements cannot be stored as {self.name}, whose blocks hold "
                f"{self.block_elements} elements each."
            )
        return num_columns // self.block_elements * self.block_bytes

    @property
    def is_plain(self) -> bool:
        """True where each element is a float of its own (F32, F16, BF16)."""
        return self.block_elements == 1


def _plain(name: str, ggml_id: int, size_bytes: int, meaning: str) -> BlockFormat:
    return BlockFormat(
        name=name,
        ggml_id=ggml_id,
        block_elements=1,
        block_bytes=size_bytes,
        group_elements=1,
        fields=(_bits("values", 0, size_bytes, 8 * size_bytes, size_bytes, meaning),),
    )


def _half(name: Literal["scale", "minimum"], offset_bytes: int, meaning: str) -> Field:
    return _bits(name, offset_bytes, 2, 16, 2, f"float16: {meaning}")


def _bits(name: FieldName, offset_bytes: int, size_bytes: int, bits: int, run_bytes: int, meaning: str) -> Field:
    return Field(
        name=name, offset_bytes=offset_bytes, size_bytes=size_bytes, bits=bits, run_bytes=run_bytes, meaning=meaning
    )


IQ4_VALUES = (-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113)
"""What the codes of IQ4_NL and IQ4_XS stand for: values that follow the normal distribution (ggml's kvalues_iq4nl)."""
E2M1_VALUES = (0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12)
"""Twice what the codes of MXFP4 stand for: a sign, two bits of exponent, one of mantissa (OCP Microscaling Formats)."""

_SCALE = "what a code is multiplied by"
_SUPER_SCALE = "what the sub-scales are multiplied by"
_SUPER_MINIMUM = "what the sub-minima are multiplied by"
_ADDED = "what is added after scaling"

_TABLE = (
    _plain("F32", 0, 4, "IEEE 754 single precision"),
    _plain("F16", 1, 2, "IEEE 754 half precision"),
    BlockFormat(
        name="Q4_0",
        ggml_id=2,
        block_elements=32,
        block_bytes=18,
        group_elements=32,
        zero_point=8,
        fields=(_half("scale", 0, _SCALE), _bits("low_bits", 2, 16, 4, 16, "codes 0 to 15")),
    ),
    BlockFormat(
        name="Q4_1",
        ggml_id=3,
        block_elements=32,
        block_bytes=20,
        group_elements=32,
        minimum_sign=1,
        fields=(
            _half("scale", 0, _SCALE),
            _half("minimum", 2, _ADDED),
            _bits("low_bits", 4, 16, 4, 16, "codes 0 to 15"),
        ),
    ),
    BlockFormat(
        name="Q5_0",
        ggml_id=6,
        block_elements=32,
        block_bytes=22,
        group_elements=32,
        zero_point=16,
        fields=(
            _half("scale", 0, _SCALE),
            _bits("high_bits", 2, 4, 1, 1, "bit 4 of the codes"),
            _bits("low_bits", 6, 16, 4, 16, "bits 0 to 3 of the codes"),
        ),
    ),
    BlockFormat(
        name="Q5_1",
        ggml_id=7,
        block_elements=32,
        block_bytes=24,
        group_elements=32,
        minimum_sign=1,
        fields=(
            _half("scale", 0, _SCALE),
            _half("minimum", 2, _ADDED),
            _bits("high_bits", 4, 4, 1, 1, "bit 4 of the codes"),
            _bits("low_bits", 8, 16, 4, 16, "bits 0 to 3 of the codes"),
        ),
    ),
    BlockFormat(
        name="Q8_0",
        ggml_id=8,
        block_elements=32,
        block_bytes=34,
        group_elements=32,
        fields=(_half("scale", 0, _SCALE), _bits("values", 2, 32, 8, 1, "signed bytes")),
    ),
    BlockFormat(
        name="Q2_K",
        ggml_id=10,
        block_elements=256,
        block_bytes=84,
        group_elements=16,
        minimum_sign=-1,
        sub_scale_encoding="nibble_pairs",
        fields=(
            _bits("sub_scales", 0, 16, 4, 1, "sub-scales and sub-minima of 16 groups"),
            _bits("low_bits", 16, 64, 2, 32, "codes 0 to 3"),
            _half("scale", 80, _SUPER_SCALE),
            _half("minimum", 82, _SUPER_MINIMUM),
        ),
    ),
    BlockFormat(
        name="Q3_K",
        ggml_id=11,
        block_elements=256,
        block_bytes=110,
        group_elements=16,
        zero_point=4,
        sub_scale_encoding="six_bit",
        fields=(
            _bits("high_bits", 0, 32, 1, 32, "bit 2 of the codes"),
            _bits("low_bits", 32, 64, 2, 32, "bits 0 and 1 of the codes"),
            _bits("sub_scales", 96, 12, 6, 12, "sub-scales of 16 groups, -32 to 31"),
            _half("scale", 108, _SUPER_SCALE),
        ),
    ),
    BlockFormat(
        name="Q4_K",
        ggml_id=12,
        block_elements=256,
        block_bytes=144,
        group_elements=32,
        minimum_sign=-1,
        sub_scale_encoding="six_bit_pairs",
        fields=(
            _half("scale", 0, _SUPER_SCALE),
            _half("minimum", 2, _SUPER_MINIMUM),
            _bits("sub_scales", 4, 12, 6, 12, "sub-scales and sub-minima of 8 groups, 0 to 63"),
            _bits("low_bits", 16, 128, 4, 32, "codes 0 to 15"),
        ),
    ),
    BlockFormat(
        name="Q5_K",
        ggml_id=13,
        block_elements=256,
        block_bytes=176,
        group_elements=32,
        minimum_sign=-1,
        sub_scale_encoding="six_bit_pairs",
        fields=(
            _half("scale", 0, _SUPER_SCALE),
            _half("minimum", 2, _SUPER_MINIMUM),
            _bits("sub_scales", 4, 12, 6, 12, "sub-scales and sub-minima of 8 groups, 0 to 63"),
            _bits("high_bits", 16, 32, 1, 32, "bit 4 of the codes"),
            _bits("low_bits", 48, 128, 4, 32, "bits 0 to 3 of the codes"),
        ),
    ),
    BlockFormat(
        name="Q6_K",
        ggml_id=14,
        block_elements=256,
        block_bytes=210,
        group_elements=16,
        zero_point=32,
        sub_scale_encoding="int8",
        fields=(
            _bits("low_bits", 0, 128, 4, 64, "bits 0 to 3 of the codes"),
            _bits("high_bits", 128, 64, 2, 32, "bits 4 and 5 of the codes"),
            _bits("sub_scales", 192, 16, 8, 1, "sub-scales of 16 groups, -128 to 127"),
            _half("scale", 208, _SUPER_SCALE),
        ),
    ),
    BlockFormat(
        name="IQ4_NL",
        ggml_id=20,
        block_elements=32,
        block_bytes=18,
        group_elements=32,
        code_values=IQ4_VALUES,
        fields=(_half("scale", 0, _SCALE), _bits("low_bits", 2, 16, 4, 16, "codes 0 to 15")),
    ),
    BlockFormat(
        name="IQ4_XS",
        ggml_id=23,
        block_elements=256,
        block_bytes=136,
        group_elements=32,
        sub_scale_encoding="four_and_two_bits",
        code_values=IQ4_VALUES,
        fields=(
            _half("scale", 0, _SUPER_SCALE),
            _bits("sub_scales", 2, 6, 6, 6, "sub-scales of 8 groups, -32 to 31"),
            _bits("low_bits", 8, 128, 4, 16, "codes 0 to 15"),
        ),
    ),
    BlockFormat(
        name="MXFP4",
        ggml_id=39,
        block_elements=32,
        block_bytes=17,
        group_elements=32,
        scale_encoding="exponent",
        code_values=E2M1_VALUES,
        fields=(
            _bits("scale", 0, 1, 8, 1, "exponent of two, less 128: what a code's value is multiplied by"),
            _bits("low_bits", 1, 16, 4, 16, "codes 0 to 15"),
        ),
    ),
    _plain("BF16", 30, 2, "the upper half of a single-precision float"),
)

FORMATS: Mapping[str, BlockFormat] = MappingProxyType({block_format.name: block_format for block_format in _TABLE})
"""The formats that Tandem computes with, by name."""

_BY_ID: Mapping[int, BlockFormat] = MappingProxyType({block_format.ggml_id: block_format for block_format in _TABLE})

_OTHER_NAMES: Mapping[int, str] = MappingProxyType(
    {
        9: "Q8_1",
        15: "Q8_K",
        16: "IQ2_XXS",
        17: "IQ2_XS",
        18: "IQ3_XXS",
        19: "IQ1_S",
        21: "IQ3_S",
        22: "IQ2_S",
        24: "I8",
        25: "I16",
        26: "I32",
        27: "I64",
        28: "F64",
        29: "IQ1_M",
        34: "TQ1_0",
        35: "TQ2_0",
        40: "NVFP4",
        41: "Q1_0",
    }
)
"""ggml types that exist but are not in the table: an error can then say which one a file holds."""


def format_of(ggml_id: int) -> BlockFormat:
    """The format with that number in GGUF files.  TensorError, naming the type and what is supported, for any other."""
    block_format = _BY_ID.get(ggml_id)
    if block_format is None:
        name = _OTHER_NAMES.get(ggml_id)
        found = f"type {name} (number {ggml_id})" if name else f"the unknown type number {ggml_id}"
        raise TensorError(f"Expected one of {', '.join(FORMATS)}, found {found}.")
    return block_format
