"""How finely the inputs of products are rounded: the same choice as the user has on a CPU.

Owns the number of int8 terms for every product.  Does not know how a record is laid out (records.cuh).
"""

from __future__ import annotations

from typing import Literal

Precision = Literal["fast", "balanced", "exact"]

UNIT = 32  # columns with one scale


def terms_for(precision: Precision, *, is_coarse: bool = False) -> int:
    """int8 numbers a value.  fast: one; exact: two; balanced: two but for coarse inputs, most of a feed-forward's."""
    return 2 if precision == "exact" or (precision == "balanced" and not is_coarse) else 1


def record_bytes(capacity: int, num_columns: int, terms: int) -> int:
    """Bytes of the records of `capacity` tokens: codes, a scale and two sums a unit."""
    return capacity * (num_columns // UNIT) * (UNIT * terms + 4 + 8)
