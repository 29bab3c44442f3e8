"""What the whole text of an answer must look like: a JSON schema, any JSON object, an expression, a grammar.

Owns the kinds, their compiling, and the place of a fault in what was asked for.  Does not know samplers or sequences
(grammar_mask.py).  The grammars themselves are llguidance's, imported when the first one is asked for.
"""

from __future__ import annotations

import json
import re
import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NoReturn, get_args

from runtime.errors import ConstraintError, OptionError
from runtime.grammar_mask import GrammarMask
from runtime.schema_faults import own_fault, place_of_fault
from runtime.token_texts import BannedStrings, TokenTexts

if TYPE_CHECKING:
    from llguidance import LLMatcher, LLTokenizer

ConstraintKind = Literal["json_schema", "json_object", "regex", "grammar"]

_FLAGS = {
    "json_schema": "--json-schema",
    "json_object": "--json-object",
    "regex": "--regex",
    "grammar": "--grammar",
}
_NAMES = {
    "json_schema": "The JSON schema",
    "json_object": "The JSON object",
    "regex": "The regular expression",
    "grammar": "The grammar",
}
# Between two parts of a JSON text: nothing, one blank, or a line end with an indentation.  Without a limit, a model may
# write blanks until its answer is full.
_BLANKS = r"\x20|\n(\x20{0,40}|\t{0,10})"
# Without \u, every text has one spelling, so that a key can't be a second spelling of another one.
_ESCAPES = '"\\bfnrt'
_MAX_CACHED = 64
_FEW_BEGINNINGS = 64
_LONGEST_PLACE = 120
# The library's messages may end in advice on options of its own, which nobody here can set.
_ADVICE = re.compile(r"\. Enable '.*")
_SHARED = ("$defs", "definitions", "$schema")


@dataclass(frozen=True, kw_only=True)
class OutputConstraint:
    """text: the schema as JSON, the regular expression, or the grammar (GBNF, or Lark as llguidance has it)."""

    kind: ConstraintKind
    text: str = ""

    def __post_init__(self) -> None:
        if self.kind not in get_args(ConstraintKind):
            expected = f"one of {', '.join(get_args(ConstraintKind))}"
            raise OptionError(option="constraint", flag=None, value=self.kind, expected=expected)
        if not isinstance(self.text, str) or bool(self.text) == (self.kind == "json_object"):
            expected = "no text" if self.kind == "json_object" else "a text that is not empty"
            raise OptionError(option="constraint", flag=_FLAGS[self.kind], value=self.text, expected=expected)


class ConstraintCompiler:
    """Compiles constraints for one vocabulary; any thread may ask."""

    def __init__(self, texts: TokenTexts, encode: Callable[[bytes], list[int]]) -> None:
        self._texts = texts
        self._encode = encode
        self._tokenizer: LLTokenizer | None = None
        self._compiled: OrderedDict[OutputConstraint, LLMatcher] = OrderedDict()
        self._lock = threading.Lock()

    def mask(
        self,
        constraint: OutputConstraint,
        *,
        num_prompt: int,
        end_ids: frozenset[int],
        banned: BannedStrings | None = None,
    ) -> GrammarMask:
        """A mask for one answer.  banned: what else it must not hold.

        Raises ConstraintError for what can't be honoured, naming the place.
        """
        with self._lock:
            if self._tokenizer is None:
                self._tokenizer = _make_tokenizer(self._texts, self._encode)
            matcher = self._compiled.pop(constraint, None)
            if matcher is None:
                matcher = compile_constraint(constraint, self._tokenizer)
                if (fault := _fault_of_beginning(matcher)) is not None:
                    raise _refused(constraint.kind, fault, "")
            self._compiled[constraint] = matcher
            if len(self._compiled) > _MAX_CACHED:
                self._compiled.popitem(last=False)
            own = matcher.deep_copy()
        return GrammarMask(
            own, num_prompt=num_prompt, end_ids=end_ids, num_tokens=self._texts.num_tokens, banned=banned
        )


