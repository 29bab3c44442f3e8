"""A row of a batch: what is asked, under which name, with which options.

Owns the names in a row and the refusal of what can't be meant.  Does not know files, engines or results.
"""

from __future__ import annotations

import difflib
import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from app.batch.placeholders import filled, read_table
from app.batch.sources import SourceLine, read_source
from app.errors import AppError
from app.options import SAMPLING_OPTIONS
from app.preferences import Preferences
from app.runtime_options import generate_options
from app.settings import value_of_kind

if TYPE_CHECKING:
    from runtime import GenerateOptions, Message, OutputConstraint

RowId = str | int

_KEYS = {option.key: option for option in SAMPLING_OPTIONS}
# By every name that a flag has, and the name that other programs' rows have.
_OPTIONS = {
    name.removeprefix("--").replace("-", "_"): option
    for option in SAMPLING_OPTIONS
    for name in option.names
    if name.startswith("--")
} | {**_KEYS, "max_tokens": _KEYS["predict"]}
_TEMPLATE_VARIABLES = "chat_template_kwargs"  # an object, or its text
_CONSTRAINTS = ("schema", "json_object", "regex", "grammar")
_OWN_KEYS = ("id", "prompt", "messages", "raw", "logprobs", "prompt_logprobs", "meta", *_CONSTRAINTS)


@dataclass(frozen=True, kw_only=True)
class Defaults:
    """What holds for every row that does not say otherwise."""

    preferences: Preferences
    raw: bool = False
    logprobs: int = 0
    prompt_logprobs: int = 0
    constraint: OutputConstraint | None = None


@dataclass(frozen=True, kw_only=True)
class Row:
    """One prompt.  line: where it stands; meta: what the row's author put there, handed on as it is."""

    line: int
    id: RowId
    prompt: str | tuple[Message, ...]
    options: GenerateOptions
    meta: Any = None


@dataclass(frozen=True, kw_only=True)
class BadRow:
    """A row that can't be used, and why."""

    line: int
    fault: str
    is_json: bool = True


class _RowError(Exception):
    """Why a row can't be used."""


def read_rows(path: Path, defaults: Defaults) -> list[Row | BadRow]:
    """The rows of a JSONL file."""
    return list(_checked(_of_line(line, defaults) for line in read_source(path)))


def read_filled_rows(path: Path, template: str, defaults: Defaults) -> list[Row | BadRow]:
    """The rows that a template and a table make: `id` is the table's column of that name, or else the line."""

    def rows() -> Iterator[Row | BadRow]:
        for record in read_table(path, template):
            if record.fault is not None:
                yield BadRow(line=record.line, fault=record.fault)
                continue
            try:
                value = {"prompt": filled(template, record.values)}
            except KeyError as error:
                yield BadRow(line=record.line, fault=f"it lacks {error.args[0]!r}, which the prompt names")
                continue
            if "id" in record.values:
                value["id"] = record.values["id"]
            yield _of_value(record.line, value, defaults)

    return list(_checked(rows()))


def request_key(row: Row, fingerprint: str) -> str:
    """A short name of everything an answer depends on: so that a run goes on with its own results alone."""
    from runtime.options import GenerateOptions

    standard = GenerateOptions()
    chosen = {
        field.name: _plain(getattr(row.options, field.name))
        for field in fields(row.options)
        if getattr(row.options, field.name) != getattr(standard, field.name)
    }
    prompt = row.prompt if isinstance(row.prompt, str) else [asdict(message) for message in row.prompt]
    text = json.dumps([fingerprint, prompt, chosen], sort_keys=True)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def _plain(value: Any) -> Any:
    return asdict(value) if hasattr(value, "__dataclass_fields__") else value


def _checked(rows: Iterator[Row | BadRow]) -> Iterator[Row | BadRow]:
    """Refuses an id that stood there before."""
    lines: dict[str, int] = {}
    for row in rows:
        if isinstance(row, Row):
            first = lines.setdefault(str(row.id), row.line)
            if first != row.line:
                row = BadRow(line=row.line, fault=f"its id {row.id!r} is that of line {first}")
        yield row


def _of_line(line: SourceLine, defaults: Defaults) -> Row | BadRow:
    try:
        value = json.loads(line.text)
    except (ValueError, RecursionError) as error:
        return BadRow(line=line.number, fault=f"it is no JSON: {error}", is_json=False)
    return _of_value(line.number, value, defaults)


