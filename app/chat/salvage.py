"""What is done with a damaged file of conversations: set aside, and whatever can be read kept.

Owns the renaming and the reading row by row around what is broken. Knows the tables through `store.py` only.
"""

from __future__ import annotations

import shutil
import sqlite3
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from app.chat.branches import branch_to
from app.chat.conversation import Conversation, Turn
from app.chat.store import DamagedStoreError, Store, attachments_of_text, connect, turn_of_row

_COMPANIONS = ("", "-wal", "-shm", "-journal")
_ROWS_BEYOND_DAMAGE = 4096
_LOST_TITLE = "Recovered"
# https://www.sqlite.org/fileformat2.html#the_database_header
_HEADER_BYTES = 100
_NUM_PAGES = slice(28, 32)
_LARGEST_PAGE_BYTES = 65536
Found = TypeVar("Found")


@dataclass(frozen=True, kw_only=True)
class Opened:
    """An open store, and what has to be said about how it was opened."""

    store: Store
    note: str = ""


def open_store(path: Path) -> Opened:
    """Opens the conversations; a damaged file is set aside first and what can be read of it kept.

    Raises StoreError where no file can be had at all.
    """
    try:
        return Opened(store=Store(path))
    except DamagedStoreError:
        aside = set_aside(path)
    store = Store(path)
    kept = copy_readable(aside, store)
    return Opened(store=store, note=f"The conversations were damaged: {kept} turns were kept, the old file is {aside}")


def set_aside(path: Path) -> Path:
    """Renames the file and its companions to a name with the time in it, and returns the new name."""
    stamp = time.strftime("%Y%m%d-%H%M%S")
    aside = path.with_name(f"{path.stem}.damaged-{stamp}{path.suffix}")
    number = 1
    while aside.exists():
        number += 1
        aside = path.with_name(f"{path.stem}.damaged-{stamp}-{number}{path.suffix}")
    for companion in _COMPANIONS:
        source = path.with_name(path.name + companion)
        if source.exists():
            source.rename(aside.with_name(aside.name + companion))
    return aside


def copy_readable(damaged: Path, store: Store) -> int:
    """Copies every conversation and turn that can still be read; returns the number of turns."""
    with tempfile.TemporaryDirectory(dir=damaged.parent) as folder:
        try:
            connection = connect(_whole_pages_of(damaged, Path(folder)))
        except (sqlite3.Error, OSError):
            return 0
        try:
            conversations = _read_rows(connection, "conversations", _conversation_of)
            turns = _read_rows(
                connection, "turns", lambda row: (str(row["conversation"]), turn_of_row(_turn_values(row)))
            )
        finally:
            connection.close()
    by_conversation: dict[str, list[Turn]] = {}
    for conversation_id, turn in turns:
        by_conversation.setdefault(conversation_id, []).append(turn)
    leaves = {conversation.id: (conversation, leaf) for conversation, leaf in conversations}
    for conversation_id in leaves.keys() | by_conversation.keys():
        lost = Conversation(id=conversation_id, title=_LOST_TITLE)
        conversation, leaf = leaves.get(conversation_id, (lost, None))
        own_turns = by_conversation.get(conversation_id, [])
        conversation = replace(conversation, turns=branch_to(own_turns, leaf))
        store.save_turns(conversation, own_turns)
        if conversation.attachments:
            store.save_attachments(conversation)
    return sum(map(len, by_conversation.values()))


def _whole_pages_of(damaged: Path, folder: Path) -> Path:
    """Of a file that was cut short, a copy in the folder whose header names the pages that are there: SQLite reads
    nothing of one that lacks any. Of any other, the file itself."""
    with open(damaged, "rb") as file:
        header = file.read(_HEADER_BYTES)
    page_bytes = int.from_bytes(header[16:18], "big")
    page_bytes = _LARGEST_PAGE_BYTES if page_bytes == 1 else page_bytes
    num_pages = damaged.stat().st_size // page_bytes if page_bytes else 0
    if len(header) < _HEADER_BYTES or num_pages >= int.from_bytes(header[_NUM_PAGES], "big"):
        return damaged
    copy = folder / damaged.name
    for companion in _COMPANIONS:
        source = damaged.with_name(damaged.name + companion)
        if source.exists():
            shutil.copyfile(source, copy.with_name(copy.name + companion))
    with open(copy, "r+b") as file:
        file.truncate(num_pages * page_bytes)
        file.seek(_NUM_PAGES.start)
        file.write(num_pages.to_bytes(4, "big"))
    return copy


def _turn_values(row: sqlite3.Row) -> list[object]:
    names = ("id", "parent", "role", "text", "thinking", "ids", "vocabulary", "model", "state", "figures", "created_at")
    return [*(row[name] for name in names), _newer(row, "attachments")]


def _newer(row: sqlite3.Row, name: str) -> object:
    """A value that files of earlier versions do not have."""
    return row[name] if name in row.keys() else None  # noqa: SIM118 (a row is no dictionary)


def _conversation_of(row: sqlite3.Row) -> tuple[Conversation, str | None]:
    conversation = Conversation(
        id=str(row["id"]),
        title=str(row["title"] or _LOST_TITLE),
        system=str(row["system"] or ""),
        model=str(row["model"] or ""),
        is_pinned=bool(_newer(row, "pinned")),
        window_start=row["window_start"],
        summary=str(_newer(row, "summary") or ""),
        draft=str(row["draft"] or ""),
        attachments=attachments_of_text(_newer(row, "attachments")),
        created_at=row["created_at"] if isinstance(row["created_at"], float) else 0.0,
    )
    return conversation, row["leaf"]


def _read_rows(connection: sqlite3.Connection, table: str, build: Callable[[sqlite3.Row], Found]) -> list[Found]:
    """Reads a table by row number from both ends, and one by one around what can't be read."""
    cursor = connection.cursor()
    cursor.row_factory = sqlite3.Row
    rows: dict[int, sqlite3.Row] = {}
    came_through = _walk(cursor, f"SELECT rowid AS number, * FROM {table} ORDER BY rowid", rows)
    if not came_through:
        first = max(rows, default=0) + 1
        _walk(cursor, f"SELECT rowid AS number, * FROM {table} ORDER BY rowid DESC", rows)
        last = min((number for number in rows if number > first), default=first + _ROWS_BEYOND_DAMAGE)
        for number in range(first, min(last, first + _ROWS_BEYOND_DAMAGE)):
            _walk(cursor, f"SELECT rowid AS number, * FROM {table} WHERE rowid = {number}", rows)
    return [built for number in sorted(rows) if (built := _built(build, rows[number])) is not None]


def _walk(cursor: sqlite3.Cursor, query: str, rows: dict[int, sqlite3.Row]) -> bool:
    """Collects what the query gives until it ends (True) or meets what can't be read (False)."""
    try:
        for row in cursor.execute(query):
            rows[row["number"]] = row
    except sqlite3.Error:
        return False
    return True


def _built(build: Callable[[sqlite3.Row], Found], row: sqlite3.Row) -> Found | None:
    """What the row holds; None for a row that came from another table's page and lacks a column."""
    try:
        return build(row)
    except (IndexError, KeyError, TypeError, ValueError):
        return None