def compile_constraint(constraint: OutputConstraint, tokenizer: LLTokenizer) -> LLMatcher:
    """A matcher at its beginning.  Raises ConstraintError."""
    from llguidance import LLMatcher

    match constraint.kind:
        case "json_schema":
            return _compile_schema(constraint.text, tokenizer)
        case "json_object":
            return _compile_schema('{"type": "object"}', tokenizer)
        case "regex":
            return _compile_expression(constraint.text, tokenizer)
        case "grammar":
            grammar = LLMatcher.grammar_from_lark(_lark(constraint.text))
    return _matcher(constraint.kind, grammar, tokenizer)


def _compile_expression(text: str, tokenizer: LLTokenizer) -> LLMatcher:
    r"""The expression with \d, \w and \s for ASCII alone: what all kinds of regular expressions agree on."""
    from llguidance import LLMatcher, regex_to_lark

    _matcher("regex", LLMatcher.grammar_from_regex(text), tokenizer)  # its messages point into the text as it is
    return _matcher("regex", LLMatcher.grammar_from_lark(f"start: /{regex_to_lark(text, 'dws')}/"), tokenizer)


def _matcher(kind: ConstraintKind, grammar: str, tokenizer: LLTokenizer) -> LLMatcher:
    from llguidance import LLMatcher

    matcher = LLMatcher(tokenizer, grammar, log_level=0)
    if matcher.is_error():
        fault, place = _fault_of_grammar(matcher.get_error(), kind)
        raise _refused(kind, fault, place)
    return matcher


def _fault_of_beginning(matcher: LLMatcher) -> str | None:
    """Why there is no first token, and no empty text either; None when there is one."""
    trial = matcher.deep_copy()
    allowed = _ids_in(trial.compute_bitmask())
    if trial.is_error() or not allowed:
        return "no text of this model's tokens is allowed by it"
    if len(allowed) <= _FEW_BEGINNINGS and not any(_can_follow(trial, token_id) for token_id in allowed):
        return "no text of it ever ends"  # the library follows what must come, and gives up
    return None


def _can_follow(matcher: LLMatcher, token_id: int) -> bool:
    trial = matcher.deep_copy()
    return trial.try_consume_tokens([token_id]) == 1 and not trial.is_error()


def _ids_in(bitmask: bytes) -> list[int]:
    return [8 * place + bit for place, byte in enumerate(bitmask) if byte for bit in range(8) if byte >> bit & 1]


def _make_tokenizer(texts: TokenTexts, encode: Callable[[bytes], list[int]]) -> LLTokenizer:
    """The vocabulary as llguidance wants it: control tokens marked, and one token more that stands for the end."""
    from llguidance import LLTokenizer, TokenizerWrapper

    class Words:
        eos_token_id = texts.num_tokens
        bos_token_id = None
        tokens = [
            *(texts.token_bytes(token_id) or b"\xff<token %d>" % token_id for token_id in range(texts.num_tokens)),
            b"\xff<end>",
        ]
        special_token_ids = [texts.num_tokens]

        def __call__(self, text: bytes) -> list[int]:
            return encode(text)

    return LLTokenizer(TokenizerWrapper(Words()))


