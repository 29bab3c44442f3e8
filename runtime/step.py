"""One step of the device: which tokens of which sequences, and the arrays that say so.

Owns the arrays, which are made once and filled anew for each step.  Does not know who advances, nor why.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from runtime.devices.binding import Batch, Limits
from runtime.sequence import TokenSequence
from runtime.states import StateKeeper, empty_pairs


@dataclass(frozen=True, kw_only=True, slots=True)
class Work:
    """Tokens start to start + count of a sequence; the logits of the last num_outputs come in rows first_row on."""

    sequence: TokenSequence
    start: int
    count: int
    first_row: int
    num_outputs: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Step:
    """A batch for the device and what it is made of."""

    works: tuple[Work, ...]
    batch: Batch


class StepBuilder:
    """Fills the arrays.  A step's batch holds until the next one is built."""

    def __init__(self, limits: Limits) -> None:
        self._counting = np.arange(max(limits.context_size, limits.max_batch_tokens), dtype=np.int32)
        self._token_ids = np.zeros(limits.max_batch_tokens, dtype=np.int32)
        self._positions = np.zeros(limits.max_batch_tokens, dtype=np.int32)
        self._slots = np.zeros(limits.max_batch_tokens, dtype=np.int32)
        self._is_prompt = np.zeros(limits.max_batch_tokens, dtype=np.bool_)
        self._outputs = np.zeros(limits.max_outputs, dtype=np.int32)
        self._states = empty_pairs(limits.max_sequences)

    def build(self, works: Sequence[Work], page_tables: NDArray[np.int32], states: StateKeeper | None) -> Step:
        """The step of these works, in their order."""
        begin = 0
        num_rows = 0
        for work in works:
            end = begin + work.count
            start, stop = work.start, work.start + work.count
            assert work.sequence.slot is not None
            self._token_ids[begin:end] = work.sequence.tokens(start, stop)
            self._positions[begin:end] = self._counting[start:stop]
            self._slots[begin:end] = work.sequence.slot
            if states is not None:
                self._states[work.sequence.slot] = states.pair(work.sequence)
            num_of_prompt = max(0, min(stop, work.sequence.num_prompt) - start)
            self._is_prompt[begin : begin + num_of_prompt] = True
            self._is_prompt[begin + num_of_prompt : end] = False
            num_rows = work.first_row + work.num_outputs
            self._outputs[work.first_row : num_rows] = self._counting[end - work.num_outputs : end]
            begin = end
        batch = Batch(
            token_ids=self._token_ids[:begin],
            positions=self._positions[:begin],
            slots=self._slots[:begin],
            is_prompt=self._is_prompt[:begin],
            page_tables=page_tables,
            outputs=self._outputs[:num_rows],
            states=self._states,
        )
        return Step(works=tuple(works), batch=batch)
