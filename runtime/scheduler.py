"""Who advances in the next step, and by how much.

Owns slots, page tables and the order of turns.  Does not know text, sampling, callers or threads: the loop asks for a
step, runs it, and says that it was done.

Every sequence wants its pending tokens computed: the prompt in chunks, then token by token, or a token and the draft
that may follow it.  The one token always rides along; what is left of a step goes to prompts and drafts, in order of
arrival.  Pages are handed out as they are needed; when there are none, prefixes nobody uses are forgotten, then the
youngest sequence gives its place up and begins again later (with the same outcome, since K and V don't depend on the
batch).  For a draft nobody has to leave.

A prompt whose beginning another one is computing just then waits for it, and takes it from the prefix cache: what
several prompts share is computed once.  Those behind it may begin meanwhile.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from runtime.devices.binding import PAGE_SIZE, Batch, Limits, pages_for
from runtime.kv_pages import PagePool
from runtime.prefix_cache import PrefixCache
from runtime.sequence import TokenSequence


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


class Scheduler:
    """Continuous batching over the pages of one device.  copy_page(source, target) copies K and V of a page."""

    def __init__(self, limits: Limits, copy_page: Callable[[int, int], None]) -> None:
        assert limits.num_pages >= pages_for(limits.context_size), "one sequence must always fit"
        assert min(limits.max_outputs, limits.max_batch_tokens) >= limits.max_sequences > 0
        self.pool = PagePool(limits.num_pages)
        self.cache = PrefixCache(self.pool)
        self._limits = limits
        self._copy_page = copy_page
        self._waiting: deque[TokenSequence] = deque()
        self._running: list[TokenSequence] = []  # in order of arrival
        self._free_slots = list(range(limits.max_sequences - 1, -1, -1))
        self._tables = np.full((limits.max_sequences, pages_for(limits.context_size)), -1, dtype=np.int32)
        self._counting = np.arange(max(limits.context_size, limits.max_batch_tokens), dtype=np.int32)
        self._token_ids = np.zeros(limits.max_batch_tokens, dtype=np.int32)
        self._positions = np.zeros(limits.max_batch_tokens, dtype=np.int32)
        self._slots = np.zeros(limits.max_batch_tokens, dtype=np.int32)
        self._is_prompt = np.zeros(limits.max_batch_tokens, dtype=np.bool_)
        self._outputs = np.zeros(limits.max_outputs, dtype=np.int32)

    @property
    def num_sequences(self) -> int:
        """Sequences that run or wait."""
        return len(self._running) + len(self._waiting)

    @property
    def num_running(self) -> int:
        """Sequences that have a slot."""
        return len(self._running)

    @property
    def only_decodes(self) -> bool:
        """Whether the next step will hold no part of a prompt."""
        begins_another = bool(self._waiting and self._free_slots)
        return not begins_another and all(sequence.is_decoding for sequence in self._running)

    def add(self, sequence: TokenSequence) -> None:
        """A new sequence, behind those that wait already."""
        assert 0 < len(sequence.ids) <= self._limits.context_size
        self._waiting.append(sequence)

    def plan(self) -> Step | None:
        """The next step; None when no sequence wants anything.  Its batch holds until the next call."""
        works: list[Work] = []
        tokens_left = self._limits.max_batch_tokens
        outputs_left = self._limits.max_outputs
        riders = sum(sequence.is_decoding for sequence in self._running)
        was_crowded = False
        index = 0
        while index < len(self._running):
            sequence = self._running[index]
            riders -= sequence.is_decoding
            if sequence.draft and not self._has_pages(sequence):
                sequence.draft.clear()
            count, num_outputs = _share(sequence, tokens_left - riders, outputs_left - riders)
            num_running = len(self._running)
            if count and not self._reserve(sequence, sequence.num_computed + count):
                was_crowded = True
                break  # it was the youngest, and went back to wait
            was_crowded |= len(self._running) < num_running
            if count:
                works.append(self._work(sequence, count, num_outputs, self._limits.max_outputs - outputs_left))
                tokens_left -= count
                outputs_left -= num_outputs
            index += 1
        index = 0  # of those that wait; those before it wait for a prefix that is being computed
        while index < len(self._waiting) and self._free_slots and tokens_left > 0 and outputs_left > 0:
            if was_crowded:
                break
            sequence = self._waiting[index]
            if self._is_computed_elsewhere(sequence):
                index += 1
                continue
            if not self._begin(sequence):
                break
            count, num_outputs = _share(sequence, tokens_left, outputs_left)
            if not self._reserve(sequence, sequence.num_computed + count):
                break
            works.append(self._work(sequence, count, num_outputs, self._limits.max_outputs - outputs_left))
            tokens_left -= count
            outputs_left -= num_outputs
        return self._step(works) if works else None

    def commit(self, step: Step) -> None:
        """The step was run: its tokens' K and V are in the pages."""
        for work in step.works:
            sequence = work.sequence
            sequence.num_computed = end = work.start + work.count
            known = min(end, len(sequence.ids))
            if work.start < sequence.num_prompt and known // PAGE_SIZE > work.start // PAGE_SIZE:
                self._remember(sequence, known - known % PAGE_SIZE)

    def settle(self, sequence: TokenSequence) -> None:
        """The draft was judged, what was right of it is in ids: what was computed beyond them is forgotten."""
        sequence.draft.clear()
        self.rewind(sequence, len(sequence.ids) - 1)

    def rewind(self, sequence: TokenSequence, num_tokens: int) -> None:
        """Forgets what was computed beyond num_tokens, and gives the pages back that nothing is left of."""
        sequence.num_computed = min(sequence.num_computed, num_tokens)
        while len(sequence.pages) > pages_for(sequence.num_computed):
            self.pool.release(sequence.pages.pop())
            self._tables[sequence.slot, len(sequence.pages)] = -1

    def finish(self, sequence: TokenSequence) -> None:
        """The sequence wants nothing more; what it computed stays known."""
        if sequence.slot is None:
            self._waiting.remove(sequence)
            return
        self._remember(sequence, sequence.num_computed)
        self._leave(sequence)

    def drop(self, sequence: TokenSequence) -> None:
        """The same after a failure: what it computed last is not trusted."""
        if sequence.slot is None:
            self._waiting.remove(sequence)
        else:
            self._leave(sequence)

    def begin_anew(self) -> None:
        """No page holds anything any more: what runs waits again, and no prefix is known."""
        for sequence in reversed(list(self._running)):
            sequence.draft.clear()
            self._leave(sequence)
            self._waiting.appendleft(sequence)
        while self.cache.evict():
            pass

    def _is_computed_elsewhere(self, sequence: TokenSequence) -> bool:
        """Whether a running prompt will soon make a page or more of the sequence's prefix known that is not yet."""
        limit = _reusable(sequence)
        known: int | None = None
        for other in self._running:
            # Of a prompt that is being computed, whole pages become known.
            promised = min(other.num_prompt - other.num_prompt % PAGE_SIZE, limit)
            if other.num_computed >= promised:
                continue
            if known is None:
                known = self.cache.match(sequence.ids, limit).num_tokens
            if promised - known >= PAGE_SIZE and _shared(sequence.ids, other.ids, promised) - known >= PAGE_SIZE:
                return True
        return False

    def _begin(self, sequence: TokenSequence) -> bool:
        """Gives one that waits a slot and the pages of the prefix that is known; False when pages are short."""
        match = self.cache.match(sequence.ids, _reusable(sequence))
        if self._running:
            num_unused = sum(self.pool.holders(page) == 1 for page in match.pages)
            available = self.pool.num_free + self.cache.num_evictable() - num_unused
            if pages_for(len(sequence.ids)) - len(match.pages) > available:
                return False
        self._waiting.remove(sequence)
        self._running.append(sequence)
        sequence.slot = slot = self._free_slots.pop()
        for page in match.pages:
            self.pool.retain(page)
            self._append_page(sequence, page)
        sequence.num_computed = len(match.pages) * PAGE_SIZE
        if match.partial_page is not None and self._take_partial(sequence, match.partial_page):
            sequence.num_computed += match.partial_tokens
        if sequence.num_reused is None:
            sequence.num_reused = sequence.num_computed
        assert (self._tables[slot, : len(sequence.pages)] == sequence.pages).all()
        return True

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

    def _reserve(self, sequence: TokenSequence, num_positions: int) -> bool:
        """Pages for that many positions, from younger sequences if need be; False when it had to give up itself."""
        while len(sequence.pages) < pages_for(num_positions):
            page = self._allocate()
            if page is not None:
                self._append_page(sequence, page)
                continue
            youngest = self._running[-1]
            self._preempt(youngest)
            if youngest is sequence:
                return False
        return True

    def _has_pages(self, sequence: TokenSequence) -> bool:
        """Whether there are pages for all its tokens without another sequence's."""
        num_missing = pages_for(len(sequence.ids) + len(sequence.draft)) - len(sequence.pages)
        return num_missing <= 0 or num_missing <= self.pool.num_free + self.cache.num_evictable()

    def _allocate(self) -> int | None:
        page = self.pool.allocate()
        while page is None and self.cache.evict():
            page = self.pool.allocate()
        return page

    def _append_page(self, sequence: TokenSequence, page: int) -> None:
        assert sequence.slot is not None
        self._tables[sequence.slot, len(sequence.pages)] = page
        sequence.pages.append(page)

    def _preempt(self, sequence: TokenSequence) -> None:
        assert len(self._running) > 1, "a sequence alone always finds pages"
        sequence.draft.clear()
        self._remember(sequence, sequence.num_computed)
        self._leave(sequence)
        self._waiting.appendleft(sequence)

    def _leave(self, sequence: TokenSequence) -> None:
        assert sequence.slot is not None
        self._running.remove(sequence)
        self._tables[sequence.slot, :] = -1
        self._free_slots.append(sequence.slot)
        sequence.slot = None
        for page in sequence.pages:
            self.pool.release(page)
        sequence.pages.clear()
        sequence.num_computed = 0

    def _remember(self, sequence: TokenSequence, num_tokens: int) -> None:
        """Tells the prefix cache; where it knew a page already, the sequence goes over to that one."""
        assert sequence.slot is not None
        pages = sequence.pages[: pages_for(num_tokens)]
        for index, page in self.cache.insert(sequence.ids[:num_tokens], pages).items():
            self.pool.retain(page)
            self.pool.release(sequence.pages[index])
            sequence.pages[index] = page
            self._tables[sequence.slot, index] = page

    def _work(self, sequence: TokenSequence, count: int, num_outputs: int, first_row: int) -> Work:
        return Work(
            sequence=sequence,
            start=sequence.num_computed,
            count=count,
            first_row=first_row,
            num_outputs=num_outputs,
        )

    def _step(self, works: list[Work]) -> Step:
        begin = 0
        num_rows = 0
        for work in works:
            end = begin + work.count
            start, stop = work.start, work.start + work.count
            assert work.sequence.slot is not None
            self._token_ids[begin:end] = work.sequence.tokens(start, stop)
            self._positions[begin:end] = self._counting[start:stop]
            self._slots[begin:end] = work.sequence.slot
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
            page_tables=self._tables,
            outputs=self._outputs[:num_rows],
        )
        return Step(works=tuple(works), batch=batch)


def _share(sequence: TokenSequence, tokens_left: int, outputs_left: int) -> tuple[int, int]:
    """How many pending tokens a sequence may bring into a step that has this much room, and how many rows they give."""
    count = min(sequence.num_pending, tokens_left)
    first_output = max(sequence.next_output, sequence.num_computed)
    num_outputs = max(0, sequence.num_computed + count - first_output)
    if num_outputs > outputs_left:
        count -= num_outputs - outputs_left
        num_outputs = outputs_left
    return max(0, count), max(0, num_outputs)


def _reusable(sequence: TokenSequence) -> int:
    """How many of its positions may come from the prefix cache: not those whose logits are wanted."""
    return min(sequence.next_output, len(sequence.ids) - 1) if sequence.may_reuse else 0


def _shared(left: list[int], right: list[int], limit: int) -> int:
    """How many tokens both begin with, at most `limit`; whole pages are compared at once."""
    length = 0
    while length + PAGE_SIZE <= limit and left[length : length + PAGE_SIZE] == right[length : length + PAGE_SIZE]:
        length += PAGE_SIZE
    while length < limit and left[length] == right[length]:
        length += 1
    return length
