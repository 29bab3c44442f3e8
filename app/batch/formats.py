"""How an answer is written down: JSONL, CSV or plain text, one record a row, and how such a file is read again.

Owns the three layouts.  Does not know files (results.py) or engines.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, get_args

from app.generate import json_object

if TYPE_CHECKING:
    from app.batch.rows import Row
    from runtime import Completion

FormatName = Literal["jsonl", "csv", "text"]
FORMATS = get_args(FormatName)
COLUMNS = ("id", "text", "finish_reason", "seed", "prompt_tokens", "output_tokens", "total_s", "request")

_OBJECT_START = '{"id": '
_AFTER_ID = ', "text": "'

_SUFFIXES: Mapping[str, FormatName] = {".csv": "csv", ".txt": "text", ".text": "text"}


@dataclass(frozen=True, kw_only=True)
class Known:
    """What a file holds already.

    end: where its last whole record ends, in bytes.  requests: by id, the key of what was asked; keys: the same by
    place, for formats in which a record is known by that (journal.py).  num_records: header not counted.  is_foreign:
    nothing of it is of this format, so that neither an addition nor a cut can be meant.
    """

    end: int
    requests: Mapping[str, str]
    num_records: int
    keys: tuple[str, ...] = ()
    is_foreign: bool = False


class Format(Protocol):
    """is_positional: a record is known by its place alone, so that records stand in the order of the rows."""

    is_positional: bool

    def begin(self) -> str: ...
    def record(self, row: Row, completion: Completion, request: str) -> str: ...
    def gap(self) -> str:
        """What stands for a row without an answer."""
        ...

    def read(self, content: bytes) -> Known: ...


class JsonLines:
    """An object a line."""

    is_positional = False

    def begin(self) -> str:
        return ""

    def record(self, row: Row, completion: Completion, request: str) -> str:
        value: dict[str, Any] = {"id": row.id, **json_object(completion)}
        del value["prompt_ids"]
        if row.meta is not None:
            value["meta"] = row.meta
        value["request"] = request
        return json.dumps(value, ensure_ascii=False) + "\n"

    def gap(self) -> str:
        return ""

    def read(self, content: bytes) -> Known:
        requests: dict[str, str] = {}
        end = content.rfind(b"\n") + 1
        num_records = 0
        for line in content[:end].split(b"\n"):
            try:
                value = json.loads(line)
                requests[str(value["id"])] = str(value["request"])
                num_records += 1
            except (ValueError, TypeError, KeyError, RecursionError):
                continue  # not one of ours: it stays, and counts for nothing
        is_foreign = not requests and (bool(content[:end].strip()) or not _may_begin_object(content[end:]))
        return Known(end=end, requests=requests, num_records=num_records, is_foreign=is_foreign)


class CommaSeparated:
    """RFC 4180, with a header; line ends within a text are kept."""

    is_positional = False

    def begin(self) -> str:
        return _csv_line(COLUMNS)

    def record(self, row: Row, completion: Completion, request: str) -> str:
        timings = completion.timings
        return _csv_line(
            (
                row.id,
                completion.text,
                completion.finish_reason,
                completion.seed,
                timings.prompt_tokens,
                timings.output_tokens,
                f"{timings.total_s:.3f}",
                request,
            )
        )

    def gap(self) -> str:
        return ""

    def read(self, content: bytes) -> Known:
        end = _last_whole_record(content)
        text = content[:end].decode("utf-8", "replace")
        rows = list(csv.reader(io.StringIO(text, newline="")))
        num_columns = len(COLUMNS)
        requests = {row[0]: row[-1] for row in rows[1:] if len(row) == num_columns}
        header = _csv_line(COLUMNS).encode()
        is_foreign = not content.startswith(header) and not header.startswith(content)
        return Known(end=end, requests=requests, num_records=max(0, len(rows) - 1), is_foreign=is_foreign)


class PlainText:
    """A line a row, in order; an empty one for a row without an answer.  Line ends are written as \\n and \\r.

    Any text may be one of its files; journal.py knows which is.
    """

    is_positional = True

    def begin(self) -> str:
        return ""

    def record(self, row: Row, completion: Completion, request: str) -> str:
        return completion.text.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r") + "\n"

    def gap(self) -> str:
        return "\n"

    def read(self, content: bytes) -> Known:
        return Known(end=content.rfind(b"\n") + 1, requests={}, num_records=content.count(b"\n"))


_FORMATS: Mapping[FormatName, type[JsonLines] | type[CommaSeparated] | type[PlainText]] = {
    "jsonl": JsonLines,
    "csv": CommaSeparated,
    "text": PlainText,
}


def format_for(name: FormatName | None, path: Path | None) -> Format:
    """The format that was named, or else the one that the file's name ends in; JSONL for any other."""
    suffix = path.suffix.lower() if path is not None else ""
    return _FORMATS[name or _SUFFIXES.get(suffix, "jsonl")]()


def _csv_line(values: tuple[object, ...]) -> str:
    text = io.StringIO(newline="")
    csv.writer(text).writerow(values)
    return text.getvalue()


def _may_begin_object(content: bytes) -> bool:
    """Whether a record of JsonLines may begin so: `{"id": ID, "text": "`."""
    text = content.decode("utf-8", "replace")
    if not text.startswith(_OBJECT_START):
        return _OBJECT_START.startswith(text)
    try:
        _, end = json.JSONDecoder().raw_decode(text, len(_OBJECT_START))
    except ValueError:
        return True  # cut within the id
    rest = text[end:]
    return rest.startswith(_AFTER_ID) or _AFTER_ID.startswith(rest)


def _last_whole_record(content: bytes) -> int:
    """Where the last line end outside quotes is, plus its length."""
    end = 0
    num_quotes = 0
    start = 0
    while (found := content.find(b"\n", start)) >= 0:
        num_quotes += content.count(b'"', start, found)
        start = found + 1
        if num_quotes % 2 == 0:
            end = start
    return end