def _of_value(line: int, value: Any, defaults: Defaults) -> Row | BadRow:
    from runtime.errors import OptionError

    try:
        return _row(line, value, defaults)
    except (_RowError, AppError, OptionError) as error:
        return BadRow(line=line, fault=str(error).rstrip("."))


def _row(line: int, value: Any, defaults: Defaults) -> Row:
    if not isinstance(value, dict):
        raise _RowError("it is no JSON object")
    _check_keys(value)
    row_id = value.get("id", line)
    if not isinstance(row_id, str | int) or isinstance(row_id, bool):
        raise _RowError(f"id is {_short(row_id)}; expected a text or a whole number")
    if isinstance(value.get(_TEMPLATE_VARIABLES), dict):
        value = {**value, _TEMPLATE_VARIABLES: json.dumps(value[_TEMPLATE_VARIABLES])}
    own: dict[str, Any] = {}
    for key, option in _OPTIONS.items():
        if key in value:
            if option.key in own:
                raise _RowError(f"{key} and {option.key} mean the same and don't go together")
            own[option.key] = value_of_kind(value[key], option, "the row")
    preferences = Preferences(**own).over(defaults.preferences)
    is_raw = _typed(value, "raw", bool, defaults.raw)
    options = generate_options(
        preferences,
        raw=is_raw,
        constraint=_constraint(value, defaults),
        logprobs=_typed(value, "logprobs", int, defaults.logprobs),
        prompt_logprobs=_typed(value, "prompt_logprobs", int, defaults.prompt_logprobs),
    )
    prompt = _prompt(value, preferences.system, is_raw=is_raw)
    return Row(line=line, id=row_id, prompt=prompt, options=options, meta=value.get("meta"))


def _check_keys(value: Mapping[str, Any]) -> None:
    known = [*_OWN_KEYS, *_OPTIONS]
    for key in value:
        if key not in known:
            near = difflib.get_close_matches(key, known, 1, cutoff=0.6)
            hint = f"did you mean {near[0]!r}?" if near else "what is yours goes into 'meta'"
            raise _RowError(f"{key!r} means nothing here; {hint}")
    if ("prompt" in value) == ("messages" in value):
        raise _RowError("it needs either prompt or messages")
    constraints = [key for key in _CONSTRAINTS if key in value]
    if len(constraints) > 1:
        raise _RowError(f"{' and '.join(constraints)} don't go together")


def _prompt(value: Mapping[str, Any], system: str | None, *, is_raw: bool) -> str | tuple[Message, ...]:
    from runtime import Message

    if "prompt" in value:
        text = _typed(value, "prompt", str, "")
        if is_raw and system is not None:
            raise _RowError("system needs the chat template, which raw leaves out")
        if is_raw or system is None:
            return text
        return Message(role="system", content=system), Message(role="user", content=text)
    turns = value["messages"]
    if is_raw:
        raise _RowError("messages need the chat template, which raw leaves out")
    if not isinstance(turns, list) or not turns:
        raise _RowError("messages is no list of turns")
    messages: list[Message] = []
    for place, turn in enumerate(turns):
        is_turn = isinstance(turn, dict) and set(turn) == {"role", "content"}
        if not is_turn or not all(isinstance(part, str) for part in turn.values()):
            raise _RowError(f"messages[{place}] is {_short(turn)}; expected an object with the texts role and content")
        messages.append(Message(role=turn["role"], content=turn["content"]))
    if system is not None and messages[0].role != "system":
        messages.insert(0, Message(role="system", content=system))
    return tuple(messages)


def _constraint(value: Mapping[str, Any], defaults: Defaults) -> OutputConstraint | None:
    from runtime import OutputConstraint

    if "schema" in value:
        schema = value["schema"]
        text = schema if isinstance(schema, str) else json.dumps(schema)
        return None if schema is None else OutputConstraint(kind="json_schema", text=text)
    if "json_object" in value:
        return OutputConstraint(kind="json_object") if _typed(value, "json_object", bool, False) else None
    if "regex" in value:
        return OutputConstraint(kind="regex", text=_typed(value, "regex", str, ""))
    if "grammar" in value:
        return OutputConstraint(kind="grammar", text=_typed(value, "grammar", str, ""))
    return defaults.constraint


def _typed(value: Mapping[str, Any], key: str, kind: type, otherwise: Any) -> Any:
    if key not in value:
        return otherwise
    found = value[key]
    if not isinstance(found, kind) or isinstance(found, bool) != (kind is bool):
        expected = {bool: "true or false", int: "a whole number", str: "a text"}[kind]
        raise _RowError(f"{key} is {_short(found)}; expected {expected}")
    return found


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
