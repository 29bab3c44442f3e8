"""How many tokens to guess, and by whom: the numbers that promise the most tokens a second.

Owns the decisions within a round.  Does not know how guesses are made, or what the tokens are.

Guessed tokens are checked if the chance that they are kept is worth the time that they add to the pass; more are
guessed if that holds for the time to guess them as well.  What time is worth is the rate at which tokens come anyway: a
token is worth its time as long as it comes faster than those of the round on the whole (Dinkelbach, "On nonlinear
fractional programming", 1967).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from runtime.speculation.drafter import Guess
from runtime.speculation.pass_costs import Pace, PassCosts
from runtime.speculation.track import Track

# So many passes without drafts are measured before the first draft, and one again after so many others.
PLAIN_PASSES = 2
LONGEST_WITHOUT_PLAIN = 32
# A pass costs the same for some numbers of tokens (a CPU computes four together, and eight): look that far ahead.
LOOKAHEAD = 8
_FADING = 0.85  # of the tokens and times that the recent rate is made of, with each step
_FIRST_LARGEST = 4


class Controller:
    """Measures, and says what a round should be like.  draft_min: tokens that a draft has at least."""

    def __init__(self, pace: Pace, *, draft_min: int) -> None:
        self.costs = PassCosts(pace)
        self.tokens_out = 0
        self._recent_tokens = self._recent_ms = 0.0
        self.draft_min = max(1, draft_min)

    def begin(self, num_sequences: int) -> Round | None:
        """A round for so many sequences; None when a pass without drafts should be measured first."""
        costs = self.costs
        if costs.count(num_sequences) < PLAIN_PASSES or costs.age(num_sequences) > LONGEST_WITHOUT_PLAIN:
            return None
        return Round(
            costs=costs,
            num_sequences=num_sequences,
            draft_min=self.draft_min,
            num_tokens=num_sequences,
            recent_tokens_per_ms=self._recent_tokens / self._recent_ms if self._recent_ms else 0.0,
        )

    def count(self, *, tokens: int, elapsed_ms: float) -> None:
        """A step gave so many tokens in that time, its drafts included."""
        self.tokens_out += tokens
        self._recent_tokens = self._recent_tokens * _FADING + tokens
        self._recent_ms = self._recent_ms * _FADING + elapsed_ms


@dataclass(eq=False, kw_only=True)
class Round:
    """A pass in the making.  num_tokens: that it has so far.  recent_tokens_per_ms: how fast tokens came lately.

    What a draft adds to a pass is time that every sequence waits, so it counts for each of them.
    """

    costs: PassCosts
    num_sequences: int
    draft_min: int
    num_tokens: int
    recent_tokens_per_ms: float

    @property
    def plain_ms(self) -> float:
        """A pass without drafts: every sequence has a token more."""
        return self.costs.ms(self.num_sequences)

    def room(self) -> int:
        """How long a draft may be without a leap into what was never measured: at most twice as many tokens."""
        return max(_FIRST_LARGEST, 2 * self.costs.largest) - self.num_sequences

    def limits(self, track: Track, most: int) -> Limits:
        """Limits for one draft of this drafter, of up to `most` tokens."""
        expected = self.recent_tokens_per_ms
        if track.costs is not None:
            # What luck brought lately is no measure: then nothing would be good enough.
            expected = min(expected, self.promise(track, most) * self.num_sequences)
        return Limits(round=self, track=track, tokens_per_ms=max(self.num_sequences / self.plain_ms, expected))

    def promise(self, track: Track, most: int) -> float:
        """Tokens a millisecond that a sequence gets with a draft of this drafter, at its best length."""
        chance, tokens, best = 1.0, 1.0, 0.0
        guess_ms = (1 - track.ready_share) * self.guess_ms(track)
        for length in range(1, most + 1):
            chance *= track.acceptance.mean
            tokens += chance
            if length >= self.draft_min:
                best = max(best, tokens / self.time_ms(length, length * guess_ms))
        return best

    def promise_of(self, guess: Guess, track: Track) -> float:
        """Tokens a millisecond that a sequence gets with this guess."""
        chance, tokens = 1.0, 1.0
        for grade in guess.grades:
            chance *= track.acceptance.chance(grade)
            tokens += chance
        return tokens / self.time_ms(len(guess.token_ids), guess.usual_ms)

    def time_ms(self, length: int, draft_ms: float) -> float:
        """What a sequence waits for a pass with a draft of that length, which took draft_ms to guess."""
        added_ms = self.costs.added_ms(self.num_sequences, length) if length else 0.0
        return self.plain_ms + (draft_ms + added_ms) * self.num_sequences

    def added_ms(self, length: int, num_more: int) -> float:
        """What num_more tokens add to the pass, behind a draft of that length which is not in it yet."""
        return self.costs.added_ms(self.num_tokens + length, num_more)

    def guess_ms(self, track: Track) -> float:
        """What it takes to guess a token for one sequence."""
        if track.costs is None:
            return 0.0
        if not track.costs.is_known:
            return track.costs.usual_share * self.plain_ms / self.num_sequences
        return track.costs.ms(self.num_sequences) / self.num_sequences


class Limits:
    """Decides how long one draft should be."""

    def __init__(self, *, round: Round, track: Track, tokens_per_ms: float) -> None:
        self._round = round
        self._track = track
        self._tokens_per_ms = tokens_per_ms
        self._least = max(round.draft_min if round.draft_min > 1 else 0, 1 if track.is_on_trial else 0)

    def wants_more(self, guess: Guess) -> bool:
        """Whether some tokens more are worth guessing and checking; see Wish."""
        length = len(guess.token_ids)
        if length < self._least:
            return True
        chance = self._track.acceptance.chance_of_all(guess.grades)
        guess_ms, mean = self._round.guess_ms(self._track), self._track.acceptance.mean
        gain = 0.0
        # A pass may have room: then several tokens are worth what one alone is not.
        for num_more in range(1, LOOKAHEAD + 1):
            chance *= mean
            gain += chance
            cost_ms = num_more * guess_ms + self._round.added_ms(length, num_more)
            if gain > self._tokens_per_ms * cost_ms:
                return True
        return False

    def trim(self, guess: Guess) -> None:
        """Leaves the tokens that are worth checking, the first of them."""
        chance, gain = 1.0, 0.0
        best, best_length = -math.inf if self._least else 0.0, 0
        for length, grade in enumerate(guess.grades, start=1):
            chance *= self._track.acceptance.chance(grade)
            gain += chance
            worth = gain - self._tokens_per_ms * self._round.added_ms(0, length)
            if length >= self._least and worth > best:
                best, best_length = worth, length
        del guess.token_ids[best_length:]
        del guess.grades[best_length:]
        self._round.num_tokens += best_length
