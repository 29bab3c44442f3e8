"""States of sequences in models that keep one: who goes on from which, and which texts can be gone on from.

Owns the places for states on the device and their reference counts.  Does not know what a state holds, nor devices.

A state stands for one position of one text and is never changed: a run goes on from one and leaves another, so that
nothing is lost when it is stopped, and taking back a draft means to go on from the state before it (what was right of
the draft is computed again).  Pages can be cut anywhere, a state can't: a prefix is reused up to a place whose state
is still there.  Such places are the ends of answers, the last page border in a prompt, and borders at which another
text was seen to part.  States that only this memory holds are forgotten when room is needed, the longest unused first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from runtime.devices.binding import PAGE_SIZE
from runtime.kv_pages import PagePool
from runtime.sequence import TokenSequence

NONE = -1


@dataclass(frozen=True, kw_only=True)
class StateMatch:
    """The state after the first num_tokens of a text."""

    num_tokens: int
    state: int


@dataclass(eq=False, kw_only=True, slots=True)
class _Known:
    ids: tuple[int, ...]
    state: int
    last_used: int


class StateKeeper:
    """The states of one device.  num_states: at least two for each sequence that runs."""

    def __init__(self, num_states: int) -> None:
        self._pool = PagePool(num_states)
        self._known: list[_Known] = []
        self._clock = 0

    @property
    def num_known(self) -> int:
        """Texts that can be gone on from."""
        return len(self._known)

    def match(self, ids: Sequence[int], limit: int) -> StateMatch | None:
        """The longest beginning of ids, of at most `limit` tokens, whose state is known."""
        found = [known for known in self._known if len(known.ids) <= limit and _begins(ids, known.ids)]
        if not found:
            return None
        best = max(found, key=lambda known: len(known.ids))
        best.last_used = self._tick()
        return StateMatch(num_tokens=len(best.ids), state=best.state)

    def begin(self, sequence: TokenSequence, match: StateMatch | None, num_pages_known: int) -> None:
        """The sequence begins behind a match, or at its first token; its prompt's borders are marked.

        num_pages_known: full pages of its prompt that were known, beyond what a state was known of: there it parts
        from another text, and others may do so after it.
        """
        held = sequence.held
        held.now = None if match is None else match.state
        if match is not None:
            self._pool.retain(match.state)
        start = 0 if match is None else match.num_tokens
        borders = {(sequence.num_prompt - 1) // PAGE_SIZE * PAGE_SIZE, num_pages_known * PAGE_SIZE}
        held.marks = {border for border in borders if border > start}

    def room(self, sequence: TokenSequence) -> int | None:
        """Tokens up to the next mark; None where there is none."""
        ahead = [mark - sequence.num_computed for mark in sequence.held.marks if mark > sequence.num_computed]
        return min(ahead, default=None)

    def pair(self, sequence: TokenSequence) -> tuple[int, int]:
        """The state that its next run goes on from (NONE: it begins) and the one that the run leaves."""
        held = sequence.held
        if held.next is None:
            held.next = self._allocate()
        return (NONE if held.now is None else held.now), held.next

    def advance(self, sequence: TokenSequence, start: int) -> None:
        """Its run is done, from position start on; what it went on from stays while there is a draft to judge."""
        held = sequence.held
        assert held.next is not None, "a run leaves a state"
        before, held.now, held.next = held.now, held.next, None
        if sequence.draft and before is not None:
            held.before = (start, before)
        elif before is not None:
            self._pool.release(before)
        if sequence.num_computed in held.marks:
            self.remember(sequence)

    def rewind(self, sequence: TokenSequence, num_tokens: int) -> int:
        """Goes back to a state of at most num_tokens; returns of how many."""
        held = sequence.held
        before, held.before = held.before, None
        if sequence.num_computed <= num_tokens:
            if before is not None:
                self._pool.release(before[1])
            return sequence.num_computed
        assert before is not None and before[0] <= num_tokens, "there is no state to go back to"
        if held.now is not None:
            self._pool.release(held.now)
        held.now = before[1]
        return before[0]

    def remember(self, sequence: TokenSequence) -> None:
        """The sequence's text, as far as it was computed, can be gone on from."""
        ids, state = tuple(sequence.ids[: sequence.num_computed]), sequence.held.now
        if state is None or len(ids) < sequence.num_computed:
            return
        for known in self._known:
            if known.ids == ids:
                known.last_used = self._tick()
                return
        self._pool.retain(state)
        self._known.append(_Known(ids=ids, state=state, last_used=self._tick()))

    def leave(self, sequence: TokenSequence) -> None:
        """The sequence holds nothing any more."""
        held = sequence.held
        before = None if held.before is None else held.before[1]
        for state in (held.now, held.next, before):
            if state is not None:
                self._pool.release(state)
        held.now = held.next = held.before = None
        held.marks = set()

    def clear(self) -> None:
        """No text can be gone on from."""
        for known in self._known:
            self._pool.release(known.state)
        self._known.clear()

    def _allocate(self) -> int:
        while (state := self._pool.allocate()) is None:
            unused = [known for known in self._known if self._pool.holders(known.state) == 1]
            assert unused, "two states for each sequence that runs"
            oldest = min(unused, key=lambda known: known.last_used)
            self._known.remove(oldest)
            self._pool.release(oldest.state)
        return state

    def _tick(self) -> int:
        self._clock += 1
        return self._clock


def empty_pairs(max_sequences: int) -> np.ndarray:
    """int32 [max_sequences, 2], all NONE."""
    return np.full((max_sequences, 2), NONE, dtype=np.int32)


def _begins(ids: Sequence[int], prefix: tuple[int, ...]) -> bool:
    return len(ids) >= len(prefix) and tuple(ids[: len(prefix)]) == prefix
