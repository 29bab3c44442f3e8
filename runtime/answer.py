"""An answer in the making, as the engine's thread sees it.

Owns what becomes of a row of logits: logprobs, the next token, its text, the reason to end.  Does not know batches,
pages, devices or threads.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from runtime.candidates import Row, best_logprobs
from runtime.errors import ConstraintError, NoTokenLeftError
from runtime.generation import Chunk, Completion, FinishReason, Generation, Logprobs
from runtime.grammar_mask import GrammarMask
from runtime.options import GenerateOptions
from runtime.sampling import Mask, Sampler
from runtime.sequence import TokenSequence
from runtime.speculation.options import SpeculationReport
from runtime.text_stream import TextStream
from runtime.timings import Clock

TokenBytes = Callable[[int], bytes]


class Answer:
    """One generation: its sequence, sampler, text and clock.

    end_ids: tokens that end an answer.  context_size: positions a sequence may have.  masks: what its tokens may not
    be; grammar: what its whole text must look like.
    """

    def __init__(
        self,
        *,
        generation: Generation,
        options: GenerateOptions,
        end_ids: frozenset[int],
        context_size: int,
        token_bytes: TokenBytes,
        masks: Sequence[Mask] = (),
        grammar: GrammarMask | None = None,
    ) -> None:
        num_prompt = len(generation.prompt_ids)
        self.generation = generation
        self.clock = Clock()
        self.sequence = TokenSequence(
            ids=list(generation.prompt_ids),
            num_prompt=num_prompt,
            next_output=0 if options.prompt_logprobs else num_prompt - 1,
            may_reuse=options.reuse_prefix,
        )
        self._options = options
        self.end_ids = frozenset() if options.ignore_end and grammar is None else end_ids
        self._grammar = grammar
        self._token_bytes = token_bytes
        all_masks = masks if grammar is None else (*masks, grammar)
        self._sampler = Sampler(options.sampling, seed=generation.seed, masks=all_masks, token_bytes=token_bytes)
        self._stream = TextStream(options.stop)
        limit = num_prompt + options.max_tokens if options.max_tokens is not None else context_size + 1
        # The last token needs no position: nothing is computed after it.
        self._max_length = min(limit, context_size + 1)
        self._limit_reason: FinishReason = "length" if limit <= context_size + 1 else "context"
        if options.max_tokens is None:
            self._limit_reason = "context"
        self._logprobs: list[Logprobs] = []
        self._prompt_logprobs: list[Logprobs] = []

    @property
    def speculates(self) -> bool:
        """Whether guesses may be made for it."""
        return self._options.speculate

    @property
    def tokens_wanted(self) -> int:
        """How many more it will have at most."""
        return self._max_length - len(self.sequence.ids)

    @property
    def enough_candidates(self) -> int | None:
        """How many of the best tokens of a row take() needs; None: whole rows, as probabilities always do."""
        if self._options.logprobs or self._options.prompt_logprobs:
            return None
        return self._sampler.enough_candidates

    def guess(self, row: np.ndarray, history: Sequence[int]) -> int:
        """The token that would be chosen if a row of another model were this model's; changes nothing but the row."""
        try:
            return self._sampler.sample(row, history)
        except (ConstraintError, NoTokenLeftError):
            return 0  # nothing may follow what was guessed so far: any guess is as wrong as another

    def take(self, rows: Sequence[Row], position: int, scratch: np.ndarray) -> FinishReason | None:
        """Uses the logits of positions `position` on, one a row; says why the answer ends, if it does.

        rows: written into; parts of rows must be of `enough_candidates`.  scratch: float32 [vocab_size].  Rows of a
        draft are used as long as what is chosen is what was guessed: every token is chosen as without a draft.
        """
        reason: FinishReason | None = None
        sequence = self.sequence
        draft = iter(sequence.draft)
        num_drafted = len(rows) - 1 if sequence.draft else 0
        for row in rows:
            if position < sequence.num_prompt and self._options.prompt_logprobs:
                assert isinstance(row, np.ndarray), "probabilities need whole rows"
                self._prompt_logprobs.append(best_logprobs(row, self._options.prompt_logprobs, scratch))
            position += 1
            sequence.next_output = position
            if position == len(sequence.ids):
                guess = next(draft, None)
                reason = self._choose(row, scratch, guess=guess, num_drafted=num_drafted)
                num_drafted = 0
                if reason is not None or sequence.ids[-1] != guess:
                    break
        return reason

    def tell(self, note: str) -> None:
        """A sentence for the user, that comes with the end."""
        self.generation.notes += (note,)

    def report_prefill(self) -> None:
        """A part of the prompt was computed."""
        sequence = self.sequence
        if self.clock.is_prefilled:
            return  # it gave its pages up, and computes its prompt again
        if sequence.num_computed >= sequence.num_prompt:
            self.clock.prefilled()
        if self._options.on_prefill is not None:
            self._options.on_prefill(min(sequence.num_computed, sequence.num_prompt), sequence.num_prompt)

    def complete(self, reason: FinishReason, speculation: SpeculationReport | None = None) -> None:
        """Ends the generation with what there is.  speculation: what guessing did for it."""
        held_text = self._stream.finish()
        if held_text:
            self.generation.publish(Chunk(text=held_text, token_ids=()))
        sequence = self.sequence
        self.generation.finish(
            Completion(
                text=self._stream.text,
                ids=tuple(sequence.ids[sequence.num_prompt :]),
                prompt_ids=self.generation.prompt_ids,
                finish_reason=reason,
                stop_text=self._stream.stop_text,
                timings=self.clock.timings(prompt_tokens=sequence.num_prompt, reused_tokens=sequence.num_reused or 0),
                logprobs=tuple(self._logprobs),
                prompt_logprobs=tuple(self._prompt_logprobs),
                notes=self.generation.notes,
                seed=self.generation.seed,
                speculation=speculation,
            )
        )

    def _choose(self, row: Row, scratch: np.ndarray, *, guess: int | None, num_drafted: int) -> FinishReason | None:
        """The next token.  guess: what had been guessed for it; num_drafted: in all for the pass that begins here."""
        ids = self.sequence.ids
        if len(ids) >= self._max_length:
            return self._limit_reason  # no token at all was wanted
        logprobs: tuple[Logprobs, ...] = ()
        if self._options.logprobs:
            assert isinstance(row, np.ndarray), "probabilities need whole rows"
            logprobs = (best_logprobs(row, self._options.logprobs, scratch),)
            self._logprobs.extend(logprobs)
        token_id = self._sampler.sample(row, ids)
        ids.append(token_id)
        self.clock.tick()
        if token_id in self.end_ids:
            text, reason = "", "stop"
        else:
            text = self._stream.push(self._token_bytes(token_id))
            reason = "stop" if self._stream.stop_text is not None or self._is_whole() else None
            if reason is None and len(ids) >= self._max_length:
                reason = self._limit_reason
        self.generation.publish(
            Chunk(
                text=text,
                token_ids=(token_id,),
                logprobs=logprobs,
                is_guessed=token_id == guess,
                num_drafted=num_drafted,
            )
        )
        return reason

    def _is_whole(self) -> bool:
        """Whether the grammar lets nothing follow."""
        return self._grammar is not None and self._grammar.is_whole(self.sequence.ids)
