"""How much of a text a draft model should read before it guesses: nothing yet, its end, or all of it.

Owns that decision, and the measure of how often a draft model is needed at all.  Does not know models or passes.

Reading is paid once, and guesses bring their gain token by token, where nothing that costs less guesses better.  So
what is left of the answer, the share of it that comes without guesses from the text, and the time that a guessed token
saves say what reading may cost; tokens that come by other guesses must be read as well, as they come.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

# So few tokens are read without asking: what was said since the last guess.
FREE_TOKENS = 8
# What may be read of a text's end where all of it is too dear, and what guesses that know no more bring of the gain.
# (Ten requests to change code, Qwen2.5-Coder 0.5B for 1.5B: 0.97 of the tokens that it finds likeliest are right when
# it has read all, 0.86 when it has read 128 tokens, 0.80 when 64.)
ENDS = ((128, 0.65), (64, 0.5))
# An answer may end any time: it is expected to go on for as long as it has, or so far.
HORIZON_TOKENS = 128
# As long as little is known, so many tokens count as seen, of which that share came without guesses from the text.
_PRIOR_TOKENS = 16.0
_PRIOR_SHARE = 0.5
_FADING = 0.99  # of what other answers showed, with each token


class Need:
    """How many tokens came in rounds for which a draft model is wanted, of one answer; `before` is of those before."""

    def __init__(self, before: Need | None = None) -> None:
        self._before = before
        self._wanted = self._all = 0.0

    def count(self, tokens: int, *, is_wanted: bool) -> None:
        """A round gave so many.  is_wanted: nothing else guessed in it."""
        for need in (self, self._before):
            if need is not None:
                fading = _FADING**tokens if need is self._before else 1.0
                need._all = need._all * fading + tokens
                need._wanted = need._wanted * fading + tokens * is_wanted

    @property
    def share(self) -> float:
        """Of the tokens to come, those that a draft model would guess."""
        expected = _PRIOR_SHARE if self._before is None else self._before.share
        return (self._wanted + _PRIOR_TOKENS * expected) / (self._all + _PRIOR_TOKENS)


@dataclass(frozen=True, kw_only=True, slots=True)
class Reading:
    """What is read before the first guess: the last `window` tokens (None: all)."""

    window: int | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Prospect:
    """What guesses of a draft model would bring an answer.

    share: of its tokens, those that they would be for; saved_ms: by each of these; read_ms: to read a token.
    num_given, num_wanted: tokens of the answer that are there, and that may come.
    is_open: whether too little is known of the model, and others guess as well: then no more than an end is read.
    """

    share: float
    saved_ms: float
    read_ms: float
    num_given: int
    num_wanted: int
    is_open: bool = False

    def gain_ms(self, num_unread: int, quality: float = 1.0) -> float:
        """What is won in the rest of the answer if so many tokens are read first; less than 0: it is a loss."""
        horizon = min(self.num_wanted, max(HORIZON_TOKENS, self.num_given))
        a_token_ms = self.share * self.saved_ms * quality - (1 - self.share) * self.read_ms
        return horizon * a_token_ms - num_unread * self.read_ms


def choose(length: int, num_unread: Callable[[int | None], int], prospect: Prospect) -> Reading | None:
    """What to read of a text of `length` tokens; None: it does not pay.

    num_unread(window): how many tokens would have to be read with that window.
    """
    if num_unread(None) <= FREE_TOKENS:
        return Reading(window=None)
    choices = [
        (prospect.gain_ms(num_unread(tokens), quality), Reading(window=tokens))
        for tokens, quality in ENDS
        if tokens < length
    ]
    if not choices or not prospect.is_open:
        choices.append((prospect.gain_ms(num_unread(None)), Reading(window=None)))
    gain_ms, best = max(choices, key=lambda choice: choice[0])
    return best if gain_ms > 0 else None
