"""Activation records: how a token's values are rounded to bytes before they meet packed weights.

Owns the record's layout and the choice of precision for every product.  Does not know weights.

A record holds 32 values of one token: `terms` times 32 int8, then float32 unit, float32 sum, int32 negated sums of
the first and of the last 16 integers.  A value is q * unit with q = high (one term) or 256 * high + low (two terms);
sum = unit * (sum of q).  Records lie [block of 32 columns][token], so that all tokens of a tile are at constant
distances from one pointer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from kernels_cpu.packed_formats import BLOCK

Precision = Literal["fast", "balanced", "exact"]
PRECISIONS: tuple[Precision, ...] = ("fast", "balanced", "exact")


@dataclass(frozen=True, kw_only=True)
class Record:
    """terms: int8 numbers a value (two keep about 15 bits of it)."""

    terms: int

    @property
    def unit_at(self) -> int:
        return BLOCK * self.terms

    @property
    def sum_at(self) -> int:
        return self.unit_at + 4

    @property
    def negated_at(self) -> int:
        return self.unit_at + 8

    @property
    def size_bytes(self) -> int:
        return self.unit_at + 16


RECORDS = {terms: Record(terms=terms) for terms in (1, 2)}


def terms_for(precision: Precision, *, is_coarse: bool = False) -> int:
    """fast: one term; exact: two; balanced: two but for coarse inputs (models/lowering.py says which).

    Decode reads the same bytes whatever the terms; whatever computes many rows multiplies twice as often where there
    are two.
    """
    return 2 if precision == "exact" or (precision == "balanced" and not is_coarse) else 1
