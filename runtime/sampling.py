"""Choosing the next token: the options of a sampler, and the chain that they describe.

Owns the order of the chain: penalties, top-k, top-p, min-p, temperature, draw.  Each stage looks at what the one
before it kept.  Does not know batches, caches or text; random numbers depend on (seed, position) alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from runtime import candidates as select
from runtime.candidates import Candidates
from runtime.random_numbers import MAX_SEED, uniform
from runtime.validation import check_integer, check_number

# Below this a draw would still be the best token, but for differences that rounding makes.
GREEDY_TEMPERATURE = 1e-3
MAX_TEMPERATURE = 100.0
MAX_TOP_K = 2**31 - 1
MAX_REPEAT_PENALTY = 100.0
MAX_PENALTY = 100.0
MAX_REPEAT_WINDOW = 2**31 - 1


@dataclass(frozen=True, kw_only=True)
class SamplingOptions:
    """How the next token is chosen.  Refuses values that make no sense with OptionError.

    temperature 0: the best token, always.  top_k 0, top_p 1, min_p 0, repeat_penalty 1 and the other penalties 0
    change nothing.  repeat_window: how many of the last tokens the penalties look at.  seed None: one is drawn.
    """

    temperature: float = 0.8
    top_k: int = 40
    top_p: float = 0.95
    min_p: float = 0.05
    repeat_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repeat_window: int = 64
    seed: int | None = None

    def __post_init__(self) -> None:
        check_number("temperature", self.temperature, low=0, high=MAX_TEMPERATURE, flag="--temp")
        check_integer("top_k", self.top_k, low=0, high=MAX_TOP_K, flag="--top-k")
        check_number("top_p", self.top_p, low=0, high=1, flag="--top-p")
        check_number("min_p", self.min_p, low=0, high=1, flag="--min-p")
        check_number(
            "repeat_penalty", self.repeat_penalty, low=0, high=MAX_REPEAT_PENALTY, flag="--repeat-penalty", above=True
        )
        check_number(
            "presence_penalty", self.presence_penalty, low=-MAX_PENALTY, high=MAX_PENALTY, flag="--presence-penalty"
        )
        check_number(
            "frequency_penalty", self.frequency_penalty, low=-MAX_PENALTY, high=MAX_PENALTY, flag="--frequency-penalty"
        )
        check_integer("repeat_window", self.repeat_window, low=0, high=MAX_REPEAT_WINDOW, flag="--repeat-last-n")
        if self.seed is not None:
            check_integer("seed", self.seed, low=0, high=MAX_SEED, flag="--seed")

    @property
    def is_greedy(self) -> bool:
        """Whether the best token is always taken."""
        return self.temperature < GREEDY_TEMPERATURE

    @property
    def has_penalties(self) -> bool:
        """Whether tokens seen before are treated differently."""
        return self.repeat_window > 0 and (
            self.repeat_penalty != 1 or self.presence_penalty != 0 or self.frequency_penalty != 0
        )


class Sampler:
    """Chooses tokens as its options say."""

    def __init__(self, options: SamplingOptions, *, seed: int) -> None:
        self.options = options
        self.seed = seed
        self._has_penalties = options.has_penalties
        self._is_greedy = options.is_greedy

    def sample(self, row: np.ndarray, history: Sequence[int]) -> int:
        """The id of the token after `history` (prompt and answer so far).

        row: float32 [vocab_size], the logits after history's last token; penalties are written into it.
        """
        if self._has_penalties:
            penalize(row, history, self.options)
        if self._is_greedy:
            return select.best_id(row)
        kept = keep(row, self.options)
        relative = select.weights(kept, self.options.temperature)
        return select.draw(kept, relative, uniform(seed=self.seed, position=len(history)))


def keep(row: np.ndarray, options: SamplingOptions) -> Candidates:
    """The candidates that top-k, top-p and min-p leave; never none."""
    top_k, top_p, min_p = options.top_k, options.top_p, options.min_p
    if 0 < top_k < row.shape[0]:
        kept = select.largest(row, top_k)
        if top_p < 1:
            kept = select.keep_top_p(kept, top_p)
    elif top_p < 1:
        kept = select.nucleus(row, top_p)
    elif min_p > 0:
        return select.above(row, -float(np.log(min_p)))
    else:
        return select.all_of(row)
    return select.keep_min_p(kept, min_p) if min_p > 0 else kept


def penalize(row: np.ndarray, history: Sequence[int], options: SamplingOptions) -> None:
    """Makes tokens among the last repeat_window of history less (or more) likely, in place.

    A token seen n times: a positive logit is divided, a negative one multiplied by repeat_penalty (Keskar et al.,
    "CTRL", 2019); then n * frequency_penalty + presence_penalty are taken off.
    """
    recent = np.asarray(history[-options.repeat_window :], dtype=np.int64)
    ids, counts = np.unique(recent, return_counts=True)
    values = row[ids].astype(np.float64)
    values = np.where(values > 0, values / options.repeat_penalty, values * options.repeat_penalty)
    row[ids] = values - counts * options.frequency_penalty - options.presence_penalty
