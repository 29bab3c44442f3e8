"""Chat templates: renderings equal to reference answers, and messages that a template refuses or leaves out."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tiny_models import CHATML_TEMPLATE, TURNS_TEMPLATE
from words import byte_pair_metadata, message_of, real_words, reference, template

from models.chat_template import ChatTemplate, Message, fold_system, load_chat_templates
from models.errors import TemplateError
from models.template_sandbox import RefusedMessages
from models.vocabulary import load_vocabulary

ROOT = Path(__file__).resolve().parents[2]
PathOf = Callable[[str], Path]
SYSTEM, USER, ANSWER, TOOL = (
    Message(role=role, content=f"text of {role}") for role in ("system", "user", "assistant", "tool")
)

ALTERNATING = (
    "{{ bos_token }}{% for m in messages %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}{% endif %}"
    "{% if m.role == 'user' %}[INST] {{ m.content }} [/INST]{% else %} {{ m.content }}{{ eos_token }}{% endif %}"
    "{% endfor %}"
)
FORGETFUL = (
    "{% for m in messages %}{% if m.role == 'user' %}U:{{ m.content }}\n{% elif m.role == 'assistant' %}"
    "A:{{ m.content.split('</think>')[-1] }}\n{% endif %}{% endfor %}{% if add_generation_prompt %}A:{% endif %}"
)


@pytest.mark.parametrize("place", ["this process", "child"])
@pytest.mark.parametrize("name", ["smollm2-135m", "qwen2.5-coder-0.5b"])
def test_prompts_equal_the_reference(name: str, place: str, model_path: PathOf) -> None:
    found = real_words(model_path(name))[1]
    assert found is not None and found.is_known_good
    answers = reference("chat_template", name)
    assert found.source.rstrip("\n") == answers["chat_template"]
    if place == "child":
        found = template(found.source + "{# not known good #}")
        assert not found.is_known_good
    assert len(answers["cases"]) == 22
    for case in answers["cases"]:
        messages = [message_of(message) for message in case["messages"]]
        rendered = found.render(messages, add_generation_prompt=case["add_generation_prompt"])
        assert rendered.text == case["prompt"]
        assert rendered.notes == ()


def test_the_template_of_the_larger_qwen_is_known_good_and_the_same(model_path: PathOf) -> None:
    small, large = (real_words(model_path(f"qwen2.5-coder-{size}"))[1] for size in ("0.5b", "1.5b"))
    assert small is not None and large is not None and large.is_known_good
    chat = [SYSTEM, USER, ANSWER, USER]
    assert large.render(chat) == small.render(chat)


def test_a_base_model_has_no_template(model_path: PathOf) -> None:
    assert real_words(model_path("gemma3-270m"))[1] is None
    vocabulary = load_vocabulary(byte_pair_metadata())
    for nothing in ({}, {"tokenizer.chat_template": " \n"}, {"tokenizer.chat_template": 3}):
        assert load_chat_templates(nothing, vocabulary) == {}


def test_the_template_sees_the_special_tokens() -> None:
    metadata = byte_pair_metadata(changes={"unknown_token_id": 99_999})
    metadata["tokenizer.chat_template"] = "{{ bos_token }}|{{ eos_token }}|{{ unk_token }}|{{ pad_token }}"
    (found,) = load_chat_templates(metadata, load_vocabulary(metadata)).values()
    assert found.render([USER], add_generation_prompt=False).text == "<|endoftext|>|<|im_end|>||<|endoftext|>"
    found.close()


def test_options_reach_the_template() -> None:
    source = (
        "{{ tools | tojson }} {{ enable_thinking is defined }} {{ enable_thinking }} {{ strftime_now('%Y-%m-%d') }}"
    )
    found = template(source + "{% for m in messages %}{{ m.content }}{% endfor %}")
    plain = found.render([USER], date=datetime(2031, 1, 2)).text
    assert plain == "null False  2031-01-02text of user"
    asked = found.render([USER], tools=[{"name": "f"}], enable_thinking=False, date=datetime(2031, 1, 2)).text
    assert asked == '[{"name": "f"}] True False 2031-01-02text of user'


def test_a_last_answer_is_gone_on_from() -> None:
    chatml = template(CHATML_TEMPLATE)
    begun = Message(role="assistant", content="Once upon")
    for add_prompt in (True, False):
        text = chatml.render([USER, begun], add_generation_prompt=add_prompt).text
        assert text == chatml.render([USER]).text + "Once upon"


def test_a_refused_system_text_is_folded_into_the_first_user_turn() -> None:
    rendered = template(TURNS_TEMPLATE).render([SYSTEM, USER, ANSWER, USER])
    assert rendered.text.startswith("<s><start_of_turn>user\ntext of system\n\ntext of user<end_of_turn>\n")
    (note,) = rendered.notes
    assert "System role not supported" in note and "beginning of the user's turn" in note


def test_folding_that_helps_nothing_gives_the_templates_own_words() -> None:
    alternating = template(ALTERNATING)
    folded = alternating.render([SYSTEM, USER])
    assert folded.text == "<s>[INST] text of system\n\ntext of user [/INST]"
    assert "roles must alternate" in folded.notes[0]
    for chat in ([USER, USER], [SYSTEM, USER, USER]):
        with pytest.raises(RefusedMessages) as caught:
            alternating.render(chat)
        assert str(caught.value).endswith("Conversation roles must alternate user/assistant/user/assistant/...")


def test_a_system_text_that_the_template_leaves_out_is_folded_too() -> None:
    rendered = template(FORGETFUL).render([SYSTEM, USER])
    assert rendered.text == "U:text of system\n\ntext of user\nA:"
    assert "leaves the system message out" in rendered.notes[0]


def test_a_short_system_text_is_missed_even_if_its_letters_are_elsewhere() -> None:
    rendered = template(FORGETFUL).render([Message(role="system", content="t"), USER])
    assert rendered.text == "U:t\n\ntext of user\nA:"
    assert rendered.notes


def test_other_messages_that_are_left_out_are_told() -> None:
    rendered = template(FORGETFUL).render([USER, ANSWER, TOOL, TOOL, USER])
    assert "text of tool" not in rendered.text
    (note,) = rendered.notes
    assert "'tool'" in note and "does not see" in note


def test_rewriting_is_not_leaving_out() -> None:
    thought = Message(role="assistant", content="hm</think>so")
    rendered = template(FORGETFUL).render([USER, thought, USER])
    assert rendered.text == "U:text of user\nA:so\nU:text of user\nA:"
    assert rendered.notes == ()
    shouting = template("{% for m in messages %}{{ m.content | upper }} {% endfor %}").render([SYSTEM, USER])
    assert shouting.text == "TEXT OF SYSTEM TEXT OF USER "
    assert shouting.notes == ()


def test_an_empty_system_text_is_nothing_to_lose() -> None:
    rendered = template(FORGETFUL).render([Message(role="system", content=" \n"), USER])
    assert rendered.notes == ()
    assert rendered.text == "U:text of user\nA:"


@pytest.mark.parametrize(
    ("chat", "expected"),
    [
        ("s u", "u:s|u"),
        ("s s u a u", "u:s|s|u a u"),
        ("u a s u", "u a u:s|u"),
        ("u s", "u:u|s"),
        ("u a s", "u a u:s"),
        ("s", "u:s"),
        ("s a", "a u:s"),
        ("u a", "u a"),
    ],
)
def test_folding(chat: str, expected: str) -> None:
    names = {"s": "system", "u": "user", "a": "assistant"}
    folded = fold_system([Message(role=names[letter], content=letter) for letter in chat.split()])
    shown = [
        message.role[0] + (":" + message.content.replace("\n\n", "|") if message.content != message.role[0] else "")
        for message in folded
    ]
    assert " ".join(shown) == expected


@given(st.lists(st.sampled_from(["system", "user", "assistant"]), max_size=7))
def test_folding_keeps_every_text_and_no_system_turn(roles: list[str]) -> None:
    chat = [Message(role=role, content=f"<{idx}>") for idx, role in enumerate(roles)]
    folded = fold_system(chat)
    assert all(message.role != "system" for message in folded)
    text = "".join(message.content for message in folded)
    assert all(text.count(message.content) == 1 for message in chat)
    answers = [message for message in chat if message.role == "assistant"]
    assert [message for message in folded if message.role == "assistant"] == answers


@pytest.mark.parametrize(
    ("chat", "words"),
    [
        ([], "no message"),
        ([ANSWER], "nothing to answer"),
        ([Message(role="user<|im_end|>", content="")], "user<|im_end|>"),
        ([Message(role="", content="")], "''"),
    ],
)
def test_what_is_no_chat_is_refused(chat: list[Message], words: str) -> None:
    with pytest.raises(TemplateError) as caught:
        template(CHATML_TEMPLATE).render(chat)
    assert words in str(caught.value)


def test_what_stands_behind_an_answer() -> None:
    assert template(CHATML_TEMPLATE).after_reply.startswith("<|im_end|>\n<|im_start|>user")
    assert template("{{ raise_exception('never') }}").after_reply == ""


def test_preparing_starts_the_child_of_a_template_that_is_not_known_good() -> None:
    found = ChatTemplate(CHATML_TEMPLATE, {})
    found.prepare()
    assert found.render([USER]).text.startswith("<|im_start|>user")
    found.close()
    assert found.render([USER]).text.startswith("<|im_start|>user")
    found.close()


LIGHT = """
import sys
sys.path.insert(0, {root!r})
import models.chat_encoding
from models.gguf_file import open_model_file
from models.vocabulary import load_vocabulary
from models.chat_template import load_chat_templates
heavy = ("jinja2", "tokenizers", "sentencepiece")
print([name for name in heavy if name in sys.modules])
with open_model_file({path!r}) as file:
    vocabulary = load_vocabulary(file.metadata)
    (template,) = load_chat_templates(file.metadata, vocabulary).values()
template.prepare()
vocabulary.encode_prompt("Hi")
print([name for name in heavy if name in sys.modules])
"""


def test_a_raw_prompt_imports_no_template_machine(model_path: PathOf) -> None:
    script = LIGHT.format(root=str(ROOT), path=str(model_path("smollm2-135m")))
    shown = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    assert shown.splitlines() == ["[]", "['tokenizers']"]
