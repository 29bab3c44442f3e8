"""Templates with names, variables that a person sets, and which of them a template reads."""

from __future__ import annotations

import pytest
from tiny_models import CHATML_TEMPLATE, byte_pair_vocabulary
from words import byte_pair_metadata, encode_chat

from models.chat_template import ChatTemplate, Message, load_chat_templates, template_sources
from models.template_variables import variables_of
from models.vocabulary import load_vocabulary

USER = Message(role="user", content="Hello")
EFFORT = (
    "{% if reasoning_effort is not defined %}{% set reasoning_effort = 'medium' %}{% endif %}"
    "effort {{ reasoning_effort }}\n{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
)
THINKING = "{{ messages[0].content }}|{{ 'yes' if enable_thinking | default(true) else 'no' }}"
OTHER_NAME = "{{ messages[0].content }}|{{ 'yes' if thinking else 'no' }}"


def rendered(source: str, **variables: object) -> str:
    return ChatTemplate(source, {}).render([USER], variables=variables).text


def test_a_variable_reaches_the_template() -> None:
    assert rendered(EFFORT).startswith("effort medium\n")
    assert rendered(EFFORT, reasoning_effort="high").startswith("effort high\n")
    assert rendered("{{ messages[0].content }} {{ deep.list[1] }}", deep={"list": [1, 2.5]}) == "Hello 2.5"


@pytest.mark.parametrize("name", ["enable_thinking", "thinking"])
def test_whether_to_think_is_said_under_either_name(name: str) -> None:
    assert (rendered(THINKING, **{name: False}), rendered(THINKING, **{name: True})) == ("Hello|no", "Hello|yes")
    assert (rendered(OTHER_NAME, **{name: False}), rendered(OTHER_NAME, **{name: True})) == ("Hello|no", "Hello|yes")
    found = ChatTemplate(OTHER_NAME, {}).render([USER], enable_thinking=True, variables={name: False})
    assert found.text == "Hello|no" and found.notes == ()


def test_a_variable_that_the_template_does_not_read_is_told() -> None:
    found = ChatTemplate(EFFORT, {}).render([USER], variables={"reasoning_efort": "high", "reasoning_effort": "low"})
    (note,) = found.notes
    assert "'reasoning_efort'" in note and found.text.startswith("effort low")


def test_control_text_in_a_variable_stays_text() -> None:
    vocabulary = load_vocabulary(byte_pair_vocabulary())
    template = ChatTemplate(CHATML_TEMPLATE + "{{ persona }}", {})
    plain, typed = (
        encode_chat(vocabulary, template, [USER], variables={"persona": text}).ids for text in ("x", "<|im_end|>")
    )
    end = vocabulary.special_id("<|im_end|>")
    assert plain.count(end or -1) == typed.count(end or -1) > 0
    assert vocabulary.decode(typed[len(plain) - 1 :]) == "<|im_end|>"


def test_templates_have_names_and_the_one_without_is_first() -> None:
    metadata = byte_pair_metadata() | {
        "tokenizer.chat_template.tool_use": "tools {{ messages[0].content }}",
        "tokenizer.chat_template": "plain {{ messages[0].content }}",
        "tokenizer.chat_template.rag": "rag {{ messages[0].content }}",
        "tokenizer.chat_template.empty": " ",
        "tokenizer.chat_templates": ["tool_use", "rag"],
    }
    templates = load_chat_templates(metadata, load_vocabulary(metadata))
    assert list(templates) == ["default", "rag", "tool_use"]
    assert {name: found.render([USER]).text for name, found in templates.items()} == {
        "default": "plain Hello", "rag": "rag Hello", "tool_use": "tools Hello",
    }  # fmt: skip


def test_a_file_with_named_templates_alone_is_no_base_model() -> None:
    metadata = byte_pair_metadata() | {"tokenizer.chat_template.tool_use": "tools {{ messages[0].content }}"}
    (found,) = load_chat_templates(metadata, load_vocabulary(metadata)).values()
    assert found.render([USER]).text == "tools Hello"
    assert template_sources(byte_pair_metadata()) == {}


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (EFFORT, ("reasoning_effort",)),
        ("{% set effort = effort | default('low') %}{% set own = 1 %}{{ effort }}{{ own }}", ("effort",)),
        (THINKING, ("enable_thinking",)),
        ("{% macro f(x) %}{{ x }}{{ y }}{% endmacro %}{{ f(z) }}{% for a in b %}{{ a }}{% endfor %}", ("b", "y", "z")),
        ("{{ bos_token }}{{ messages }}{{ strftime_now('%d') }}{% generation %}{{ q }}{% endgeneration %}", ("q",)),
        ("{% if %}", ()),
        ("{{ 10 ** 10 ** 10 }}{{ w }}", ("w",)),
        ("{{ " + "(" * 5000 + "x" + ")" * 5000 + " }}", ()),
    ],
)  # fmt: skip
def test_variables_of_a_template_are_found_without_running_it(source: str, expected: tuple[str, ...]) -> None:
    assert variables_of(source) == expected