def _compile_schema(text: str, tokenizer: LLTokenizer) -> LLMatcher:
    try:
        schema = json.loads(text, parse_constant=_no_number)
    except RecursionError as error:
        raise _refused("json_schema", "it is nested too deeply", "") from error
    except ValueError as error:
        place = f"line {error.lineno}, column {error.colno}" if isinstance(error, json.JSONDecodeError) else ""
        fault = error.msg if isinstance(error, json.JSONDecodeError) else str(error)
        raise _refused("json_schema", f"it is no JSON: {fault}", place) from error
    if not isinstance(schema, dict):
        raise _refused("json_schema", f"it is {_short(schema)}; expected an object", "")
    if (own := own_fault(schema)) is not None:
        raise _refused("json_schema", own[1], own[0])
    matcher = _schema_matcher(schema, tokenizer)
    if not matcher.is_error():
        return matcher
    fault = _first_line(matcher.get_error())

    def fails(part: object) -> bool:
        if not isinstance(part, dict):
            return False
        shared = {key: schema[key] for key in _SHARED if key in schema and key not in part}
        return _first_line(_schema_matcher({**part, **shared}, tokenizer).get_error()) == fault

    raise _refused("json_schema", fault, place_of_fault(schema, fails))


def _no_number(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number there")


def _schema_matcher(schema: dict[str, Any], tokenizer: LLTokenizer) -> LLMatcher:
    from llguidance import LLMatcher

    # Overrides beat what a schema's own "x-guidance" asks for: nothing may be ignored.
    grammar = LLMatcher.grammar_from_json_schema(
        schema,
        overrides={
            "whitespace_pattern": _BLANKS,
            "whitespace_flexible": True,
            "lenient": False,
            "coerce_one_of": False,
            "item_separator": ",",
            "key_separator": ":",
            "json_allowed_escapes": _ESCAPES,
        },
    )
    return LLMatcher(tokenizer, grammar, log_level=0)


def _lark(text: str) -> str:
    """A grammar as Lark; GBNF is translated."""
    from llguidance.gbnf_to_lark import GbnfToLarkError, gbnf_to_lark

    if "::=" not in text:
        return text
    try:
        return gbnf_to_lark(text)
    except GbnfToLarkError as error:
        line = text.count("\n", 0, error.pos.pos) + 1
        column = error.pos.pos - (text.rfind("\n", 0, error.pos.pos) + 1) + 1
        fault = str(error).split(" at line ")[0]
        raise _refused("grammar", fault, f"line {line}, column {column}") from error
    except Exception as error:  # the translator is strict about little: whatever it trips over is the grammar's
        raise _refused("grammar", str(error) or type(error).__name__, "") from error


def _fault_of_grammar(message: str, kind: ConstraintKind) -> tuple[str, str]:
    """(fault, place) of llguidance's message, which begins `at LINE(COLUMN): ` where it knows one."""
    head, colon, rest = message.partition(": ")
    if not (colon and head.startswith("at ") and "(" in head):
        return _first_line(message), ""
    line, _, column = head.removeprefix("at ").rstrip(")").partition("(")
    lines = [part.strip() for part in rest.splitlines() if part.strip()]
    errors = [part.removeprefix("error: ") for part in lines if part.startswith("error: ")]
    fault = errors[0] if errors else lines[0]
    if kind == "regex":  # one line, shifted by what llguidance put before it
        carets = [part for part in rest.splitlines() if part.strip() and not part.strip(" ^")]
        return fault, f"character {carets[0].index('^') - 4 + 1}" if errors and carets else ""
    return fault, f"line {line}, column {column}"


def _first_line(message: str) -> str:
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    errors = [line.removeprefix("error: ") for line in lines if line.startswith("error: ")]
    return _ADVICE.sub("", (errors or lines or [""])[0]).rstrip(".")


def _refused(kind: ConstraintKind, fault: str, place: str) -> ConstraintError:
    half = _LONGEST_PLACE // 2
    shown = place if len(place) <= _LONGEST_PLACE else f"{place[:half]}...{place[-half:]}"
    where = f" at {shown}" if place else ""
    return ConstraintError(
        f"{_NAMES[kind]} ({_FLAGS[kind]}) can't be honoured{where}: {fault}. "
        f"Change that place, or leave it out and check the answer yourself.",
        place=place,
    )


def _short(value: object) -> str:
    text = json.dumps(value)
    return text if len(text) <= 40 else f"{text[:37]}..."
