"""Which pages hold a sequence's K and V: page tables, the prefixes that are known, and what is left.

Owns slots, page tables, the pool and the prefix cache, and holds them together with the states of models that keep
some (states.py): there a prefix is known up to a place whose state is.  Does not know who advances, nor what leaves
when pages are short: it says that they are.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from runtime.devices.binding import PAGE_SIZE, Limits, pages_for
from runtime.kv_pages import PagePool
from runtime.prefix_cache import PrefixCache
from runtime.sequence import TokenSequence
from runtime.states import StateKeeper, StateMatch


class SequencePages:
    """The pages of one device.  copy_page(source, target) copies K and V of a page.

    tables: a row of page indices for each slot, -1 where it has none; int32 [slot, page of the context].
    states: None where the model keeps none.
    """

    def __init__(self, limits: Limits, copy_page: Callable[[int, int], None]) -> None:
        self.pool = PagePool(limits.num_pages)
        self.cache = PrefixCache(self.pool)
        self.states = StateKeeper(limits.num_states) if limits.num_states else None
        self.tables = np.full((limits.max_sequences, pages_for(limits.context_size)), -1, dtype=np.int32)
        self._copy_page = copy_page
        self._free_slots = list(range(limits.max_sequences - 1, -1, -1))

    @property
    def has_free_slot(self) -> bool:
        """Whether another sequence may begin."""
        return bool(self._free_slots)

    def num_known(self, sequence: TokenSequence) -> int:
        """How many of its positions the prefix cache could give it now."""
        return self.cache.match(sequence.ids, reusable(sequence)).num_tokens

    def begin(self, sequence: TokenSequence, *, is_alone: bool) -> bool:
        """A slot, and the pages of the prefix that is known; False when pages are short, unless it is alone."""
        match = self.cache.match(sequence.ids, reusable(sequence))
        state: StateMatch | None = None
        num_pages_known = len(match.pages)
        if self.states is not None:
            state = self.states.match(sequence.ids, match.num_tokens)
            match = self.cache.match(sequence.ids, 0 if state is None else state.num_tokens)
        if not is_alone:
            num_unused = sum(self.pool.holders(page) == 1 for page in match.pages)
            available = self.pool.num_free + self.cache.num_evictable() - num_unused
            if pages_for(len(sequence.ids)) - len(match.pages) > available:
                return False
        sequence.slot = slot = self._free_slots.pop()
        for page in match.pages:
            self.pool.retain(page)
            self._append_page(sequence, page)
        sequence.num_computed = len(match.pages) * PAGE_SIZE
        if match.partial_page is not None and self._take_partial(sequence, match.partial_page):
            sequence.num_computed += match.partial_tokens
        if self.states is not None:
            if state is not None and sequence.num_computed < state.num_tokens:
                state = None  # there was no page for its last positions
                self._release_pages(sequence)
            self.states.begin(sequence, state, num_pages_known)
        if sequence.num_reused is None:
            sequence.num_reused = sequence.num_computed
        assert (self.tables[slot, : len(sequence.pages)] == sequence.pages).all()
        return True

    def reserve(self, sequence: TokenSequence, num_positions: int) -> bool:
        """Pages for that many positions, if need be from prefixes that nobody uses; False when there are not enough."""
        while len(sequence.pages) < pages_for(num_positions):
            page = self._allocate()
            if page is None:
                return False
            self._append_page(sequence, page)
        return True

    def has_pages(self, sequence: TokenSequence) -> bool:
        """Whether there are pages for all its tokens without another sequence's."""
        num_missing = pages_for(len(sequence.ids) + len(sequence.draft)) - len(sequence.pages)
        return num_missing <= 0 or num_missing <= self.pool.num_free + self.cache.num_evictable()

    def rewind(self, sequence: TokenSequence, num_tokens: int) -> None:
        """Forgets what was computed beyond num_tokens, and gives the pages back that nothing is left of.

        With states, what the last run computed is forgotten whole.
        """
        if self.states is not None:
            num_tokens = self.states.rewind(sequence, num_tokens)
        sequence.num_computed = min(sequence.num_computed, num_tokens)
        while len(sequence.pages) > pages_for(sequence.num_computed):
            self.pool.release(sequence.pages.pop())
            self.tables[sequence.slot, len(sequence.pages)] = -1

    def remember(self, sequence: TokenSequence, num_tokens: int) -> None:
        """Tells the prefix cache; where it knew a page already, the sequence goes over to that one."""
        assert sequence.slot is not None
        pages = sequence.pages[: pages_for(num_tokens)]
        for index, page in self.cache.insert(sequence.ids[:num_tokens], pages).items():
            self.pool.retain(page)
            self.pool.release(sequence.pages[index])
            sequence.pages[index] = page
            self.tables[sequence.slot, index] = page

    def remember_all(self, sequence: TokenSequence) -> None:
        """All that was computed of it stays known."""
        self.remember(sequence, sequence.num_computed)
        if self.states is not None:
            self.states.remember(sequence)

    def leave(self, sequence: TokenSequence) -> None:
        """Gives slot and pages back."""
        assert sequence.slot is not None
        self._release_pages(sequence)
        self._free_slots.append(sequence.slot)
        sequence.slot = None
        if self.states is not None:
            self.states.leave(sequence)

    def _release_pages(self, sequence: TokenSequence) -> None:
        self.tables[sequence.slot, :] = -1
        for page in sequence.pages:
            self.pool.release(page)
        sequence.pages.clear()
        sequence.num_computed = 0

    def forget_all(self) -> None:
        """Forgets every prefix that nobody uses."""
        while self.cache.evict():
            pass
        if self.states is not None:
            self.states.clear()

    def _take_partial(self, sequence: TokenSequence, source: int) -> bool:
        """A copy of a page of which a part is of use, or the page itself when there is no other."""
        self.pool.retain(source)
        target = self._allocate()
        self.pool.release(source)
        if target is not None:
            self._copy_page(source, target)
        elif self.cache.surrender(source):
            target = source
        else:
            return False
        self._append_page(sequence, target)
        return True

    def _allocate(self) -> int | None:
        page = self.pool.allocate()
        while page is None and self.cache.evict():
            page = self.pool.allocate()
        return page

    def _append_page(self, sequence: TokenSequence, page: int) -> None:
        assert sequence.slot is not None
        self.tables[sequence.slot, len(sequence.pages)] = page
        sequence.pages.append(page)


def reusable(sequence: TokenSequence) -> int:
    """How many of its positions may come from the prefix cache: not those whose logits are wanted."""
    return min(sequence.next_output, len(sequence.ids) - 1) if sequence.may_reuse else 0
