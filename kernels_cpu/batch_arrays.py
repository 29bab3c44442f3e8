"""The int32 arrays that describe a batch to the kernels: how large they are.

Owns the sums; binding.py fills the arrays in for every run.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kernels_cpu import kv_layout

if TYPE_CHECKING:
    from kernels_cpu.plan import CpuLimits


@dataclass(frozen=True, kw_only=True)
class BatchArrays:
    """int32 values in the arrays that describe a batch."""

    tokens: int
    outputs: int
    tiles: int
    table_entries: int
    table_row: int
    runs: int

    @property
    def sizes_bytes(self) -> dict[str, int]:
        return {
            "header": 64,
            "token_ids": 4 * self.tokens,
            "positions": 4 * self.tokens,
            "slots": 4 * self.tokens,
            "outputs": 4 * self.outputs,
            "tiles": 12 * self.tiles,
            "page_tables": 4 * self.table_entries,
            "runs": 16 * self.runs,
        }


def batch_arrays(limits: CpuLimits) -> BatchArrays:
    """How large a batch's arrays are."""
    row = -(-limits.context_size // kv_layout.PAGE_SIZE)
    return BatchArrays(
        tokens=limits.max_batch_tokens,
        outputs=limits.max_outputs,
        tiles=limits.max_batch_tokens,
        table_entries=row * limits.max_sequences,
        table_row=row,
        runs=limits.max_sequences,
    )
