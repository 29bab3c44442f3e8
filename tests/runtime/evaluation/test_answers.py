"""Where two answers part, and what each model thought there."""

from __future__ import annotations

import math

from tiny_models import byte_pair_vocabulary

from models.chat_template import Message
from models.vocabulary import load_vocabulary
from runtime.evaluation.answers import GreedyAnswer, find_parting, prompt_text
from runtime.generation import Logprobs

WORDS = load_vocabulary(byte_pair_vocabulary())
THE, CAT, DOG = (WORDS.encode(text, add_special=False, parse_special=False)[0] for text in ("t", "c", "d"))


def answer(*ids: int, **listed: Logprobs) -> GreedyAnswer:
    rows = [listed.get(f"at_{place}", ((token_id, -0.5),)) for place, token_id in enumerate(ids)]
    return GreedyAnswer(ids=ids, logprobs=tuple(rows))


def test_the_first_difference_is_told_with_both_models_probabilities() -> None:
    own = answer(THE, CAT, CAT, at_1=((CAT, math.log(0.6)), (DOG, math.log(0.3))))
    reference = answer(THE, DOG, THE, at_1=((DOG, math.log(0.5)), (CAT, math.log(0.4))))
    parting = find_parting("Why?", own, reference, WORDS, WORDS)
    assert parting.place == 1 and parting.shared_text == "t" and parting.num_tokens == 3
    assert parting.own is not None and parting.reference is not None
    assert (parting.own.text, parting.own.continuation) == ("c", "cc")
    assert (parting.reference.text, parting.reference.continuation) == ("d", "dt")
    assert math.isclose(parting.own.probability or 0, 0.6) and math.isclose(parting.own.of_other or 0, 0.4)
    assert math.isclose(parting.reference.probability or 0, 0.5) and math.isclose(parting.reference.of_other or 0, 0.3)


def test_a_token_the_other_did_not_list_has_no_probability_there() -> None:
    parting = find_parting("Why?", answer(CAT), answer(DOG), WORDS, WORDS)
    assert parting.own is not None and parting.own.of_other is None


def test_an_answer_that_ended_earlier_parts_there() -> None:
    parting = find_parting("Why?", answer(THE, CAT), answer(THE), WORDS, WORDS)
    assert parting.place == 1 and parting.reference is None
    assert parting.own is not None and parting.own.token_id == CAT


def test_equal_answers_do_not_part() -> None:
    parting = find_parting("Why?", answer(THE, CAT), answer(THE, CAT), WORDS, WORDS)
    assert parting.place is None and parting.own is None and parting.shared_text == "tc"


def test_a_conversation_is_called_by_its_last_message() -> None:
    assert prompt_text([Message(role="system", content="Be kind."), Message(role="user", content="Hello")]) == "Hello"
