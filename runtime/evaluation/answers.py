"""Greedy answers to a person's own prompts, and the first place where those of two models part.

Owns the comparison.  Does not know how an answer comes about: it asks an engine.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from models.chat_template import Message
from models.vocabulary import Vocabulary
from runtime.engine import Engine
from runtime.evaluation.plans import AskedPrompt
from runtime.evaluation.results import Choice, Parting
from runtime.generation import Logprobs
from runtime.options import GenerateOptions
from runtime.sampling import SamplingOptions

LISTED = 20  # likeliest tokens that are kept of each place
CONTINUATION_TOKENS = 24


@dataclass(frozen=True, kw_only=True)
class GreedyAnswer:
    """ids, the end token included, and the likeliest tokens at each place."""

    ids: tuple[int, ...]
    logprobs: tuple[Logprobs, ...]


def answer_prompts(
    engine: Engine,
    prompts: Sequence[AskedPrompt],
    *,
    answer_tokens: int,
    raw: bool,
    on_begin: Callable[[Callable[[], None]], None],
    on_end: Callable[[], None],
) -> list[GreedyAnswer]:
    """Answers every prompt with the likeliest token at each place.

    on_begin gets what cancels the answer that has begun; an answer that was cancelled ends the list before it.
    """
    options = GenerateOptions(
        sampling=SamplingOptions(temperature=0, seed=0),
        max_tokens=answer_tokens,
        logprobs=LISTED,
        raw=raw,
        speculate=False,
    )
    answers = []
    for prompt in prompts:
        generation = engine.generate(prompt, options)
        on_begin(generation.cancel)
        completion = generation.result
        if completion.finish_reason == "cancelled":
            break
        answers.append(GreedyAnswer(ids=completion.ids, logprobs=completion.logprobs))
        on_end()
    return answers


def find_parting(
    prompt: AskedPrompt, own: GreedyAnswer, reference: GreedyAnswer, own_words: Vocabulary, other_words: Vocabulary
) -> Parting:
    """Where two answers part, and what each of the models thought of either token there."""
    pairs = zip(own.ids, reference.ids, strict=False)
    place = next((idx for idx, (left, right) in enumerate(pairs) if left != right), None)
    shorter = min(len(own.ids), len(reference.ids))
    if place is None and len(own.ids) != len(reference.ids):
        place = shorter
    return Parting(
        prompt=prompt_text(prompt),
        num_tokens=max(len(own.ids), len(reference.ids)),
        place=place,
        shared_text=own_words.decode(own.ids[: shorter if place is None else place]),
        own=None if place is None else _choice(place, own, reference, own_words),
        reference=None if place is None else _choice(place, reference, own, other_words),
    )


def prompt_text(prompt: AskedPrompt) -> str:
    """What a person recognises a prompt by."""
    if isinstance(prompt, str):
        return prompt
    last = prompt[-1]
    return last.content if isinstance(last, Message) and isinstance(last.content, str) else str(last)


def _choice(place: int, answer: GreedyAnswer, other: GreedyAnswer, words: Vocabulary) -> Choice | None:
    if place >= len(answer.ids):
        return None
    token_id = answer.ids[place]
    piece = words.token_bytes(token_id).decode("utf-8", errors="replace")
    return Choice(
        token_id=token_id,
        text=piece or words.token_text(token_id),
        continuation=words.decode(answer.ids[place : place + CONTINUATION_TOKENS]),
        probability=_probability(answer, place, token_id),
        of_other=_probability(other, place, token_id),
    )


def _probability(answer: GreedyAnswer, place: int, token_id: int) -> float | None:
    if place >= len(answer.logprobs):
        return None
    return next((math.exp(logprob) for listed, logprob in answer.logprobs[place] if listed == token_id), None)
