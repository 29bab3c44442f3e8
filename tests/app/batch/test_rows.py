"""What a row may say, what is refused, and how {placeholders} are filled."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.batch.placeholders import filled, names_in
from app.batch.rows import BadRow, Defaults, Row, read_filled_rows, read_rows, request_key
from app.errors import AppError, UsageError
from app.preferences import Preferences
from runtime import Message, OutputConstraint

SCHEMA = {"type": "null"}
DEFAULTS = Defaults(preferences=Preferences(temp=0.5, predict=7))


def rows_of(tmp_path: Path, *lines: object, defaults: Defaults = DEFAULTS) -> list[Row | BadRow]:
    path = tmp_path / "строки 行.jsonl"
    texts = [line if isinstance(line, str) else json.dumps(line) for line in lines]
    path.write_text("\n".join(texts), "utf-8")
    return read_rows(path, defaults)


def only(rows: list[Row | BadRow]) -> Row:
    (row,) = rows
    assert isinstance(row, Row), row
    return row


def test_a_row_may_say_what_the_flags_say(tmp_path: Path) -> None:
    value = {
        **{"id": "é", "prompt": "Hi", "seed": 3, "temp": 1, "top_k": 5, "stop": "END", "samplers": "top_k;temp"},
        **{"raw": True, "predict": 9, "logprobs": 2, "meta": {"mine": [1]}, "logit_bias": ["7-inf"]},
    }
    row = only(rows_of(tmp_path, value))
    sampling = row.options.sampling
    assert (row.id, row.prompt, row.line, row.meta) == ("é", "Hi", 1, {"mine": [1]})
    assert (sampling.seed, sampling.temperature, sampling.top_k) == (3, 1.0, 5)
    assert sampling.samplers == ("top_k", "temperature") and sampling.logit_bias == ((7, float("-inf")),)
    assert (row.options.stop, row.options.raw, row.options.max_tokens, row.options.logprobs) == (("END",), True, 9, 2)


@pytest.mark.parametrize("written", [{"reasoning_effort": "high"}, '{"reasoning_effort": "high"}'])
def test_a_row_may_choose_the_template_and_its_variables(tmp_path: Path, written: object) -> None:
    row = only(rows_of(tmp_path, {"prompt": "Hi", "chat_template": "rag", "chat_template_kwargs": written}))
    assert (row.options.chat_template, row.options.template_variables) == ("rag", {"reasoning_effort": "high"})
    other = only(rows_of(tmp_path, {"prompt": "Hi", "chat_template": "rag"}))
    assert request_key(row, "f") != request_key(other, "f")


@pytest.mark.parametrize("written", ["{", "[1]", {"messages": []}, {"a b": 1}])
def test_variables_that_are_none_are_refused(tmp_path: Path, written: object) -> None:
    (row,) = rows_of(tmp_path, {"prompt": "Hi", "chat_template_kwargs": written})
    assert isinstance(row, BadRow) and "chat-template-kwargs" in row.fault


def test_what_a_row_does_not_say_the_flags_say(tmp_path: Path) -> None:
    schema = OutputConstraint(kind="regex", text="a+")
    defaults = Defaults(preferences=Preferences(temp=0.5, system="Be kind"), constraint=schema, logprobs=1)
    first, second, third = rows_of(
        tmp_path,
        {"prompt": "Hi"},
        "",
        {"messages": [{"role": "user", "content": "a"}], "temp": 0, "json_object": False},
        {
            "messages": [{"role": "system", "content": "own"}, {"role": "user", "content": "a"}],
            "schema": {"type": "null"},
        },
        defaults=defaults,
    )
    assert isinstance(first, Row) and isinstance(second, Row) and isinstance(third, Row)
    assert first.prompt == (Message(role="system", content="Be kind"), Message(role="user", content="Hi"))
    assert (first.id, second.id) == (1, 3), "the line is the name where there is none"
    assert first.options.constraint == schema and first.options.sampling.temperature == 0.5
    assert second.options.constraint is None and second.options.sampling.temperature == 0
    assert [message.content for message in second.prompt if isinstance(message, Message)] == ["Be kind", "a"]
    assert [message.content for message in third.prompt if isinstance(message, Message)] == ["own", "a"]
    assert third.options.constraint == OutputConstraint(kind="json_schema", text='{"type": "null"}')


@pytest.mark.parametrize(
    ("value", "fault"),
    [
        ("{", "it is no JSON"),
        ("[" * 100_000, "it is no JSON"),
        ("3", "it is no JSON object"),
        ({"id": 1}, "either prompt or messages"),
        ({"prompt": "a", "messages": []}, "either prompt or messages"),
        ({"prompt": "a", "tempp": 1}, "did you mean 'temp'?"),
        ({"prompt": "a", "label": 1}, "what is yours goes into 'meta'"),
        ({"prompt": 3}, "prompt is 3; expected a text"),
        ({"prompt": "a", "id": 1.5}, "id is 1.5"),
        ({"prompt": "a", "id": True}, "id is true"),
        ({"prompt": "a", "n_predict": 3, "max_tokens": 3}, "max_tokens and predict mean the same"),
        ({"prompt": "a", "temp": "hot"}, "temp is 'hot'; expected a number"),
        ({"prompt": "a", "temp": -1}, "--temp"),
        ({"prompt": "a", "raw": 1}, "raw is 1; expected true or false"),
        ({"prompt": "a", "stop": [""]}, "--stop"),
        ({"prompt": "a", "schema": {}, "regex": "a"}, "schema and regex don't go together"),
        ({"prompt": "a", "schema": {}, "stop": "x"}, "--stop"),
        ({"prompt": "a", "regex": ""}, "--regex"),
        ({"prompt": "a", "raw": True, "system": "b"}, "which raw leaves out"),
        ({"messages": []}, "messages is no list of turns"),
        ({"messages": [{"role": "user", "content": "a"}, {"role": "user"}]}, "messages[1]"),
        ({"messages": [{"role": "user", "content": "a"}], "raw": True}, "which raw leaves out"),
        ({"prompt": "a", "logit_bias": ["x"]}, "--logit-bias"),
    ],
)
def test_what_cannot_be_meant_is_a_bad_row_and_the_rest_goes_on(tmp_path: Path, value: Any, fault: str) -> None:
    good, bad, other = rows_of(tmp_path, {"prompt": "a"}, value, {"prompt": "b"})
    assert isinstance(good, Row) and isinstance(other, Row) and other.line == 3
    assert isinstance(bad, BadRow) and bad.line == 2
    assert fault in bad.fault and not bad.fault.endswith(".")


def test_an_id_is_used_once(tmp_path: Path) -> None:
    first, second, third = rows_of(tmp_path, {"prompt": "a", "id": 2}, {"prompt": "b"}, {"prompt": "c", "id": "2"})
    assert isinstance(first, Row)
    assert isinstance(second, BadRow) and second.fault == "its id 2 is that of line 1"
    assert isinstance(third, BadRow)


def test_the_key_of_a_request_changes_with_all_that_an_answer_depends_on(tmp_path: Path) -> None:
    values = [
        {"prompt": "a"},
        {"prompt": "b"},
        {"prompt": "a", "temp": 0.6},
        {"prompt": "a", "seed": 1},
        {"prompt": "a", "schema": {"type": "null"}},
        {"messages": [{"role": "user", "content": "a"}]},
    ]
    keys = [request_key(only(rows_of(tmp_path, value)), "model") for value in values]
    keys.append(request_key(only(rows_of(tmp_path, values[0])), "other model"))
    assert len(set(keys)) == len(keys)
    assert request_key(only(rows_of(tmp_path, {"id": 5, "meta": 1, **values[0]})), "model") == keys[0]


@given(st.text(alphabet="{}ab \n", max_size=30), st.text(max_size=5))
def test_only_placeholders_change(template: str, value: str) -> None:
    names = names_in(template)
    text = filled(template, dict.fromkeys(names, value))
    if not names:
        assert text == template.replace("{{", "{").replace("}}", "}") or "{{" in template or "}}" in template
    with_braces = template.replace("{", "{{").replace("}", "}}")
    assert names_in(with_braces) == [] and filled(with_braces, {}) == template


def test_values_are_filled_in_as_text() -> None:
    values = {"a": "{b}", "b": 3, "c": None, "d e": ["é"]}
    assert filled("{a} { b }{c}|{d e} {{a}} {", values) == '{b} 3|["é"] {a} {'


CSV = 'id,name,text\r\n1,Ann,"two\nlines, ""quoted"""\r\n2,Bob\r\n3,Cid,x\r\n'


