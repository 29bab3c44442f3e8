"""Who advances in the next step, and by how much.

Owns the order of turns.  Does not know text, sampling, callers or threads: the loop asks for a step, runs it, and says
that it was done; nor how pages are kept (sequence_pages.py) and batches written (step.py).

Every sequence wants its pending tokens computed: the prompt in chunks, then token by token, or a token and the draft
that may follow it.  The one token always rides along; what is left of a step goes to prompts and drafts, in order of
arrival.  Pages are handed out as they are needed; when there are none, prefixes nobody uses are forgotten, then the
youngest sequence gives its place up and begins again later (with the same outcome, since K and V don't depend on the
batch).  For a draft nobody has to leave.

A prompt whose beginning another one is computing just then waits for it, and takes it from the prefix cache: what
several prompts share is computed once.  Those behind it may begin meanwhile.

Where the model keeps states (states.py), a prefix is reused up to a place whose state is known, a prompt is cut where
one is to be kept, and what is right of a draft that was wrong is computed once more.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable

from runtime.devices.binding import PAGE_SIZE, Limits, pages_for
from runtime.sequence import TokenSequence
from runtime.sequence_pages import SequencePages, reusable
from runtime.states import StateKeeper
from runtime.step import Step, StepBuilder, Work


class Scheduler:
    """Continuous batching over the pages of one device.  copy_page(source, target) copies K and V of a page."""

    def __init__(self, limits: Limits, copy_page: Callable[[int, int], None]) -> None:
        assert limits.num_pages >= pages_for(limits.context_size), "one sequence must always fit"
        assert not limits.num_states or limits.num_states >= 2 * limits.max_sequences, "one to go on from, one to leave"
        assert min(limits.max_outputs, limits.max_batch_tokens) >= limits.max_sequences > 0
        self.pages = SequencePages(limits, copy_page)
        self._limits = limits
        self._builder = StepBuilder(limits)
        self._waiting: deque[TokenSequence] = deque()
        self._running: list[TokenSequence] = []  # in order of arrival

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
        begins_another = bool(self._waiting and self.pages.has_free_slot)
        return not begins_another and all(sequence.is_decoding for sequence in self._running)

    def add(self, sequence: TokenSequence) -> None:
        """A new sequence, behind those that wait already."""
        assert 0 < len(sequence.ids) <= self._limits.context_size
        self._waiting.append(sequence)

    def plan(self) -> Step | None:
        """The next step; None when no sequence wants anything.  Its batch holds until the next call."""
        room = _Room(self._limits, self.pages.states)
        if self._advance(room):
            self._admit(room)
        return self._builder.build(room.works, self.pages.tables, self.pages.states) if room.works else None

    def _advance(self, room: _Room) -> bool:
        """Those that run; whether all found pages, so that another may begin."""
        riders = sum(sequence.is_decoding for sequence in self._running)
        num_running = len(self._running)
        index = 0
        while index < len(self._running):
            sequence = self._running[index]
            riders -= sequence.is_decoding
            if sequence.draft and not self.pages.has_pages(sequence):
                sequence.draft.clear()
            count, num_outputs = room.share(sequence, riders)
            if count and not self._reserve(sequence, sequence.num_computed + count):
                break  # it was the youngest, and went back to wait
            if count:
                room.add(sequence, count, num_outputs)
            index += 1
        return len(self._running) == num_running

    def _admit(self, room: _Room) -> None:
        """Those that wait, as long as there are slots, room and pages."""
        index = 0  # those before it wait for a prefix that is being computed
        while index < len(self._waiting) and self.pages.has_free_slot and not room.is_full:
            sequence = self._waiting[index]
            if self._is_computed_elsewhere(sequence):
                index += 1
                continue
            if not self.pages.begin(sequence, is_alone=not self._running):
                break
            del self._waiting[index]
            self._running.append(sequence)
            self._mark_what_is_shared(sequence)
            count, num_outputs = room.share(sequence)
            if not self._reserve(sequence, sequence.num_computed + count):
                break
            room.add(sequence, count, num_outputs)

    def commit(self, step: Step) -> None:
        """The step was run: its tokens' K and V are in the pages."""
        for work in step.works:
            sequence = work.sequence
            sequence.num_computed = end = work.start + work.count
            known = min(end, len(sequence.ids))
            if work.start < sequence.num_prompt and known // PAGE_SIZE > work.start // PAGE_SIZE:
                self.pages.remember(sequence, known - known % PAGE_SIZE)
            if self.pages.states is not None:
                self.pages.states.advance(sequence, work.start)

    def settle(self, sequence: TokenSequence) -> None:
        """The draft was judged, what was right of it is in ids: what was computed beyond them is forgotten."""
        sequence.draft.clear()
        self.rewind(sequence, len(sequence.ids) - 1)

    def rewind(self, sequence: TokenSequence, num_tokens: int) -> None:
        """Forgets what was computed beyond num_tokens."""
        self.pages.rewind(sequence, num_tokens)

    def finish(self, sequence: TokenSequence) -> None:
        """The sequence wants nothing more; what it computed stays known."""
        if sequence.slot is None:
            self._waiting.remove(sequence)
            return
        self.pages.remember_all(sequence)
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
            self._wait_again(sequence)
        self.pages.forget_all()

    def _is_computed_elsewhere(self, sequence: TokenSequence) -> bool:
        """Whether a running prompt will soon make a page or more of the sequence's prefix known that is not yet."""
        limit = reusable(sequence)
        if self.pages.states is not None:
            return self._is_state_promised(sequence, limit, self.pages.states)
        known: int | None = None
        for other in self._running:
            # Of a prompt that is being computed, whole pages become known.
            promised = min(other.num_prompt - other.num_prompt % PAGE_SIZE, limit)
            if other.num_computed >= promised:
                continue
            if known is None:
                known = self.pages.num_known(sequence)
            if promised - known >= PAGE_SIZE and _shared(sequence.ids, other.ids, promised) - known >= PAGE_SIZE:
                return True
        return False

    def _mark_what_is_shared(self, sequence: TokenSequence) -> None:
        """One that begins is to leave a state where most of those that wait will part from it."""
        if self.pages.states is None:
            return
        borders: Counter[int] = Counter()
        for other in self._waiting:
            shared = _shared(sequence.ids, other.ids, min(sequence.num_prompt, reusable(other)))
            borders[shared - shared % PAGE_SIZE] += 1
        del borders[0]
        sequence.held.marks.update(border for border, _ in borders.most_common(1))

    def _is_state_promised(self, sequence: TokenSequence, limit: int, states: StateKeeper) -> bool:
        """The same with states: who computes the prefix will leave one at the last border that both share."""
        known = states.match(sequence.ids, limit)
        num_known = 0 if known is None else known.num_tokens
        for other in self._running:
            shared = _shared(sequence.ids, other.ids, min(other.num_prompt, limit))
            border = shared - shared % PAGE_SIZE
            if border > other.num_computed and border - num_known >= PAGE_SIZE:
                other.held.marks.add(border)
                return True
        return False

    def _reserve(self, sequence: TokenSequence, num_positions: int) -> bool:
        """Pages for that many positions, from younger sequences if need be; False when it had to give up itself."""
        while not self.pages.reserve(sequence, num_positions):
            assert len(self._running) > 1, "a sequence alone always finds pages"
            youngest = self._running[-1]
            self.pages.remember_all(youngest)
            self._wait_again(youngest)
            if youngest is sequence:
                return False
        return True

    def _wait_again(self, sequence: TokenSequence) -> None:
        sequence.draft.clear()
        self._leave(sequence)
        self._waiting.appendleft(sequence)

    def _leave(self, sequence: TokenSequence) -> None:
        self._running.remove(sequence)
        self.pages.leave(sequence)


