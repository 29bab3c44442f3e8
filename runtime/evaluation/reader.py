"""Feeds windows to devices and hands out the logits, a tile of rows at a time.

Owns the batches.  Does not know what rows are good for.  Several devices are read in step, so that one tile of each is
all that is ever held; how long each of them computed is noted for it alone.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

import numpy as np

from runtime.devices.binding import Batch, Binding, pages_for
from runtime.evaluation.windows import Window
from runtime.states import NONE, empty_pairs


class WindowReader:
    """Reads one window after another on one device; nobody else may use it meanwhile."""

    def __init__(self, binding: Binding) -> None:
        self._binding = binding
        self.limits = binding.limits
        pages_each = pages_for(self.limits.context_size)
        self._table = np.full((self.limits.max_sequences, pages_each), -1, np.int32)
        self._table[0] = np.arange(pages_each, dtype=np.int32)
        self._states = empty_pairs(self.limits.max_sequences)
        self.num_tokens = 0
        self.elapsed_s = 0.0

    def run(self, ids: Sequence[int], start: int, num_rows: int) -> np.ndarray:
        """The logits of the last num_rows of these tokens, which stand from position `start` on."""
        before = int(self._states[0, 1]) if start else NONE
        self._states[0] = before, 1 - max(before, 0)  # two states by turns
        batch = Batch(
            token_ids=np.asarray(ids, np.int32),
            positions=np.arange(start, start + len(ids), dtype=np.int32),
            slots=np.zeros(len(ids), np.int32),
            is_prompt=np.ones(len(ids), np.bool_),
            page_tables=self._table,
            outputs=np.arange(len(ids) - num_rows, len(ids), dtype=np.int32),
            states=self._states,
        )
        start_s = time.perf_counter()
        rows = self._binding.run(batch)
        self.elapsed_s += time.perf_counter() - start_s
        self.num_tokens += len(ids)
        return rows


def read_in_step(readers: Sequence[WindowReader], window: Window) -> Iterator[tuple[range, list[np.ndarray]]]:
    """Indexes of counted tokens with the rows that predict them, one array a reader.

    Rows are valid until the next are asked for.  The window has to fit into every reader's context.
    """
    chunk = min(reader.limits.max_batch_tokens for reader in readers)
    tile = min(chunk, *(reader.limits.max_outputs for reader in readers))
    first_row = window.first_counted - 1
    for start in range(0, first_row, chunk):
        for reader in readers:
            reader.run(window.ids[start : min(start + chunk, first_row)], start, 0)
    last_row = len(window.ids) - 1  # nothing is known of what follows the last token
    for start in range(first_row, last_row, tile):
        end = min(start + tile, last_row)
        rows = [reader.run(window.ids[start:end], start, end - start) for reader in readers]
        yield range(start + 1, end + 1), rows
