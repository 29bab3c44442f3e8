"""The matrices of a bound segment: how each lies on the card, and how many warps share a row.

Owns these shapes.  Does not know which matrices a program has (plan.py) or how they are multiplied.
"""

from __future__ import annotations

from dataclasses import dataclass

from kernels_gpu.layout import UNIT, MatrixLayout, is_plain, matrix_layout
from models.program import Buffer


@dataclass(frozen=True, kw_only=True)
class Matrix:
    """A matrix on the card."""

    name: str
    format_name: str
    num_rows: int
    num_columns: int

    @property
    def layout(self) -> MatrixLayout:
        return matrix_layout(self.format_name, self.num_rows, self.num_columns)

    @property
    def is_plain(self) -> bool:
        return is_plain(self.format_name)

    @property
    def shift(self) -> int:
        """1 << shift warps share a row.  It depends on the columns alone, and with it the order of every sum.

        So that a lane has two units or more: what a row takes beside them is shared, and their loads go out together.
        """
        units = self.num_columns // UNIT
        return 2 if units >= 256 else 1 if units >= 128 else 0

    @property
    def blocks(self) -> int:
        """Of a product, with four warps each."""
        return -(-(self.num_rows << self.shift) // 4)


@dataclass(frozen=True, kw_only=True)
class Target:
    """A matrix that something is multiplied with, and where the product goes."""

    matrix: Matrix
    out: Buffer
    bias: str | None = None
