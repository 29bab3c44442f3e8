"""What is known about one drafter: how often it is right, what it brings, and whether it pays at present.

Owns the decision to stop guessing and to try again.  Does not know drafters, sequences or how long a draft should be.

A trial that fails costs little: a drafter that lost the time of LOSS_TOKENS tokens since it began is stopped, and tried
again after a pause, which is longer each time.  What it gained may be lost again, up to CREDIT_TOKENS, and more as long
as its last rounds together were a gain.
"""

from __future__ import annotations

from collections.abc import Sequence

from runtime.speculation.acceptance import Acceptance
from runtime.speculation.pass_costs import PassCosts

LOSS_TOKENS = 2.0
CREDIT_TOKENS = 4.0
FIRST_PAUSE_TOKENS = 256
FIRST_FREE_PAUSE_TOKENS = 64  # of guesses that take no time: another part of the text may suit them
LONGEST_PAUSE_TOKENS = 4096
OLD_TOKENS = 256
# So many drafts are judged before what they promise is compared with what they cost.
TRIAL_ROUNDS = 3
DOUBT = 0.85
# What one of which little is known may promise, in the rate without it.
HOPE = 1.15
# So many times in a row it may promise a loss.
PATIENCE_ROUNDS = 8
_FADING = 0.9  # of the tokens and times that rates are made of, with each round


class Track:
    """name: in sentences for the user.  costs: of the drafter's passes, if it needs any."""

    def __init__(self, name: str, prior: Sequence[float], costs: PassCosts | None) -> None:
        self.name = name
        self.acceptance = Acceptance(prior)
        self.costs = costs
        self.reason: str | None = None
        self.ready_share = 0.0  # of its guesses, those made while something else was being checked
        self._resumes_at: int | None = None
        self._first_pause_tokens = FIRST_PAUSE_TOKENS if costs is not None else FIRST_FREE_PAUSE_TOKENS
        self._pause_tokens = self._first_pause_tokens
        self._has_failed = False
        self._begin_trial()

    def _begin_trial(self, tokens_out: int = 0) -> None:
        self._judged_at = tokens_out
        self._num_rounds = self._num_losses = 0
        self._balance_tokens = 0.0
        self._tokens = self._ms = 0.0

    def is_on(self, tokens_out: int) -> bool:
        """Whether it may guess, now that the engine has given so many tokens; a pause may end with this call."""
        if self._has_failed:
            return False
        is_resumed = self._resumes_at is not None and tokens_out >= self._resumes_at
        # What was seen so long ago says little, where it asks for time that is not given on the strength of it.
        is_forgotten = self.costs is not None and not self.is_on_trial and tokens_out - self._judged_at > OLD_TOKENS
        if is_resumed or (is_forgotten and not self.is_paused):
            self._resumes_at = None
            self.acceptance.forget_most()
            self._begin_trial(tokens_out)
        return self._resumes_at is None

    @property
    def is_paused(self) -> bool:
        """Whether it was stopped, at the last look."""
        return self._has_failed or self._resumes_at is not None

    @property
    def is_on_trial(self) -> bool:
        """Whether too little was judged to compare it with anything."""
        return self._num_rounds < TRIAL_ROUNDS

    @property
    def least_promise(self) -> float:
        """What it must promise to be asked, in the rate without it.

        What it promises follows few guesses and measurements that other programs disturb: as long as it has not lost
        much, it may promise a little less, so that more is seen of it.
        """
        return DOUBT if self._balance_tokens > -LOSS_TOKENS / 2 else 1.0

    @property
    def tokens_per_ms(self) -> float:
        """Tokens that rounds with its drafts gave, over their time; 0 before the first."""
        return self._tokens / self._ms if self._ms else 0.0

    def fail(self, reason: str) -> None:
        """It can't guess any more."""
        self._has_failed = True
        self.reason = reason

    def note_ready(self, num_ready: int, num_guessed: int) -> None:
        """Of the guesses of a round, so many had taken no time of their own."""
        self.ready_share += (1 - _FADING) * (num_ready / num_guessed - self.ready_share)

    def judge(self, *, tokens: int, round_ms: float, plain_ms: float, tokens_out: int) -> None:
        """A round with a draft of it gave so many tokens.  plain_ms: a token without a draft."""
        self._num_rounds += 1
        self._judged_at = tokens_out
        self._tokens = self._tokens * _FADING + tokens
        self._ms = self._ms * _FADING + round_ms
        self._balance_tokens = min(CREDIT_TOKENS, self._balance_tokens + tokens - round_ms / plain_ms)
        if self._balance_tokens == CREDIT_TOKENS:
            self._pause_tokens = self._first_pause_tokens
        # One long draft that was wrong may cost more than that, and the others pay for it.
        limit = LOSS_TOKENS * (2 if self.is_on_trial else 1)
        if self._balance_tokens < -limit and self.tokens_per_ms * plain_ms < 1:
            self.pause(plain_ms=plain_ms, tokens_out=tokens_out)

    def expect(self, *, is_gain: bool, plain_ms: float, tokens_out: int) -> None:
        """What a round with a draft of it promises; one that promises a loss again and again is stopped."""
        self._num_losses = 0 if is_gain else self._num_losses + 1
        if self._num_losses >= PATIENCE_ROUNDS:
            fault = f"{self.name} promise less than the {1e3 / plain_ms:.1f} tokens/s that come without"
            self._pause(fault, tokens_out)

    def pause(self, *, plain_ms: float, tokens_out: int) -> None:
        """It does not pay."""
        fault = f"with {self.name} {1e3 * self.tokens_per_ms:.1f} tokens/s came, without {1e3 / plain_ms:.1f}"
        self._pause(fault, tokens_out)

    def _pause(self, fault: str, tokens_out: int) -> None:
        self.reason = f"{fault}; they are tried again after {self._pause_tokens} tokens"
        self._resumes_at = tokens_out + self._pause_tokens
        self._pause_tokens = min(2 * self._pause_tokens, LONGEST_PAUSE_TOKENS)
