"""The seam between those that guess and those that decide about guesses.

Owns the shape of a guess.  Does not know how one is made, what it costs or what became of it.

A grade says how sure a drafter is of a token: a small whole number, of which a drafter has a fixed count.  How often
tokens of each grade are right is measured, so the grades need no meaning but their order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from runtime.devices.binding import Batch, Binding
from runtime.sequence import TokenSequence
from runtime.speculation.pass_costs import PassCosts

Choose = Callable[[np.ndarray, Sequence[int]], int]
"""(row of logits, the tokens before) -> the token that the caller's sampler would take.  May write into the row."""
Run = Callable[[Binding, Batch], np.ndarray | None]
"""Runs a batch on a device, in its turn; None when it was stopped."""


@dataclass(eq=False, kw_only=True, slots=True)
class Guess:
    """Tokens that may come next, and how sure the drafter is of each.

    draft_ms: the time they took.  usual_ms: what such passes usually take, those that read a prompt left out.
    num_ready: tokens, the first ones, that were there already: guessed before, past what was being checked then.
    """

    token_ids: list[int] = field(default_factory=list)
    grades: list[int] = field(default_factory=list)
    draft_ms: float = 0.0
    usual_ms: float = 0.0
    num_ready: int = 0

    def append(self, token_id: int, grade: int) -> None:
        """One token more."""
        self.token_ids.append(token_id)
        self.grades.append(grade)


@dataclass(frozen=True, kw_only=True, slots=True)
class Wish:
    """A sequence that wants a guess of up to `most` tokens, none behind one of end_ids.

    wants_more(guess): whether another token is worth what it costs to guess it.  window: how many of the sequence's
    last tokens are worth reading before it can be guessed at all; None: all of them.  It counts when a sequence is read
    for the first time.
    """

    sequence: TokenSequence
    most: int
    choose: Choose
    end_ids: frozenset[int]
    wants_more: Callable[[Guess], bool]
    window: int | None = None


class Drafter(Protocol):
    """Guesses for sequences.  One thread calls everything."""

    @property
    def name(self) -> str:
        """What it is called in sentences for the user."""
        ...

    @property
    def prior(self) -> tuple[float, ...]:
        """For each grade, how often its tokens are right as long as nothing was measured."""
        ...

    @property
    def costs(self) -> PassCosts | None:
        """What its passes take; None when it needs none."""
        ...

    @property
    def context_size(self) -> int | None:
        """How long a sequence and its draft may be; None: any length."""
        ...

    def num_unread(self, sequence: TokenSequence, window: int | None) -> int:
        """How many of a sequence's tokens it must read before it can guess what follows them; window: see Wish."""
        ...

    def propose(self, wishes: Sequence[Wish], run: Run) -> list[Guess]:
        """A guess for each wish, perhaps an empty one."""
        ...

    def guess_ahead(self, wishes: Sequence[Wish], run: Run) -> list[Guess]:
        """Guesses what may follow the sequences' drafts, while these are being checked; a later propose() begins from
        what holds of it.  The guesses returned tell what they took; those who need no time make none.
        """
        ...

    def forget(self, sequence: TokenSequence) -> None:
        """The sequence has ended."""
        ...

    def close(self) -> None:
        """Gives everything back."""
        ...
