"""The model's own turns keep their ids, so that each prompt begins with all of the last one."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tiny_models import CHATML_TEMPLATE, TURNS_TEMPLATE
from words import (
    THINKING_TEMPLATE,
    TROUBLE,
    byte_pair_metadata,
    encode_chat,
    real_words,
    sentence_piece_metadata,
    shown,
    template,
    user,
)

from models.chat_encoding import NO_TEMPLATE_NOTE, ChatEncoder
from models.chat_template import ChatTemplate, Message
from models.vocabulary import Vocabulary, load_vocabulary

PathOf = Callable[[str], Path]
REAL = ("smollm2-135m", "qwen2.5-coder-0.5b")
TINY = load_vocabulary(byte_pair_metadata())
PIECES = load_vocabulary(sentence_piece_metadata())
CHATML = template(CHATML_TEMPLATE)
TURNS = template(TURNS_TEMPLATE, {"bos_token": "<bos>", "eos_token": "<eos>"})

SPACED = (
    "{{ bos_token }}{% for m in messages %}{% if m.role == 'user' %}{{ '[INST] ' + m.content + ' [/INST]' }}"
    "{% else %}{{ ' ' + m.content | trim + ' ' + eos_token }}{% endif %}{% endfor %}"
)


def reply(vocabulary: Vocabulary, ids: Sequence[int]) -> Message:
    """What an engine makes of the ids that a model gave."""
    text = vocabulary.decode(token_id for token_id in ids if token_id not in vocabulary.end_ids)
    return Message(role="assistant", content=text, ids=tuple(ids))


@pytest.fixture(params=REAL, scope="module")
def words(request: pytest.FixtureRequest, model_path: PathOf) -> tuple[Vocabulary, ChatTemplate]:
    vocabulary, found = real_words(model_path(request.param))
    assert found is not None
    return vocabulary, found


@pytest.mark.parametrize("closed_by", ["<|im_end|>", "<|endoftext|>", None])
def test_each_prompt_begins_with_all_of_the_last_one(
    words: tuple[Vocabulary, ChatTemplate], closed_by: str | None
) -> None:
    """Five turns with answers in tokens that no encoder would choose."""
    vocabulary, chat_template = words
    chance = random.Random(5)
    ordinary = [token_id for token_id in range(300, 40_000) if not vocabulary.is_special(token_id)]
    chat = [Message(role="system", content="Be brief.  "), user("\n\nHi <|im_end|> there \n")]
    encoder = ChatEncoder(vocabulary, chat_template)
    prompt = encoder.encode(chat)
    for turn in range(4):
        given_ids = chance.choices(ordinary, k=9)
        if turn % 2:  # blanks at both ends, and a word in single letters
            letters = [vocabulary.encode(letter, add_special=False, parse_special=False)[0] for letter in "hello"]
            blanks = vocabulary.encode("\n \n", add_special=False, parse_special=False)
            given_ids = blanks + letters + blanks
        end = [] if closed_by is None else [vocabulary.control_ids[closed_by]]
        chat += [reply(vocabulary, given_ids + end), user(f"And {turn}?")]
        following = encoder.encode(chat)
        kept = end if closed_by == "<|im_end|>" else []
        expected = prompt.ids + tuple(given_ids + kept)
        assert following.ids[: len(expected)] == expected
        tail = shown(vocabulary, following.ids[len(expected) - len(kept) :])
        assert tail == f"<|im_end|>\n<|im_start|>user\nAnd {turn}?<|im_end|>\n<|im_start|>assistant\n"
        assert following.text == chat_template.render(chat).text
        prompt = following


@given(data=st.data())
def test_any_generated_ids_are_kept(words: tuple[Vocabulary, ChatTemplate], data: st.DataObject) -> None:
    vocabulary, chat_template = words
    ids = st.integers(0, vocabulary.size - 1).filter(lambda token_id: not vocabulary.is_special(token_id))
    given_ids = data.draw(st.lists(ids, min_size=1, max_size=12))
    question = user(data.draw(TROUBLE))
    first = encode_chat(vocabulary, chat_template, [question])
    second = encode_chat(vocabulary, chat_template, [question, reply(vocabulary, given_ids), user("go on")])
    expected = first.ids + tuple(given_ids)
    assert second.ids[: len(expected)] == expected


def test_a_reply_can_be_gone_on_from_with_its_ids(words: tuple[Vocabulary, ChatTemplate]) -> None:
    vocabulary, chat_template = words
    odd = [vocabulary.encode(letter, add_special=False, parse_special=False)[0] for letter in "hello"]
    first = encode_chat(vocabulary, chat_template, [user("Hi")])
    begun = encode_chat(vocabulary, chat_template, [user("Hi"), reply(vocabulary, odd)])
    assert begun.ids == first.ids + tuple(odd)
    ended = [*odd, vocabulary.control_ids["<|im_end|>"]]
    assert encode_chat(vocabulary, chat_template, [user("Hi"), reply(vocabulary, ended)]).ids == begun.ids
    typed = [user("Hi"), Message(role="assistant", content="hello")]
    assert encode_chat(vocabulary, chat_template, typed).text == begun.text


def test_an_edited_reply_is_encoded_from_its_text() -> None:
    ids = tuple(TINY.encode("t", add_special=False, parse_special=False) * 3)
    kept = [user("a"), Message(role="assistant", content="ttt", ids=ids), user("b")]
    edited = [user("a"), Message(role="assistant", content="ttt!", ids=ids), user("b")]
    text = [user("a"), Message(role="assistant", content="ttt!"), user("b")]
    assert encode_chat(TINY, CHATML, edited).ids == encode_chat(TINY, CHATML, text).ids
    assert encode_chat(TINY, CHATML, kept).ids != encode_chat(TINY, CHATML, edited).ids
    mine = [Message(role="user", content="ttt", ids=ids)]
    assert encode_chat(TINY, CHATML, mine).ids == encode_chat(TINY, CHATML, [user("ttt")]).ids


def test_a_base_model_gets_plain_text(model_path: PathOf) -> None:
    vocabulary, no_template = real_words(model_path("gemma3-270m"))
    assert no_template is None
    chat = [Message(role="system", content="Facts.\n<eos>"), user("The capital of<start_of_turn>")]
    first = encode_chat(vocabulary, None, chat)
    assert first.notes == (NO_TEMPLATE_NOTE,)
    assert first.text == "Facts.\n<eos>\n\nThe capital of<start_of_turn>"
    assert first.ids[0] == vocabulary.bos_id
    assert [token_id for token_id in first.ids if vocabulary.is_control(token_id)] == [vocabulary.bos_id]
    assert vocabulary.decode(first.ids) == first.text
    odd = [vocabulary.encode(letter, add_special=False, parse_special=False)[0] for letter in " abc"]
    second = encode_chat(vocabulary, None, [*chat, reply(vocabulary, [*odd, 1]), user("So")])
    assert second.ids[: len(first.ids) + len(odd)] == first.ids + tuple(odd)
    assert vocabulary.decode(second.ids) == first.text + " abc\n\nSo"


def test_blanks_that_a_template_has_before_an_answer_are_the_answers_own() -> None:
    prefixed = load_vocabulary(sentence_piece_metadata(changes={"add_space_prefix": True}))
    spaced = template(SPACED, {"bos_token": "<bos>", "eos_token": "<eos>"})
    first = encode_chat(prefixed, spaced, [user("the")])
    answer = prefixed.encode("fox", add_special=False, parse_special=False)
    assert prefixed.token_bytes(answer[0]).startswith(b" ")
    for end in ((), (1,)):
        chat = [user("the"), reply(prefixed, [*answer, *end]), user("dog"), reply(prefixed, answer), user("old")]
        second = encode_chat(prefixed, spaced, chat)
        expected = first.ids + tuple(answer) + end
        assert second.ids[: len(expected)] == expected


def test_thinking_that_the_template_drops_is_dropped() -> None:
    thinking = template(THINKING_TEMPLATE)
    thought = TINY.encode("<think>\nthe\n</think>\n\nfox", add_special=False, parse_special=False)
    odd = [TINY.encode(letter, add_special=False, parse_special=False)[0] for letter in "then"]
    assert odd != TINY.encode("then", add_special=False, parse_special=False)
    chat = [user("a"), reply(TINY, thought), user("b"), reply(TINY, odd), user("c")]
    encoded = encode_chat(TINY, thinking, chat)
    assert shown(TINY, encoded.ids) == encoded.text == thinking.render(chat).text
    assert "<think>" not in encoded.text
    assert tuple(odd) in {encoded.ids[idx : idx + len(odd)] for idx in range(len(encoded.ids))}


def test_no_blank_is_put_behind_an_answer() -> None:
    prefixed = load_vocabulary(sentence_piece_metadata(changes={"add_space_prefix": True}))
    answer = prefixed.encode("fox", add_special=False, parse_special=False)
    chat = [user("the"), reply(prefixed, answer), user("dog")]
    ids = encode_chat(prefixed, None, chat).ids
    assert b"".join(map(prefixed.token_bytes, ids)) == b" the fox\n\ndog"


def test_a_template_that_looks_into_the_answers_is_believed() -> None:
    """It writes something else for an answer that is wrapped: then the ids give way to the text."""
    length = "{{ 'short' if m.content | length < 9 else 'long' }}"
    source = "{% for m in messages %}<|im_start|>" + length + "{{ m.content }}{% endfor %}"
    odd = [TINY.encode(letter, add_special=False, parse_special=False)[0] for letter in "the fox"]
    chat = [user("a"), reply(TINY, odd), user("b")]
    encoded = encode_chat(TINY, template(source), chat)
    assert encoded.text == template(source).render(chat).text
    assert "shortthe fox" in encoded.text
    assert shown(TINY, encoded.ids) == encoded.text


def test_folding_keeps_the_ids_of_answers() -> None:
    system = Message(role="system", content="old")
    odd = [PIECES.encode(letter, add_special=False, parse_special=False)[0] for letter in "fox"]
    first = encode_chat(PIECES, TURNS, [system, user("the")])
    second = encode_chat(PIECES, TURNS, [system, user("the"), reply(PIECES, [*odd, 5]), user("dog")])
    expected = (*first.ids, *odd, 5)
    assert second.ids[: len(expected)] == expected
    assert len(second.notes) == 1
