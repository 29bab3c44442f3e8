"""Answers held to a schema, an expression or a grammar, by tiny models that know nothing: what ends is always valid."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Literal

import jsonschema
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_models import write_tiny_model

from runtime.constraints import ConstraintCompiler, ConstraintKind, OutputConstraint
from runtime.engine import Engine
from runtime.errors import ConstraintError, NoTokenLeftError, OptionError
from runtime.generation import Completion
from runtime.options import EngineOptions, GenerateOptions
from runtime.sampling import SamplingOptions
from runtime.speculation.options import SpeculationOptions
from runtime.token_texts import TokenTexts

NUM_TOKENS = 600


@pytest.fixture(scope="module", params=["byte_pair", "sentence_pieces"])
def engine(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    path = write_tiny_model(tmp_path_factory.mktemp("models") / f"{request.param}.gguf", vocabulary=request.param)
    options = EngineOptions(max_sequences=4, threads=1, batch_size=64, context_size=1024)
    with Engine.load(path, options) as engine:
        yield engine


def held(kind: ConstraintKind, text: str = "", *, seed: int = 1, max_tokens: int = NUM_TOKENS) -> GenerateOptions:
    return GenerateOptions(
        constraint=OutputConstraint(kind=kind, text=text),
        sampling=SamplingOptions(seed=seed, temperature=1.2, top_k=0, top_p=1, min_p=0),
        max_tokens=max_tokens,
        raw=True,
    )


def answer(engine: Engine, options: GenerateOptions) -> Completion:
    return engine.generate("x", options).result


def texts(max_size: int) -> st.SearchStrategy[str]:
    """Without the control characters that JSON has no short spelling for."""
    return st.text(
        alphabet=st.characters(exclude_categories=["Cs"], exclude_characters="\x7f", min_codepoint=32)
        | st.sampled_from("\n\t"),
        max_size=max_size,
    )


names = st.sampled_from(["a", "name", "ключ", 'q"t', "x y", "a/b"])
leaves = st.one_of(
    st.builds(
        lambda low, size: {"type": "integer", "minimum": low, "maximum": low + size},
        st.integers(-2000, 2000),
        st.integers(0, 5000),
    ),
    st.builds(
        lambda low, size: {"type": "string", "minLength": low, "maxLength": low + size},
        st.integers(0, 3),
        st.integers(0, 8),
    ),
    st.sampled_from(
        [
            {"type": "boolean"},
            {"type": "null"},
            {"type": ["boolean", "null"]},
            {"type": "string", "pattern": r"^\d{2,4}-\w{1,5}$"},
            {"type": "string", "pattern": r"^[^\"\\]{0,3}\s\"\\/é\.$"},
            {"type": "string", "pattern": r"\d\s\.", "maxLength": 12},
            {"type": "string", "format": "date"},
            {"type": "integer", "multipleOf": 7, "minimum": 0, "maximum": 700},
            {"$ref": "#/$defs/shared"},
        ]
    ),
    st.builds(
        lambda values: {"enum": values},
        st.lists(
            st.one_of(st.none(), st.booleans(), st.integers(-(2**53), 2**53), texts(5)),
            min_size=1,
            max_size=4,
        ),
    ),
    st.builds(lambda text: {"const": text}, texts(6)),
)


def _object(parts: dict[str, Any], required: list[bool]) -> dict[str, Any]:
    chosen = [name for name, is_required in zip(parts, required, strict=False) if is_required]
    return {"type": "object", "properties": parts, "required": chosen, "additionalProperties": False}


def _containers(parts: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(
        st.builds(_object, st.dictionaries(names, parts, min_size=1, max_size=3), st.lists(st.booleans(), min_size=3)),
        st.builds(
            lambda part, low, size: {"type": "array", "items": part, "minItems": low, "maxItems": low + size},
            parts,
            st.integers(0, 2),
            st.integers(0, 2),
        ),
        st.builds(lambda options: {"anyOf": options}, st.lists(parts, min_size=1, max_size=3)),
    )


schemas = st.recursive(leaves, _containers, max_leaves=6)
SHARED = {"$defs": {"shared": {"type": "object", "properties": {"on": {"type": "boolean"}}, "required": ["on"]}}}
SHARED["$defs"]["shared"]["additionalProperties"] = False


@settings(max_examples=60)
@given(schema=schemas, seed=st.integers(0, 2**32))
def test_what_ends_parses_and_validates(engine: Engine, schema: dict[str, Any], seed: int) -> None:
    schema = {**schema, **SHARED}
    result = answer(engine, held("json_schema", json.dumps(schema), seed=seed))
    assert result.finish_reason == "stop"
    jsonschema.validate(json.loads(result.text), schema, cls=jsonschema.Draft202012Validator)


OPEN_OBJECTS = [
    {
        "properties": {"a/b": {"enum": [1]}, "é": {"enum": [2]}, "n\n": {"enum": [3]}},
        "additionalProperties": {"enum": [""]},
    },
    {"patternProperties": {"^x": {"enum": [1]}, "^y": {"enum": [None]}}, "additionalProperties": False},
    {"properties": {"a": {}, "b": {"enum": [1]}}, "additionalProperties": False, "minProperties": 1},
    {"required": ["z"], "properties": {"z": {"enum": [1]}}, "maxProperties": 2, "minProperties": 1},
]


@pytest.mark.parametrize("schema", OPEN_OBJECTS)
def test_objects_with_keys_of_the_models_own_validate(engine: Engine, schema: dict[str, Any]) -> None:
    schema = {"type": "object", **schema}
    num_ended = 0
    for seed in range(25):
        result = answer(engine, held("json_schema", json.dumps(schema), seed=seed, max_tokens=200))
        if result.finish_reason == "stop":
            num_ended += 1
            jsonschema.validate(json.loads(result.text), schema, cls=jsonschema.Draft202012Validator)
    assert num_ended > 5


LETTERS = TokenTexts(lambda token_id: bytes([token_id]), num_tokens=256)


def test_a_key_has_one_spelling() -> None:
    compiler = ConstraintCompiler(LETTERS, list)
    schema = {"type": "object", "properties": {"a/b": {"type": "integer"}}, "additionalProperties": {"type": "string"}}
    constraint = OutputConstraint(kind="json_schema", text=json.dumps(schema))

    def is_allowed(text: str) -> bool:
        mask = compiler.mask(constraint, num_prompt=0, end_ids=frozenset())
        row = np.zeros(256, dtype=np.float32)
        try:
            mask.apply(row, list(text.encode()))
        except ConstraintError:
            return False
        return True

    assert is_allowed('{"a/b":1') and is_allowed('{"c":"x"') and is_allowed('{"c\\n":"x"')
    for key in ("a/b", "a\\/b", "\\u0061/b", "a\\u002fb", "a\\u002Fb"):
        assert not is_allowed(f'{{"{key}":"x"'), key


@pytest.mark.parametrize("seed", range(4))
def test_any_json_object_parses(engine: Engine, seed: int) -> None:
    result = answer(engine, held("json_object", seed=seed, max_tokens=900))
    if result.finish_reason == "stop":
        assert isinstance(json.loads(result.text), dict)
    else:
        assert result.finish_reason in ("length", "context")
        with pytest.raises(ValueError, match=r".*"):
            json.loads(result.text)


@pytest.mark.parametrize(
    "pattern", [r"\d{3}-\w{2,4}\s[a-f]{2}", "^(yes|no)$", r"\\\"\.{2}[^a-z\n]{1,3}", "(ab){2}c?", "é[à-ü]{2}"]
)
def test_the_whole_answer_matches_an_expression(engine: Engine, pattern: str) -> None:
    for seed in range(5):
        result = answer(engine, held("regex", pattern, seed=seed))
        assert result.finish_reason == "stop"
        assert re.fullmatch(pattern, result.text)


GBNF = 'root ::= "yes" | "no" (" " word)+ "."\nword ::= [a-c] [0-9]{2} # two digits\n'
LARK = 'start: "yes" | "no" (" " word)~1..3 "."\nword: /[a-c][0-9]{2}/\n'


@pytest.mark.parametrize(("text", "pattern"), [(GBNF, r"yes|no( [a-c]\d\d)+\."), (LARK, r"yes|no( [a-c]\d\d){1,3}\.")])
def test_an_answer_follows_a_grammar(engine: Engine, text: str, pattern: str) -> None:
    for seed in range(6):
        result = answer(engine, held("grammar", text, seed=seed))
        assert result.finish_reason == "stop" and re.fullmatch(pattern, result.text)


def test_an_answer_that_is_cut_says_so(engine: Engine) -> None:
    result = answer(engine, held("regex", "[ab]{30}c", max_tokens=5))
    assert result.finish_reason == "length" and len(result.ids) == 5
    assert re.fullmatch("[ab]{5,}", result.text)


def test_the_end_of_a_grammar_is_the_end_even_where_end_tokens_are_ignored(engine: Engine) -> None:
    for pattern in ("abc", "abc|abcd?"):
        result = answer(engine, replace(held("regex", pattern), ignore_end=True))
        assert result.finish_reason == "stop" and result.text.startswith("abc")


def test_greedy_answers_are_held_too(engine: Engine) -> None:
    options = replace(held("json_schema", '{"type": "integer", "maximum": 9, "minimum": 0}'))
    options = replace(options, sampling=SamplingOptions(temperature=0, repeat_penalty=1.2))
    assert 0 <= json.loads(answer(engine, options).text) <= 9


def test_a_batch_gives_what_each_gets_alone(engine: Engine) -> None:
    schema = json.dumps({"type": "array", "items": {"enum": ["one", 2, None, "four"]}, "maxItems": 5})
    many = [held("json_schema", schema, seed=1), held("regex", "[a-z]{9}"), held("grammar", GBNF), held("json_object")]
    alone = [answer(engine, options).ids for options in many]
    together = [generation.result.ids for generation in [engine.generate("x", options) for options in many]]
    assert together == alone


@pytest.mark.parametrize("mode", ["ngram", "draft"])
def test_guessing_ahead_changes_nothing(
    engine: Engine, tmp_path_factory: pytest.TempPathFactory, mode: Literal["ngram", "draft"]
) -> None:
    folder = tmp_path_factory.mktemp("drafts")
    kind = "sentence_pieces" if "sentence" in engine.description.path.stem else "byte_pair"
    draft = write_tiny_model(folder / "draft.gguf", vocabulary=kind, seed=9)
    guessing = SpeculationOptions(mode=mode, draft_model=draft if mode == "draft" else None)
    schema = json.dumps({"type": "array", "items": {"enum": ["one", "oneone", None]}, "minItems": 3, "maxItems": 30})
    many = [held("json_schema", schema, seed=seed) for seed in range(4)]
    many += [held("regex", "(abc){4,9}"), held("grammar", GBNF), held("json_object", max_tokens=150)]
    many.append(replace(many[0], sampling=replace(many[0].sampling, temperature=0.0)))
    letters = held("regex", "[a-z ]{20}")
    many.append(replace(letters, sampling=replace(letters.sampling, mirostat=2, banned_strings=("th", "a"))))
    plain = [answer(engine, options).ids for options in many]
    loaded = EngineOptions(max_sequences=2, threads=1, batch_size=64, context_size=1024, speculation=guessing)
    with Engine.load(engine.description.path, loaded) as guesser:
        generations = [guesser.generate("x", options) for options in many]
        results = [generation.result for generation in generations]
    assert [result.ids for result in results] == plain
    reports = [result.speculation for result in results]
    assert sum(report.accepted for report in reports if report is not None) > 0


@pytest.mark.parametrize(
    ("kind", "text", "place", "fault"),
    [
        ("json_schema", '{"a":', "line 1, column 6", "no JSON"),
        ("json_schema", '{"const": NaN}', "", "it is no JSON: NaN"),
        ("json_schema", '{"not": ' * 100_000, "", "nested too deeply"),
        ("json_schema", "[1]", "", "expected an object"),
        ("json_schema", '{"type": "strin"}', "#", "strin"),
        (
            "json_schema",
            '{"properties": {"x": {"items": {"type": "string", "format": "zzz"}}}}',
            "#/properties/x/items",
            "zzz",
        ),
        ("json_schema", '{"properties": {"a/b": {"anyOf": [{}, {"not": {}}]}}}', "#/properties/a~1b/anyOf/1", "not"),
        ("json_schema", '{"items": {"type": "array", "uniqueItems": true}}', "#/items", "uniqueItems"),
        ("json_schema", '{"$ref": "#/$defs/q", "$defs": {"q": {"pattern": "(?=a)b"}}}', "#/$defs/q", "look-around"),
        ("json_schema", '{"properties": {"x": {"$ref": "#/$defs/none"}}}', "#/properties/x", "none"),
        ("json_schema", '{"type": "integer", "minimum": 5, "maximum": 4}', "#", "minimum"),
        ("json_schema", '{"items": {"type": "object", "minProperties": 1}}', "#/items", "minProperties"),
        ("json_schema", '{"properties": {"x": {"const": "\\u000b"}}}', "#/properties/x/const", "control character"),
        ("json_schema", '{"type": "string", "pattern": "^\\\\x00$"}', "", "no text"),
        ("json_schema", '{"enum": [1, 9223372036854775808]}', "#/enum/1", "53 bits"),
        ("json_schema", '{"not": {}, "x-guidance": {"lenient": true}}', "#", "not"),
        ("regex", "ab[cd", "character 3", "unclosed character class"),
        ("regex", "a(?=b)", "character 2", "look-around"),
        ("grammar", 'root ::= "a" item\n', "", "item"),
        ("grammar", 'root ::= "a"\nroot2 ::= ("b"\n', "line 3, column 1", "Expected"),
        ("grammar", 'start: "a" | c\n', "line 1, column 8", "unknown name"),
        ("grammar", 'root ::= "a" root\n', "", "no text of it ever ends"),
    ],
)
def test_what_cannot_be_honoured_is_refused_before_the_first_token(
    engine: Engine, kind: ConstraintKind, text: str, place: str, fault: str
) -> None:
    with pytest.raises(ConstraintError) as caught:
        engine.generate("x", held(kind, text))
    assert caught.value.place == place
    assert fault in str(caught.value) and place in str(caught.value)
    assert f"--{kind.replace('_', '-')}" in str(caught.value)


def test_a_refusal_has_no_advice_that_cannot_be_followed_and_no_endless_place(engine: Engine) -> None:
    deep = '{"items":' * 60 + '{"type": "strin"}' + "}" * 60
    for text in ('{"oneOf": [{"type": "integer"}, {"type": "number"}]}', deep):
        with pytest.raises(ConstraintError) as caught:
            engine.generate("x", held("json_schema", text))
        assert "Enable" not in str(caught.value) and len(str(caught.value)) < 350


def test_a_grammar_that_leads_into_what_never_ends_is_one_sentence(engine: Engine) -> None:
    with pytest.raises(ConstraintError, match="can't be held to its schema or grammar any more"):
        answer(engine, held("grammar", 'root ::= [a-z] [a-z] x\nx ::= "b" x\n'))


def test_options_that_do_not_go_together_are_refused() -> None:
    with pytest.raises(OptionError, match="--stop"):
        replace(held("json_object"), stop=("}",))
    with pytest.raises(OptionError, match="--regex"):
        OutputConstraint(kind="regex", text="")
    with pytest.raises(OptionError, match="--json-object"):
        OutputConstraint(kind="json_object", text="{}")


def test_when_nothing_is_left_the_answer_fails_in_one_sentence(engine: Engine) -> None:
    options = held("regex", "sorry")
    options = replace(options, sampling=replace(options.sampling, banned_strings=("orr",)))
    with pytest.raises(NoTokenLeftError, match="forbid"):
        _ = answer(engine, options)
    assert answer(engine, held("regex", "sorry")).text == "sorry", "the next answer is none the worse"


@pytest.mark.parametrize(
    ("kind", "text", "banned", "expected"),
    [
        ("regex", "so(rry|ap)|sorr(y|ow) me", ("sorry",), {"soap", "sorrow me"}),
        ("json_schema", '{"enum": ["sorry", "sore", "so"]}', ("orry", "ore"), {'"so"'}),
        (
            "json_schema",
            '{"type": "array", "items": {"enum": [true, null]}, "minItems": 2, "maxItems": 2}',
            ("ue",),
            None,
        ),
        ("grammar", 'root ::= ("yes" | "no") "," ("maybe" | "never")', ("no,", "may"), {"yes,never"}),
    ],
)
def test_a_banned_text_leads_into_no_dead_end(
    engine: Engine, kind: ConstraintKind, text: str, banned: tuple[str, ...], expected: set[str] | None
) -> None:
    found = set()
    for seed in range(12):
        options = held(kind, text, seed=seed)
        result = answer(engine, replace(options, sampling=replace(options.sampling, banned_strings=banned)))
        assert result.finish_reason == "stop"
        assert not any(string in result.text for string in banned)
        found.add(result.text if expected is not None else json.dumps(json.loads(result.text)))
    assert found <= (expected or {"[null, null]"})


TEXTS = TokenTexts(lambda token_id: b"" if token_id in (0, 1) else bytes([token_id]), num_tokens=128)
COMPILER = ConstraintCompiler(TEXTS, list)


@given(st.lists(st.tuples(st.integers(0, 8), st.integers(0, 2**16)), min_size=1, max_size=12))
def test_a_mask_follows_an_answer_forwards_and_back(moves: list[tuple[int, int]]) -> None:
    constraint = OutputConstraint(kind="regex", text="(ab|c)*d?[0-3]{0,4}")

    def allowed(mask: Any, history: list[int]) -> list[int]:
        row = np.zeros(128, dtype=np.float32)
        mask.apply(row, history)
        return np.flatnonzero(row == 0).tolist()

    def fresh() -> Any:
        return COMPILER.mask(constraint, num_prompt=2, end_ids=frozenset({1}))

    used, history = fresh(), [7, 7]
    for back, choice in moves:
        history = history[: max(2, len(history) - back)]
        tokens = allowed(fresh(), history)
        assert allowed(used, history) == tokens and tokens
        token_id = tokens[choice % len(tokens)]
        if token_id != 1:  # the end
            history.append(token_id)
    assert used.is_whole(history) == fresh().is_whole(history)