class _Room:
    """What is left of a step, and who takes part in it so far."""

    def __init__(self, limits: Limits, states: StateKeeper | None) -> None:
        self._states = states
        self.works: list[Work] = []
        self.tokens_left = limits.max_batch_tokens
        self.outputs_left = limits.max_outputs
        self._num_outputs = 0

    @property
    def is_full(self) -> bool:
        """Whether nobody else can take part."""
        return self.tokens_left <= 0 or self.outputs_left <= 0

    def share(self, sequence: TokenSequence, riders: int = 0) -> tuple[int, int]:
        """How many pending tokens it may bring, and how many rows they give; for `riders` others a token is kept."""
        outputs_left = self.outputs_left - riders
        count = min(sequence.num_pending, self.tokens_left - riders)
        if self._states is not None:
            count = min(count, self._states.room(sequence) or count)  # up to where a state is to be kept
        first_output = max(sequence.next_output, sequence.num_computed)
        num_outputs = max(0, sequence.num_computed + count - first_output)
        if num_outputs > outputs_left:
            count -= num_outputs - outputs_left
            num_outputs = outputs_left
        return max(0, count), max(0, num_outputs)

    def add(self, sequence: TokenSequence, count: int, num_outputs: int) -> None:
        """It takes that much."""
        self.works.append(
            Work(
                sequence=sequence,
                start=sequence.num_computed,
                count=count,
                first_row=self._num_outputs,
                num_outputs=num_outputs,
            )
        )
        self._num_outputs += num_outputs
        self.tokens_left -= count
        self.outputs_left -= num_outputs


def _shared(left: list[int], right: list[int], limit: int) -> int:
    """How many tokens both begin with, at most `limit`; whole pages are compared at once."""
    length = 0
    while length + PAGE_SIZE <= limit and left[length : length + PAGE_SIZE] == right[length : length + PAGE_SIZE]:
        length += PAGE_SIZE
    while length < limit and left[length] == right[length]:
        length += 1
    return length
