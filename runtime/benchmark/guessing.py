"""Answers with and without guesses, in turn, through the whole engine: what guessing brings on real prompts.

Owns the turns and what is counted of them.  Does not know how guesses are made, repeats or formats.  Each prompt is
answered both ways, one after the other, and who begins changes from prompt to prompt, so that what changes on the
machine meets both alike.  Rates are those of decoding; the time in which a draft model reads the prompt is part of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median

from runtime.benchmark.results import SpeculationFigures
from runtime.benchmark.statistics import spread_of
from runtime.benchmark.workloads import GuessingPlan
from runtime.engine import Engine
from runtime.generation import Completion
from runtime.options import EngineOptions, GenerateOptions
from runtime.prompts import Prompt
from runtime.sampling import SamplingOptions
from runtime.speculation.options import SpeculationReport

LoadProgress = Callable[[str, int, int], None]
LoadEngine = Callable[[Path, EngineOptions, LoadProgress], Engine]
OnBegin = Callable[[Callable[[], None]], None]

_SEED = 20_240_819
_WARM_UP_TOKENS = 4


@dataclass(frozen=True, kw_only=True, slots=True)
class Pair:
    """A prompt answered both ways.  *_s: time of decoding; tokens: decoded in that time."""

    tokens: int
    guessed_tokens: int
    plain_s: float
    guessed_s: float
    is_same: bool
    report: SpeculationReport

    @property
    def ratio(self) -> float:
        """How many times the tokens a second."""
        return (self.guessed_tokens / self.guessed_s) / (self.tokens / self.plain_s)


@dataclass
class GuessingSamples:
    """Repeats of one test: the pairs of each, in the order of the prompts."""

    repeats: list[list[Pair]] = field(default_factory=list)

    def tokens_per_s(self) -> list[float]:
        """With guesses, of each repeat."""
        return [sum(one.guessed_tokens for one in pairs) / sum(one.guessed_s for one in pairs) for pairs in self.whole]

    def plain_tokens_per_s(self) -> list[float]:
        """Without them."""
        return [sum(one.tokens for one in pairs) / sum(one.plain_s for one in pairs) for pairs in self.whole]

    @property
    def whole(self) -> list[list[Pair]]:
        """Repeats with anything in them."""
        return [pairs for pairs in self.repeats if pairs]

    def figures(self) -> SpeculationFigures:
        """Of one pair or more."""
        pairs = [pair for repeat in self.repeats for pair in repeat]
        reports = [pair.report for pair in pairs]
        ratios = [
            guessed / plain for guessed, plain in zip(self.tokens_per_s(), self.plain_tokens_per_s(), strict=True)
        ]
        by_prompt = [
            median(repeat[place].ratio for repeat in self.repeats if place < len(repeat))
            for place in range(max(map(len, self.repeats)))
        ]
        num_rounds = sum(report.rounds for report in reports)
        accepted = sum(report.accepted for report in reports)
        drafted_at, accepted_at = (
            _summed([report.drafted_by_position for report in reports]),
            _summed([report.accepted_by_position for report in reports]),
        )
        num_tokens = sum(pair.guessed_tokens for pair in pairs)
        return SpeculationFigures(
            plain_tokens_per_s=median(self.plain_tokens_per_s()),
            plain_tokens_per_s_samples=tuple(self.plain_tokens_per_s()),
            ratio=spread_of(ratios),
            ratio_samples=tuple(ratios),
            prompt_ratios=tuple(by_prompt),
            answers=len(pairs),
            same_answers=sum(pair.is_same for pair in pairs),
            drafted=sum(report.drafted for report in reports),
            accepted=accepted,
            acceptance_by_position=tuple(
                kept / tried for kept, tried in zip(accepted_at, drafted_at, strict=True) if tried
            ),
            rounds=num_rounds,
            plain_tokens=sum(report.plain_tokens for report in reports),
            tokens_per_round=(accepted + num_rounds) / num_rounds if num_rounds else None,
            draft_ms_per_token=sum(report.draft_ms for report in reports) / num_tokens,
            verify_ms_per_token=sum(report.verify_ms for report in reports) / num_tokens,
            wait_ms_per_token=sum(report.wait_ms for report in reports) / num_tokens,
            reasons=tuple(dict.fromkeys(report.reason for report in reports if report.reason)),
        )


class GuessingDriver:
    """Answers prompts both ways with an engine that guesses."""

    def __init__(self, engine: Engine, *, answer_tokens: int) -> None:
        self._engine = engine
        self._answer_tokens = answer_tokens

    def warm_up(self, prompt: Prompt, on_begin: OnBegin) -> None:
        """What is computed first is slow for reasons of its own."""
        self._answer(prompt, 0.0, speculate=False, max_tokens=_WARM_UP_TOKENS, on_begin=on_begin)

    def answer(self, prompt: Prompt, number: int, temperature: float, on_begin: OnBegin) -> Pair | None:
        """One prompt; on_begin gets what cancels.  None: it was cancelled, or the answer had a single token."""
        results: dict[bool, Completion] = {}
        for speculate in (False, True) if number % 2 else (True, False):
            result = self._answer(
                prompt, temperature, speculate=speculate, max_tokens=self._answer_tokens, on_begin=on_begin
            )
            if result.finish_reason == "cancelled" or not result.timings.decode_tokens_per_s:
                return None
            results[speculate] = result
        plain, guessed = results[False], results[True]
        assert guessed.speculation is not None
        tokens, guessed_tokens = len(plain.ids) - 1, len(guessed.ids) - 1
        return Pair(
            tokens=tokens,
            guessed_tokens=guessed_tokens,
            plain_s=_decode_s(plain),
            guessed_s=_decode_s(guessed),
            is_same=plain.ids == guessed.ids,
            report=guessed.speculation,
        )

    def _answer(
        self, prompt: Prompt, temperature: float, *, speculate: bool, max_tokens: int, on_begin: OnBegin
    ) -> Completion:
        options = GenerateOptions(
            max_tokens=max_tokens,
            speculate=speculate,
            reuse_prefix=False,
            sampling=SamplingOptions(temperature=temperature, seed=_SEED),
        )
        generation = self._engine.generate(prompt, options)
        on_begin(generation.cancel)
        for _ in generation:
            pass  # as a caller who shows each piece of text
        return generation.result


def guessing_options(options: EngineOptions, plan: GuessingPlan) -> EngineOptions:
    """How the engine is loaded that guesses: one sequence, and the context that it would have anyway."""
    return replace(options, context_size=None, max_sequences=1, max_outputs=32, speculation=plan.options)


def _decode_s(completion: Completion) -> float:
    assert completion.timings.decode_tokens_per_s
    return (len(completion.ids) - 1) / completion.timings.decode_tokens_per_s


def _summed(counts: Sequence[tuple[int, ...]]) -> list[int]:
    """Position by position, of lists that differ in length."""
    return [sum(one[place] for one in counts if place < len(one)) for place in range(max(map(len, counts), default=0))]
