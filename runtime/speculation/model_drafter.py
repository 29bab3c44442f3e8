"""Guesses of a small model, which follows every sequence in pages of its own.

Owns the small model's device, its pages and its copy of each sequence.  Does not know whether guessing pays.  Its
scheduler is the engine's, for a device of its own: prompts come in chunks, prefixes are reused, and what was guessed
wrong is forgotten by cutting the page table.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from runtime import candidates as select
from runtime.devices.binding import Binding
from runtime.errors import EngineError
from runtime.scheduler import Scheduler
from runtime.sequence import TokenSequence
from runtime.speculation.drafter import Guess, Run, Wish
from runtime.speculation.pass_costs import Pace, PassCosts
from runtime.step import Work

# A grade for probabilities below these among the best tokens, and one for what lies above.
_BORDERS = (0.2, 0.4, 0.6, 0.8, 0.9, 0.97)
_PRIOR = (0.25, 0.4, 0.5, 0.65, 0.75, 0.85, 0.95)
_BEST = 8
USUAL_SHARE = 0.3
# More tokens than these in a pass: it reads a prompt, and says nothing about passes that guess.
_MOST_TOKENS = 16


@dataclass(eq=False, kw_only=True, slots=True)
class _Follower:
    """The small model's copy of a sequence, of which it may lack the first tokens.

    num_skipped: those that it lacks.  text: the sequence's other tokens and the guesses behind them; grades: of these
    guesses.  num_agreed: tokens of text known to be the sequence's.  copy: as much of text as the small model has seen
    or is about to see.
    """

    copy: TokenSequence
    num_skipped: int
    text: list[int]
    grades: list[int]
    num_agreed: int


class ModelDrafter:
    """Guesses with the model that `binding` runs; see Drafter.  Takes the binding over.

    num_tokens: ids that the model knows; those that the small one lacks are never guessed.  pace: of the model;
    usual_share: what a pass of the small one may take of the model's, as long as none was measured.
    clock: seconds; what passes take is measured with it.
    """

    name = "guesses of the draft model"
    prior = _PRIOR

    def __init__(
        self,
        binding: Binding,
        *,
        num_tokens: int,
        pace: Pace,
        usual_share: float = USUAL_SHARE,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.costs = PassCosts(pace, usual_share)
        self.context_size = binding.limits.context_size
        self.scheduler = Scheduler(binding.limits, binding.copy_page)
        self._binding = binding
        self._num_tokens = num_tokens
        self._padded = np.empty(num_tokens, dtype=np.float32)
        self._clock = clock
        self._followers: dict[TokenSequence, _Follower] = {}

    def num_unread(self, sequence: TokenSequence, window: int | None) -> int:
        follower = self._followers.get(sequence)
        if follower is not None:
            self._agree(follower, sequence.ids, num_sure=len(sequence.ids))
            return max(0, len(sequence.ids) - follower.num_skipped - follower.copy.num_computed)
        copy, _ = _begin(sequence, sequence.ids, window)
        return len(copy.ids) - self.scheduler.pages.num_known(copy)

    def propose(self, wishes: Sequence[Wish], run: Run) -> list[Guess]:
        return self._guess(wishes, [wish.sequence.ids for wish in wishes], run)

    def guess_ahead(self, wishes: Sequence[Wish], run: Run) -> list[Guess]:
        return self._guess(wishes, [wish.sequence.ids + wish.sequence.draft for wish in wishes], run)

    def forget(self, sequence: TokenSequence) -> None:
        follower = self._followers.pop(sequence, None)
        if follower is not None:
            self._agree(follower, sequence.ids, num_sure=len(sequence.ids))
            self._end(follower, len(sequence.ids) - follower.num_skipped)

    def close(self) -> None:
        self._followers.clear()
        self._binding.close()

    def _end(self, follower: _Follower, length: int) -> None:
        """Ends a copy; its first `length` tokens stay known to the prefix cache."""
        del follower.copy.ids[length:]
        self.scheduler.rewind(follower.copy, len(follower.copy.ids))
        self.scheduler.finish(follower.copy)

    def _guess(self, wishes: Sequence[Wish], texts: Sequence[list[int]], run: Run) -> list[Guess]:
        """Guesses that follow each text; what was guessed before and still holds comes first."""
        guesses: list[Guess] = []
        asking: dict[TokenSequence, tuple[Wish, Guess]] = {}
        for wish, ids in zip(wishes, texts, strict=True):
            guess = self._ready(wish, ids)
            guesses.append(guess)
            is_ended = bool(guess.token_ids) and guess.token_ids[-1] in wish.end_ids
            if not is_ended and len(guess.token_ids) < wish.most and wish.wants_more(guess):
                asking[self._prepare(wish, ids)] = (wish, guess)
        asked = list(asking.items())
        while asking:
            asking = self._guess_one_more(asking, run)
        for copy, (wish, guess) in asked:
            follower = self._followers[wish.sequence]
            num_new = len(guess.token_ids) - guess.num_ready
            follower.text.extend(guess.token_ids[guess.num_ready :])
            follower.grades.extend(guess.grades[guess.num_ready :] if num_new else [])
            if copy.num_pending == 1 and copy.num_computed:
                copy.ids.pop()  # nothing is to be computed for it until it is asked for again
        return guesses

    def _ready(self, wish: Wish, ids: list[int]) -> Guess:
        """What was guessed before to follow ids, as far as it still holds."""
        follower = self._followers.get(wish.sequence)
        guess = Guess()
        if follower is None:
            return guess
        self._agree(follower, ids, num_sure=len(wish.sequence.ids))
        guess.token_ids += follower.text[len(ids) - follower.num_skipped :][: wish.most]
        guess.grades += follower.grades[: wish.most]
        guess.num_ready = len(guess.token_ids)
        return guess

    def _prepare(self, wish: Wish, ids: list[int]) -> TokenSequence:
        """The copy with ids and the guesses behind them, at least the last one not computed."""
        sequence = wish.sequence
        follower = self._followers.get(sequence)
        if follower is None:
            copy, num_skipped = _begin(sequence, ids, wish.window)
            num_agreed = len(sequence.ids) - num_skipped
            self._followers[sequence] = _Follower(
                copy=copy, num_skipped=num_skipped, text=list(copy.ids), grades=[], num_agreed=num_agreed
            )
            self.scheduler.add(copy)
            return copy
        copy = follower.copy
        copy.ids.extend(follower.text[len(copy.ids) :])
        copy.next_output = len(copy.ids) - 1
        self.scheduler.rewind(copy, len(copy.ids) - 1)
        return copy

    def _agree(self, follower: _Follower, ids: list[int], *, num_sure: int) -> None:
        """Takes ids for the text: forgets what contradicts them, and keeps the guesses that follow them all.

        num_sure: as many of ids will not be taken back.
        """
        text, copy, skipped = follower.text, follower.copy, follower.num_skipped
        length = len(ids) - skipped
        most = min(len(text), length)
        agreed = min(follower.num_agreed, most)
        while agreed < most and text[agreed] == ids[skipped + agreed]:
            agreed += 1
        if agreed < length:
            del text[agreed:]
            text.extend(ids[skipped + agreed :])
            if agreed < len(copy.ids):
                self.scheduler.rewind(copy, agreed)
                del copy.ids[agreed:]
        num_guesses = len(text) - length
        follower.grades[:] = follower.grades[len(follower.grades) - num_guesses :] if num_guesses else []
        follower.num_agreed = num_sure - skipped

    def _guess_one_more(
        self, asking: dict[TokenSequence, tuple[Wish, Guess]], run: Run
    ) -> dict[TokenSequence, tuple[Wish, Guess]]:
        """Runs a pass; returns those that go on.  Who has more of its prompt to read goes on another time."""
        step = self.scheduler.plan()
        if step is None:
            return {}
        started_s = self._clock()
        rows = run(self._binding, step.batch)
        if rows is None:
            return {}
        elapsed_ms = (self._clock() - started_s) * 1e3
        self.scheduler.commit(step)
        num_tokens = len(step.batch.token_ids)
        usual_ms = 0.0
        if num_tokens <= _MOST_TOKENS:
            self.costs.record(num_tokens, elapsed_ms)
            usual_ms = self.costs.ms(num_tokens)
        else:
            self.costs.record_reading(num_tokens, elapsed_ms)
        goes_on: dict[TokenSequence, tuple[Wish, Guess]] = {}
        for work in step.works:
            copy = work.sequence
            if copy not in asking:
                continue
            wish, guess = asking[copy]
            guess.draft_ms += elapsed_ms / len(step.works)
            guess.usual_ms += usual_ms / len(step.works)
            if copy.num_pending == 0 and self._choose(work, wish, guess, rows):
                copy.ids.append(guess.token_ids[-1])
                copy.next_output = len(copy.ids) - 1
                goes_on[copy] = wish, guess
        return goes_on

    def _choose(self, work: Work, wish: Wish, guess: Guess, rows: np.ndarray) -> bool:
        """Adds a token to the guess; says whether it should go on."""
        row = self._row(rows[work.first_row + work.num_outputs - 1])
        try:
            best = select.largest(row, _BEST)
            skipped = self._followers[wish.sequence].num_skipped
            history = wish.sequence.ids[:skipped] + work.sequence.ids if skipped else work.sequence.ids
            token_id = wish.choose(row, history)
        except EngineError:
            return False  # its logits are no numbers, or nothing may follow
        guess.append(token_id, _grade(best, token_id))
        return token_id not in wish.end_ids and len(guess.token_ids) < wish.most and wish.wants_more(guess)

    def _row(self, row: np.ndarray) -> np.ndarray:
        """As wide as the model's own rows."""
        num_known = row.shape[0]
        if num_known >= self._num_tokens:
            return row[: self._num_tokens]
        self._padded[:num_known] = row
        self._padded[num_known:] = -np.inf
        return self._padded


def _begin(sequence: TokenSequence, ids: list[int], window: int | None) -> tuple[TokenSequence, int]:
    """A copy that begins with ids, or with their end; and how many it leaves out."""
    num_skipped = 0 if window is None else max(0, len(ids) - window)
    copy = TokenSequence(
        ids=ids[num_skipped:],
        num_prompt=max(1, sequence.num_prompt - num_skipped),
        next_output=len(ids) - num_skipped - 1,
        may_reuse=sequence.may_reuse,
    )
    return copy, num_skipped


def _grade(best: select.Candidates, token_id: int) -> int:
    """By the token's share of the probability of the best tokens; 0 if it is not among them."""
    weights = select.weights(best, 1.0)
    share = float(weights[best.ids == token_id].sum() / weights.sum())
    return sum(share >= border for border in _BORDERS)
