"""What is done with a damaged file of conversations: set aside, and whatever can be read kept.

Owns the renaming and the reading row by row around what is broken. Knows the tables through `store.py` only.
"""

from __future__ import annotations

import shutil
import sqlite3
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from app.chat.branches import branch_to
from app.chat.changes import Changes
from app.chat.conversation import Conversation, Turn, title_of
from app.chat.engine_port import Role
from app.chat.store import Store
from app.chat.store_file import DamagedStoreError, connect, named_faults
from app.chat.store_rows import attachments_of_text, turn_of_row

_COMPANIONS = ("", "-wal", "-shm", "-journal")
_ROWS_BEYOND_DAMAGE = 4096
_LOST_TITLE = "Recovered"
# https://www.sqlite.org/fileformat2.html#the_database_header
_HEADER_BYTES = 100
_NUM_PAGES = slice(28, 32)
_LARGEST_PAGE_BYTES = 65536
Built = TypeVar("Built")


@dataclass(frozen=True, kw_only=True)
class Opened:
    """An open store, and what has to be said about how it was opened."""

    store: Store
    note: str = ""


def open_store(path: Path, *, is_damaged: bool = False) -> Opened:
    """Opens the conversations; a damaged file is set aside first and what can be read of it kept.

    `is_damaged`: it turned out to be, and does not show it. Raises StoreError where no file can be had at all.
    """
    if not is_damaged:
        with suppress(DamagedStoreError):
            return Opened(store=Store(path))
    with named_faults(path):
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
            connection = connect(_readable_copy(damaged, Path(folder)))
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
    found = {known.conversation.id: known for known in conversations}
    for conversation_id in found.keys() | by_conversation.keys():
        own_turns = by_conversation.get(conversation_id, [])
        _keep(store, found.get(conversation_id) or _lost(conversation_id, own_turns), own_turns)
    return sum(map(len, by_conversation.values()))


@dataclass(frozen=True, kw_only=True)
class _Found:
    """What could be read of a conversation beside its turns."""

    conversation: Conversation
    leaf: str | None
    updated_at: float


def _lost(conversation_id: str, turns: list[Turn]) -> _Found:
    """A conversation of which the turns alone are left."""
    words = next((turn.text for turn in turns if turn.role is Role.USER), "")
    conversation = Conversation(id=conversation_id, title=title_of(words) or _LOST_TITLE)
    return _Found(conversation=conversation, leaf=None, updated_at=max(turn.created_at for turn in turns))


def _keep(store: Store, found: _Found, turns: list[Turn]) -> None:
    conversation = replace(found.conversation, turns=branch_to(turns, found.leaf))
    store.write(
        Changes(
            conversation_id=conversation.id,
            conversation=conversation,
            turns={turn.id: turn for turn in turns},
            has_attachments=bool(conversation.attachments),
        )
    )
    store.set_time(conversation.id, found.updated_at)
    store.claims.let_all_go()


def _readable_copy(damaged: Path, folder: Path) -> Path:
    """Of a file whose first page is broken or that was cut short, a copy in the folder that SQLite reads: with the
    first page of a new file, where the tables begin on the same pages, and with a header that names the pages that
    are there. Of any other, the file itself."""
    first_page = None if _has_tables(damaged) else _first_page(folder)
    with open(damaged, "rb") as file:
        header = file.read(_HEADER_BYTES) if first_page is None else first_page[:_HEADER_BYTES]
    page_bytes = int.from_bytes(header[16:18], "big")
    page_bytes = _LARGEST_PAGE_BYTES if page_bytes == 1 else page_bytes
    num_pages = damaged.stat().st_size // page_bytes if page_bytes else 0
    is_cut = num_pages < int.from_bytes(header[_NUM_PAGES], "big")
    if len(header) < _HEADER_BYTES or (first_page is None and not is_cut):
        return damaged
    copy = folder / damaged.name
    for companion in _COMPANIONS:
        source = damaged.with_name(damaged.name + companion)
        if source.exists():
            shutil.copyfile(source, copy.with_name(copy.name + companion))
    with open(copy, "r+b") as file:
        file.truncate(num_pages * page_bytes)
        file.write(first_page or b"")
        file.seek(_NUM_PAGES.start)
        file.write(num_pages.to_bytes(4, "big"))
    return copy


def _has_tables(path: Path) -> bool:
    """Whether the first page says where the tables stand."""
    connection = connect(path)
    try:
        return connection.execute(
            "SELECT count(*) FROM sqlite_master WHERE name IN ('conversations', 'turns')"
        ).fetchone() == (2,)
    except sqlite3.Error:
        return False
    finally:
        connection.close()


def _first_page(folder: Path) -> bytes:
    """The first page of a new file of conversations."""
    path = folder / "new.db"
    Store(path).close()
    header = path.read_bytes()
    return header[: int.from_bytes(header[16:18], "big")]


def _turn_values(row: sqlite3.Row) -> list[object]:
    names = ("id", "parent", "role", "text", "thinking", "ids", "vocabulary", "model", "state", "figures", "created_at")
    return [*(row[name] for name in names), _newer(row, "attachments")]


def _newer(row: sqlite3.Row, name: str) -> object:
    """A value that files of earlier versions do not have."""
    return row[name] if name in row.keys() else None  # noqa: SIM118 (a row is no dictionary)


def _conversation_of(row: sqlite3.Row) -> _Found:
    conversation = Conversation(
        id=str(row["id"]),
        title=str(row["title"] or _LOST_TITLE),
        system=str(row["system"] or ""),
        model=str(row["model"] or ""),
        is_pinned=bool(_newer(row, "pinned")),
        window_start=row["window_start"],
        summary=str(_newer(row, "summary") or ""),
        draft=str(row["draft"] or ""),
        edited=str(_newer(row, "edited") or "") or None,
        edit=str(_newer(row, "edit") or ""),
        attachments=attachments_of_text(_newer(row, "attachments")),
        created_at=row["created_at"] if isinstance(row["created_at"], float) else 0.0,
    )
    updated_at = row["updated_at"]
    return _Found(
        conversation=conversation,
        leaf=row["leaf"],
        updated_at=updated_at if isinstance(updated_at, float) else conversation.created_at,
    )


def _read_rows(connection: sqlite3.Connection, table: str, build: Callable[[sqlite3.Row], Built]) -> list[Built]:
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


def _built(build: Callable[[sqlite3.Row], Built], row: sqlite3.Row) -> Built | None:
    """What the row holds; None for a row that came from another table's page and lacks a column."""
    try:
        return build(row)
    except (IndexError, KeyError, TypeError, ValueError):
        return None
