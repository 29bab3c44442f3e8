"""Choosing the next token: what is forbidden, the stages in their order, and the draw.

Owns their joining, and mirostat's memory.  Does not know batches or caches; random numbers depend on (seed, position)
alone, and mirostat's memory is kept by position, so that an answer may be rolled back and go on as if nothing had been.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from runtime import candidates as select
from runtime import repetition
from runtime.candidates import Candidates, Row, RowPart
from runtime.enough_candidates import enough_candidates
from runtime.errors import NoTokenLeftError
from runtime.random_numbers import exponentials, uniform
from runtime.sampler_stages import Draft, keep_surprising, run_stage, run_stages, stages_in_force
from runtime.sampling_options import GREEDY_TEMPERATURE, MAX_TEMPERATURE, SamplingOptions

__all__ = ["GREEDY_TEMPERATURE", "MAX_TEMPERATURE", "Distribution", "Mask", "Sampler", "SamplingOptions", "keep"]


class Mask(Protocol):
    """Something that forbids tokens."""

    def apply(self, row: np.ndarray, history: Sequence[int]) -> None:
        """Sets the logits of what must not follow `history` (prompt and answer so far) to -inf."""
        ...


@dataclass(frozen=True, kw_only=True)
class Distribution:
    """What the next token is drawn from.  weights: float64 [n], not divided by their sum."""

    candidates: Candidates
    weights: np.ndarray


class Sampler:
    """Chooses tokens as its options say.

    masks: what is forbidden besides.  token_bytes: what a token adds to the text, for stages that look at text.
    enough_candidates: so many of the best tokens are enough for sample(), the smaller ids among equals; None: it needs
    the whole row, as masks always do.
    """

    def __init__(
        self,
        options: SamplingOptions,
        *,
        seed: int,
        masks: Sequence[Mask] = (),
        token_bytes: repetition.TokenBytes = lambda _: b"",
    ) -> None:
        self.options = options
        self.seed = seed
        self._masks = tuple(masks)
        self._token_bytes = token_bytes
        self.enough_candidates = None if self._masks else enough_candidates(options)
        self._stages = stages_in_force(options)
        self._is_greedy = options.is_greedy
        self._bias_ids = np.array([token_id for token_id, _ in options.logit_bias], dtype=np.int64)
        self._biases = np.array([bias for _, bias in options.logit_bias], dtype=np.float32)
        self._most_bits: dict[int, float] = {}  # mirostat's, by position

    def sample(self, row: Row, history: Sequence[int]) -> int:
        """The id of the token after `history` (prompt and answer so far).

        row: the logits after history's last token; written into.  A part of it must be of `enough_candidates`.
        Raises NoTokenLeftError when masks and biases forbid every token.
        """
        if self._is_greedy:
            draft = self._draft(row, history)
            self._forbid(draft)
            for name in self._stages:  # which change logits, and drop nothing
                run_stage(name, draft)
            place = select.best_id(draft.row)
            return place if draft.part is None else int(draft.part.ids[place])
        distribution = self.distribution(row, history)
        token_id = self.draw(distribution, len(history))
        self.note(distribution, token_id, len(history))
        return token_id

    def draw(self, distribution: Distribution, position: int) -> int:
        """The id that the seed draws for that position from a distribution."""
        kept = distribution.candidates
        arrivals = exponentials(kept.ids, seed=self.seed, position=position)
        return select.first_to_arrive(kept, distribution.weights, arrivals)

    def distribution(self, row: Row, history: Sequence[int]) -> Distribution:
        """What the token after `history` is drawn from; of a greedy sampler, its one token.  Writes into row."""
        if self._is_greedy:
            only = np.array([self.sample(row, history)])
            return Distribution(candidates=Candidates(ids=only, logits=np.zeros(1), is_sorted=True), weights=np.ones(1))
        draft = self._draft(row, history)
        self._forbid(draft)
        kept = run_stages(self._stages, draft)
        if self.options.mirostat:
            most_bits = self._most_bits.get(len(history), 2 * self.options.mirostat_tau)
            kept = keep_surprising(kept, most_bits)
        return Distribution(candidates=kept, weights=select.weights(kept, 1.0))

    def note(self, distribution: Distribution, token_id: int, position: int) -> None:
        """The token at that position was drawn from that distribution: mirostat learns from it."""
        if not self.options.mirostat:
            return
        place = int(np.flatnonzero(distribution.candidates.ids == token_id)[0])
        bits = -math.log2(distribution.weights[place] / distribution.weights.sum())
        most_bits = self._most_bits.get(position, 2 * self.options.mirostat_tau)
        error = bits - self.options.mirostat_tau
        self._most_bits[position + 1] = most_bits - self.options.mirostat_eta * error

    def _forbid(self, draft: Draft) -> None:
        if not self._masks and not len(self._biases):
            return
        row, history = draft.row, draft.history
        for mask in self._masks:
            assert draft.part is None, "a mask looks at the whole row"
            mask.apply(row, history)
        if draft.part is None:
            np.add.at(row, self._bias_ids, self._biases)
        else:
            places, known = draft.part.places(self._bias_ids)
            np.add.at(row, places, self._biases[known])
        if row.max() == -math.inf:
            raise NoTokenLeftError(
                f"No token may stand at position {len(history)}: the grammar, the banned strings and the biases of "
                f"logits forbid all of them together. Take one of them back."
            )

    def _draft(self, row: Row, history: Sequence[int]) -> Draft:
        part = row if isinstance(row, RowPart) else None
        return Draft(
            row=row.logits if isinstance(row, RowPart) else row,
            part=part,
            kept=None,
            history=history,
            options=self.options,
            chance=lambda draw: uniform(seed=self.seed, position=len(history), draw=draw),
            token_bytes=self._token_bytes,
        )


def keep(row: np.ndarray, options: SamplingOptions) -> Candidates:
    """The candidates that the stages leave of a row after an empty history; never none."""
    return Sampler(options, seed=0).distribution(row.copy(), ()).candidates
