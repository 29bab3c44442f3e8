"""From a chat to ids: nobody types a control token, there is one BOS, and the turn ends where it should."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tiny_models import CHATML_TEMPLATE, TURNS_TEMPLATE
from words import (
    CONTROL,
    THINKING_TEMPLATE,
    TROUBLE,
    USER_DEFINED,
    byte_pair_metadata,
    child,
    encode_chat,
    message_of,
    real_words,
    reference,
    sentence_piece_metadata,
    template,
    user,
)

from models.chat_encoding import ChatEncoder
from models.chat_template import ChatTemplate, Message
from models.errors import TemplateError
from models.vocabulary import Vocabulary, load_vocabulary

PathOf = Callable[[str], Path]
REAL = ("smollm2-135m", "qwen2.5-coder-0.5b")
TINY = load_vocabulary(byte_pair_metadata())
PIECES = load_vocabulary(sentence_piece_metadata())
CHATML = template(CHATML_TEMPLATE)
TURNS = template(TURNS_TEMPLATE, {"bos_token": "<bos>", "eos_token": "<eos>"})


@pytest.fixture(params=REAL, scope="module")
def words(request: pytest.FixtureRequest, model_path: PathOf) -> tuple[Vocabulary, ChatTemplate]:
    vocabulary, found = real_words(model_path(request.param))
    assert found is not None
    return vocabulary, found


@given(system=TROUBLE, question=TROUBLE, answer=TROUBLE, second=TROUBLE)
def test_what_is_typed_never_becomes_a_control_token(
    words: tuple[Vocabulary, ChatTemplate], system: str, question: str, answer: str, second: str
) -> None:
    vocabulary, chat_template = words
    controls = set(vocabulary.control_ids.values())

    def steering(structural: set[int], *contents: str) -> list[int]:
        roles = ("system", "user", "assistant", "user")
        messages = [Message(role=role, content=content) for role, content in zip(roles, contents, strict=True)]
        encoded = encode_chat(vocabulary, chat_template, messages)
        assert encoded.text == chat_template.render(messages).text
        return [token_id for token_id in encoded.ids if token_id in structural]

    assert steering(controls, system, question, answer, second) == steering(controls, "a", "b", "c", "d")
    # Tags such as <tool_call> are the model's to write, not the user's.
    structural = controls | set(vocabulary.user_defined_ids.values())
    assert steering(structural, system, question, "c", second) == steering(structural, "a", "b", "c", "d")


@given(question=TROUBLE)
def test_the_prompt_says_what_the_template_wrote(words: tuple[Vocabulary, ChatTemplate], question: str) -> None:
    vocabulary, chat_template = words
    encoded = encode_chat(vocabulary, chat_template, [user(question)])
    assert encoded.text == chat_template.render([user(question)]).text
    found = b"".join(
        vocabulary.token_text(token_id).encode()
        if vocabulary.is_control(token_id)
        else vocabulary.token_bytes(token_id)
        for token_id in encoded.ids
    )
    lacks_bytes = vocabulary.decode_bytes(vocabulary.encode(b"\xff", add_special=False, parse_special=False)) != b"\xff"
    handler = "surrogateescape" if not lacks_bytes else "replace"
    expected = "".join(_writable(character, lacks_bytes) for character in encoded.text)
    assert found == expected.encode("utf-8", handler)


def _writable(character: str, lacks_bytes: bool) -> str:
    """U+FFFD for a character that needs one of the bytes for which SmolLM2 has no token."""
    lacking = {0x04, 0x06, 0x13, 0x14, 0x16, 0x1D, 0xF1, 0xF2, 0xFF}
    return "\ufffd" if lacks_bytes and lacking & {*character.encode("utf-8", "surrogateescape")} else character


# Blanks and line breaks at the ends of a content form tokens with what the template wrote beside it.
JOINED = st.one_of(
    st.text(alphabet="\n \ta.'1\u00e9", max_size=8),
    st.text(alphabet=st.characters(codec="utf-8", exclude_characters="<|>"), max_size=8),
)


@given(st.lists(JOINED, min_size=1, max_size=3))
def test_merges_across_joins_are_those_of_the_whole_text(
    words: tuple[Vocabulary, ChatTemplate], contents: list[str]
) -> None:
    vocabulary, chat_template = words
    messages = [
        Message(role="assistant" if idx % 2 else "user", content=content) for idx, content in enumerate(contents)
    ]
    encoded = encode_chat(vocabulary, chat_template, messages)
    assert list(encoded.ids) == vocabulary.encode(encoded.text, add_special=False, parse_special=True)


@given(content=TROUBLE)
def test_typed_control_text_is_cut_into_tokens_like_any_text(
    words: tuple[Vocabulary, ChatTemplate], content: str
) -> None:
    vocabulary, _ = words
    found = encode_chat(vocabulary, template("<|im_start|>{{ messages[0].content }}!<|im_end|>"), [user(content)]).ids
    plain = vocabulary.encode_parts([f"{content}!"])  # in which nothing is a special token
    assert list(found) == [vocabulary.special_id("<|im_start|>"), *plain, vocabulary.special_id("<|im_end|>")]


def test_control_text_can_be_let_through(words: tuple[Vocabulary, ChatTemplate]) -> None:
    vocabulary, chat_template = words
    chat = [user("a<|im_end|>b")]
    through = encode_chat(vocabulary, chat_template, chat, parse_control_text=True)
    assert list(through.ids) == vocabulary.encode(through.text, add_special=False, parse_special=True)
    assert len(through.ids) < len(encode_chat(vocabulary, chat_template, chat).ids)


@pytest.mark.parametrize("name", REAL)
def test_reference_prompts_are_encoded_as_their_text(name: str, model_path: PathOf) -> None:
    vocabulary, chat_template = real_words(model_path(name))
    for case in reference("chat_template", name)["cases"]:
        messages = [message_of(message) for message in case["messages"]]
        encoded = encode_chat(vocabulary, chat_template, messages, add_generation_prompt=case["add_generation_prompt"])
        assert encoded.text == case["prompt"]
        if "evil" not in case["prompt"]:
            assert list(encoded.ids) == vocabulary.encode(case["prompt"], add_special=True, parse_special=True)


BOS_SOURCES = {"writes": "{{ bos_token }}", "writes two": "{{ bos_token }}{{ bos_token }}", "does not write": ""}


@pytest.mark.parametrize("adds", [True, False])
@pytest.mark.parametrize("written", BOS_SOURCES)
def test_one_bos_whoever_puts_it(written: str, adds: bool) -> None:
    vocabulary = load_vocabulary(sentence_piece_metadata(changes={"add_bos_token": adds}))
    source = BOS_SOURCES[written] + "{% for m in messages %}{{ m.content }}{% endfor %}"
    for content in ("the fox", "<bos>the fox", "the <bos>"):
        ids = encode_chat(vocabulary, template(source, {"bos_token": "<bos>"}), [user(content)]).ids
        expected = adds or written != "does not write"
        assert ids.count(2) == expected
        assert (ids[0] == 2) == expected


def test_thinking_opened_by_the_template_is_a_token_and_typed_thinking_is_not() -> None:
    thinking = template(THINKING_TEMPLATE)
    tag = TINY.special_id("<think>")
    encoded = encode_chat(TINY, thinking, [user("<think>no</think>")], enable_thinking=True)
    assert encoded.ids.count(tag) == 1
    assert encoded.text.endswith("<|im_start|>assistant\n<think>\n")
    assert TINY.special_id("</think>") not in encoded.ids


def test_thinking_in_an_answer_is_a_token() -> None:
    answer = Message(role="assistant", content="<think>the</think>fox<|im_end|>")
    for chat in ([user("a"), answer, user("b")], [user("a"), answer]):
        ids = encode_chat(TINY, CHATML, chat).ids
        assert ids.count(TINY.special_id("<think>")) == ids.count(TINY.special_id("</think>")) == 1
        assert ids.count(TINY.special_id("<|im_end|>")) == (3 if len(chat) == 3 else 1)


def test_control_text_in_tools_and_in_json_stays_text() -> None:
    source = (
        "{% for tool in tools %}{{ tool | tojson }}{% endfor %}"
        "{% for m in messages %}<|im_start|>{{ m.content | tojson(ensure_ascii=true) }}<|im_end|>{% endfor %}"
    )
    tools = [{"name": "<|im_end|>", "parameters": {"<|im_start|>": ["<|im_end|>", 1, None]}}]
    encoded = encode_chat(TINY, template(source), [user("é<|im_end|>")], tools=tools)
    assert [token_id for token_id in encoded.ids if TINY.is_control(token_id)] == [1, 2]
    assert encoded.text == (
        '{"name": "<|im_end|>", "parameters": {"<|im_start|>": ["<|im_end|>", 1, null]}}'
        '<|im_start|>"\\u00e9<|im_end|>"<|im_end|>'
    )


def test_a_content_that_completes_the_templates_token_stays_text() -> None:
    source = "{% for m in messages %}<|im_{{ m.content }}|><|im_end|>{% endfor %}"
    for content in ("end", "end|><|im_start", ""):
        encoded = encode_chat(TINY, template(source), [user(content)])
        assert [token_id for token_id in encoded.ids if TINY.is_control(token_id)] == [2]
        assert encoded.text == f"<|im_{content}|><|im_end|>"


def test_the_turn_ends_where_the_template_closes_it() -> None:
    vocabulary = load_vocabulary(byte_pair_metadata(added={"<over>": CONTROL, "\n": USER_DEFINED}))
    closing = template("{% for m in messages %}{{ m.content }} <over>\n{% endfor %}")
    over = vocabulary.special_id("<over>")
    assert over not in vocabulary.end_ids
    assert encode_chat(vocabulary, closing, [user("a")]).end_ids == vocabulary.end_ids | {over}
    open_ended = template("{% for m in messages %}{{ m.content }}\n{% endfor %}")
    assert encode_chat(vocabulary, open_ended, [user("a")]).end_ids == vocabulary.end_ids
    assert encode_chat(vocabulary, None, [user("a")]).end_ids == vocabulary.end_ids


def test_a_folded_system_text_is_told_and_guarded() -> None:
    chat = [Message(role="system", content="the<end_of_turn>"), user("fox")]
    encoded = encode_chat(PIECES, TURNS, chat)
    assert "System role not supported" in encoded.notes[0]
    assert encoded.text == ("<bos><start_of_turn>user\nthe<end_of_turn>\n\nfox<end_of_turn>\n<start_of_turn>model\n")
    controls = [PIECES.token_text(token_id) for token_id in encoded.ids if PIECES.is_control(token_id)]
    assert controls == ["<bos>", "<start_of_turn>", "<end_of_turn>", "<start_of_turn>"]


def test_a_chat_of_all_noncharacters_is_refused() -> None:
    everything = "".join(map(chr, range(0xFDD0, 0xFDF0)))
    assert everything[3:] in encode_chat(TINY, CHATML, [user(everything[3:])]).text
    with pytest.raises(TemplateError, match="U\\+FDD0 to U\\+FDEF"):
        encode_chat(TINY, CHATML, [user(everything)])


def test_refusals_come_through(words: tuple[Vocabulary, ChatTemplate]) -> None:
    refusing = ChatTemplate("{{ raise_exception('Not today.') }}", {}, process=child())
    with pytest.raises(TemplateError, match="Not today."):
        encode_chat(words[0], refusing, [user("a")])


def test_wrapping_all_options_in_one_call_changes_nothing() -> None:
    options: dict[str, Any] = {"enable_thinking": True, "tools": [{"name": "f"}]}
    thinking = template(THINKING_TEMPLATE)
    assert encode_chat(TINY, thinking, [user("a")], **options) == ChatEncoder(TINY, thinking).encode(
        [user("a")], **options
    )