def test_a_csv_fills_a_prompt(tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    path.write_text("\ufeff" + CSV, "utf-8", newline="")
    first, bad, last = read_filled_rows(path, "{name}: {text}", DEFAULTS)
    assert isinstance(first, Row) and (first.id, first.prompt) == ("1", 'Ann: two\nlines, "quoted"')
    assert isinstance(bad, BadRow) and bad.line == 4 and "another number of fields" in bad.fault
    assert isinstance(last, Row) and (last.id, last.prompt, last.line) == ("3", "Cid: x", 5)
    with pytest.raises(UsageError, match="no column 'nam', which the prompt names; it has 'id', 'name', 'text'"):
        read_filled_rows(path, "{nam}", DEFAULTS)


def test_a_jsonl_fills_a_prompt(tmp_path: Path) -> None:
    path = tmp_path / "table.jsonl"
    path.write_text('{"word": "cat"}\n{"wrd": 1}\n[]\n{"word": 7, "id": "x"}\n')
    first, lacking, wrong, last = read_filled_rows(path, "a {word}", DEFAULTS)
    assert isinstance(first, Row) and (first.id, first.prompt) == (1, "a cat")
    assert isinstance(lacking, BadRow) and "lacks 'word'" in lacking.fault
    assert isinstance(wrong, BadRow) and "no JSON object" in wrong.fault
    assert isinstance(last, Row) and (last.id, last.prompt) == ("x", "a 7")


def test_a_missing_file_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(AppError, match="can't be read: No such file"):
        read_rows(tmp_path / "none.jsonl", DEFAULTS)
