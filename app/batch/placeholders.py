"""A prompt with {placeholders}, and the table that fills them.

Owns the notation: {name} is a column, {{ and }} are braces, any other brace is itself.  Does not know prompts.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from app.batch.sources import SourceLine, read_source
from app.errors import UsageError

_PARTS = re.compile(r"\{\{|\}\}|\{([^{}\n]+)\}")


@dataclass(frozen=True, kw_only=True)
class Record:
    """A row of the table.  line: where it begins; fault: why it can't be used, instead of values."""

    line: int
    values: Mapping[str, Any]
    fault: str | None = None


def filled(template: str, values: Mapping[str, Any]) -> str:
    """The template with its placeholders filled.  Raises KeyError for one that the table lacks."""

    def part(found: re.Match[str]) -> str:
        if found[1] is None:
            return found[0][0]
        return _text(values[found[1].strip()])

    return _PARTS.sub(part, template)


def names_in(template: str) -> list[str]:
    """The placeholders of a template, each once."""
    return list(dict.fromkeys(found[1].strip() for found in _PARTS.finditer(template) if found[1] is not None))


def read_table(path: Path, template: str) -> Iterator[Record]:
    """The records of a CSV file (with a header) or, by any other name, of a JSONL file.

    Raises UsageError when a CSV file lacks a column that the template names.
    """
    lines = read_source(path)
    if path.suffix.lower() != ".csv":
        return map(_json_record, lines)
    text = "\n".join(line.text for line in lines)
    reader = csv.DictReader(io.StringIO(text.removeprefix("\ufeff"), newline=""), strict=True)
    columns = list(reader.fieldnames or [])
    missing = [name for name in names_in(template) if name not in columns]
    if missing:
        raise UsageError(
            f"{path} has no column {missing[0]!r}, which the prompt names; it has {', '.join(map(repr, columns))}.",
            hint="{{ and }} write braces that are no placeholder.",
        )
    return _csv_records(reader)


def _csv_records(reader: csv.DictReader[str]) -> Iterator[Record]:
    while True:
        line = reader.line_num + 1
        try:
            row = next(reader, None)
        except csv.Error as error:
            yield Record(line=line, values={}, fault=f"it is no valid CSV: {error}")
            continue
        if row is None:
            return
        if None in row or None in row.values():
            yield Record(line=line, values={}, fault="it has another number of fields than the header")
        else:
            yield Record(line=line, values=row)


def _json_record(line: SourceLine) -> Record:
    try:
        values = json.loads(line.text)
    except (ValueError, RecursionError) as error:
        return Record(line=line.number, values={}, fault=f"it is no JSON: {error}")
    if not isinstance(values, dict):
        return Record(line=line.number, values={}, fault="it is no JSON object")
    return Record(line=line.number, values=values)


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    return "" if value is None else json.dumps(value, ensure_ascii=False)
