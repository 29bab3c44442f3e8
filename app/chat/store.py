"""Conversations on disk: one SQLite file, every turn durable the moment it is written.

Owns reading and writing the rows (the tables stand in `store_schema.py`, searching in `search.py`). A turn names its
parent, so that a conversation is a tree and `leaf` says which branch is shown. One connection, used from one thread
(`recorder.py` owns that thread); two programs may use the file at once. What to do with a damaged file stands in
`salvage.py`.
"""

from __future__ import annotations

import json
import sqlite3
import time
from array import array
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from app.chat.attachments import Attachment
from app.chat.branches import branch_to
from app.chat.conversation import Conversation, Turn, TurnState
from app.chat.engine_port import ReplyFigures, Role
from app.chat.file_systems import is_network_path
from app.chat.plain_text import one_line
from app.chat.search import Hit, search
from app.chat.store_schema import SCHEMA_VERSION, bring_up_to_date, prepare_word_index, version_of

_BUSY_TIMEOUT_MS = 5000
_DAMAGE_CODES = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
_CHECKED_BYTES = 256 * 2**20
_LONGEST_RECALLED = 20_000
_DELETED_FOR_GOOD_S = 7 * 24 * 3600
_CONVERSATION_COLUMNS = "id, title, system, model, leaf, window_start, summary, draft, pinned, created_at"
_TURN_COLUMNS = "id, parent, role, text, thinking, ids, vocabulary, model, state, figures, created_at, attachments"
SqlValue = str | float | None
# The row keeps its number, by which the index of words knows it.
_TURN_CHANGES = ", ".join(f"{name} = excluded.{name}" for name in _TURN_COLUMNS.split(", ")[1:])


class StoreError(Exception):
    """The conversations can't be kept or read; the message is one sentence for the screen."""


class DamagedStoreError(StoreError):
    """The file is no database, or its pages contradict each other."""


class NewerStoreError(StoreError):
    """The file was written by a later Tandem and must not be touched."""


@dataclass(frozen=True, kw_only=True)
class ConversationLine:
    """One line of the list of conversations."""

    id: str
    title: str
    updated_at: float
    num_turns: int
    has_draft: bool
    is_broken_off: bool
    is_pinned: bool = False


@contextmanager
def _named_faults(path: Path) -> Iterator[None]:
    """Turns what SQLite says into a sentence that names the file."""
    try:
        yield
    except sqlite3.Error as fault:
        # Faults of the module itself carry no code; a code's low byte is its kind.
        if getattr(fault, "sqlite_errorcode", 0) & 0xFF in _DAMAGE_CODES:
            raise DamagedStoreError(f"{path} is damaged: {fault}") from fault
        raise StoreError(f"The conversations in {path} can't be kept: {fault}") from fault
    except OSError as fault:
        raise StoreError(f"{path} can't be opened: {fault.strerror or fault}") from fault


def connect(path: Path) -> sqlite3.Connection:
    """A connection that waits for other windows, reads text of any bytes, and begins no transaction by itself."""
    connection = sqlite3.connect(path, timeout=_BUSY_TIMEOUT_MS / 1000, isolation_level=None, check_same_thread=False)
    connection.text_factory = lambda raw: raw.decode("utf-8", "replace")
    return connection


class Store:
    """The open file of conversations. Every method is one transaction; all raise StoreError."""

    def __init__(self, path: Path) -> None:
        """Opens or creates the file. Raises DamagedStoreError or NewerStoreError where it can't be used as it is."""
        self.path = path
        self._known: dict[str, Mapping[str, SqlValue]] = {}
        with _named_faults(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            self._connection = connect(path)
            try:
                self._prepare()
            except BaseException:
                self._connection.close()
                raise

    def _prepare(self) -> None:
        execute = self._connection.execute
        execute(f"PRAGMA busy_timeout = {_BUSY_TIMEOUT_MS}")
        version = version_of(self._connection)
        if version > SCHEMA_VERSION:
            raise NewerStoreError(
                f"{self.path} was written by a later version of Tandem (format {version}, this one knows "
                f"{SCHEMA_VERSION}): conversations of this chat are not kept; install the later version"
            )
        execute(f"PRAGMA journal_mode = {'DELETE' if is_network_path(self.path) else 'WAL'}")
        execute("PRAGMA synchronous = NORMAL")
        execute("PRAGMA foreign_keys = ON")
        if self.path.stat().st_size <= _CHECKED_BYTES:
            found = execute("PRAGMA quick_check(1)").fetchone()[0]
            if found != "ok":
                raise DamagedStoreError(f"{self.path} is damaged: {one_line(found)}")
        with self._transaction() as connection:
            bring_up_to_date(connection)
            self._is_indexed = prepare_word_index(connection)
            connection.execute("DELETE FROM conversations WHERE deleted_at < ?", (time.time() - _DELETED_FOR_GOOD_S,))

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with _named_faults(self.path):
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield self._connection
            except BaseException:
                self._connection.execute("ROLLBACK")
                raise
            self._connection.execute("COMMIT")

    def save_conversation(self, conversation: Conversation) -> None:
        """Writes everything but the turns."""
        with self._transaction() as connection:
            self._write_conversation(connection, conversation)
        self._know(conversation)

    def _write_conversation(self, connection: sqlite3.Connection, conversation: Conversation) -> None:
        """Writes what this window changed: what another window wrote meanwhile beside it stays."""
        row = _row_of_conversation(conversation)
        known = self._known.get(conversation.id)
        if known is not None:
            changed = {name: value for name, value in row.items() if value != known[name]}
            settings = ", ".join(f"{name} = ?" for name in (*changed, "updated_at"))
            values = (*changed.values(), time.time(), conversation.id)
            if connection.execute(f"UPDATE conversations SET {settings} WHERE id = ?", values).rowcount:
                return
        settings = ", ".join(f"{name} = excluded.{name}" for name in (*row, "updated_at") if name != "id")
        connection.execute(
            f"INSERT INTO conversations ({', '.join(row)}, updated_at) VALUES ({', '.join('?' * (len(row) + 1))}) "
            f"ON CONFLICT (id) DO UPDATE SET {settings}",
            (*row.values(), time.time()),
        )

    def _know(self, conversation: Conversation) -> None:
        """So it stands in the file now, as far as this window knows."""
        self._known[conversation.id] = _row_of_conversation(conversation)

    def save_attachments(self, conversation: Conversation) -> None:
        """Writes what is attached to the draft: apart from the rest, since it may be large."""
        with self._transaction() as connection:
            self._write_conversation(connection, conversation)
            connection.execute(
                "UPDATE conversations SET attachments = ? WHERE id = ?",
                (_text_of_attachments(conversation.attachments), conversation.id),
            )
        self._know(conversation)

    def save_turns(self, conversation: Conversation, turns: Sequence[Turn]) -> None:
        """Writes the turns and the conversation that holds them, all or nothing.

        A conversation that another window deleted meanwhile is there again: somebody goes on with it.
        """
        with self._transaction() as connection:
            self._write_conversation(connection, conversation)
            if turns:
                connection.execute("UPDATE conversations SET deleted_at = NULL WHERE id = ?", (conversation.id,))
            self._write_turns(connection, conversation, turns)
        self._know(conversation)

    def remove_turn(self, conversation: Conversation, turn_id: str, moved: Sequence[Turn]) -> None:
        """Takes a turn away, and writes the conversation without it and the turns that stand elsewhere now."""
        with self._transaction() as connection:
            self._write_conversation(connection, conversation)
            self._write_turns(connection, conversation, moved)
            connection.execute("DELETE FROM turns WHERE id = ?", (turn_id,))
        self._know(conversation)

    @staticmethod
    def _write_turns(connection: sqlite3.Connection, conversation: Conversation, turns: Sequence[Turn]) -> None:
        for turn in turns:
            connection.execute(
                f"INSERT INTO turns (conversation, {_TURN_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) "
                f"ON CONFLICT (id) DO UPDATE SET {_TURN_CHANGES}",
                (conversation.id, *_row_of_turn(turn)),
            )

    def load(self, conversation_id: str) -> Conversation | None:
        """The conversation, the turns of its other branches apart; None where there is none of that id."""
        with _named_faults(self.path):
            row = self._connection.execute(
                f"SELECT {_CONVERSATION_COLUMNS}, attachments FROM conversations WHERE id = ?", (conversation_id,)
            ).fetchone()
            if row is None:
                return None
            rows = self._connection.execute(
                f"SELECT {_TURN_COLUMNS} FROM turns WHERE conversation = ? ORDER BY rowid", (conversation_id,)
            ).fetchall()
        turns = [turn_of_row(turn_row) for turn_row in rows]
        identity, title, system, model, leaf, window_start, summary, draft, is_pinned, created_at, attachments = row
        branch = branch_to(turns, leaf)
        shown = {turn.id for turn in branch}
        conversation = Conversation(
            id=identity,
            title=title,
            system=system,
            model=model,
            turns=branch,
            others=tuple(turn for turn in turns if turn.id not in shown),
            is_pinned=bool(is_pinned),
            window_start=window_start,
            summary=summary,
            draft=draft,
            attachments=attachments_of_text(attachments),
            created_at=created_at,
        )
        self._know(conversation)
        return conversation

    def conversations(self, limit: int = 200) -> list[ConversationLine]:
        """The conversations that hold anything and are not deleted: those that are pinned, then the latest first."""
        with _named_faults(self.path):
            rows = self._connection.execute(
                "SELECT c.id, c.title, c.updated_at, count(t.id), c.draft <> '' OR c.attachments <> '', "
                "coalesce(max(t.id = c.leaf AND t.state = ?), 0), c.draft, c.pinned FROM conversations c "
                "LEFT JOIN turns t ON t.conversation = c.id WHERE c.deleted_at IS NULL "
                "GROUP BY c.id HAVING count(t.id) > 0 OR c.draft <> '' OR c.attachments <> '' "
                "ORDER BY c.pinned DESC, c.updated_at DESC LIMIT ?",
                (TurnState.PARTIAL, limit),
            ).fetchall()
        return [
            ConversationLine(
                id=identity,
                title=title or draft,
                updated_at=updated_at,
                num_turns=num_turns,
                has_draft=bool(has_draft),
                is_broken_off=bool(is_broken_off),
                is_pinned=bool(is_pinned),
            )
            for identity, title, updated_at, num_turns, has_draft, is_broken_off, draft, is_pinned in rows
        ]

    def prompts(self, limit: int = 200) -> list[str]:
        """What the user sent lately in any conversation, the oldest first, repeats once."""
        with _named_faults(self.path):
            rows = self._connection.execute(
                "SELECT text FROM turns WHERE role = ? AND length(text) BETWEEN 1 AND ? "
                "GROUP BY text ORDER BY max(created_at) DESC LIMIT ?",
                (Role.USER, _LONGEST_RECALLED, limit),
            ).fetchall()
        return [row[0] for row in reversed(rows)]

    def set_deleted(self, conversation_id: str, *, is_deleted: bool) -> None:
        """Takes a conversation out of every list, or brings it back; some days later it is gone for good."""
        with self._transaction() as connection:
            deleted_at = time.time() if is_deleted else None
            connection.execute("UPDATE conversations SET deleted_at = ? WHERE id = ?", (deleted_at, conversation_id))

    def set_pinned(self, conversation_id: str, *, is_pinned: bool) -> None:
        """Puts a conversation at the head of the list, or lets it go."""
        with self._transaction() as connection:
            connection.execute("UPDATE conversations SET pinned = ? WHERE id = ?", (is_pinned, conversation_id))

    def search(self, text: str) -> list[Hit]:
        """The turns of all conversations that hold the words of the text, the latest first."""
        with _named_faults(self.path):
            return search(self._connection, text, is_indexed=self._is_indexed)

    def close(self) -> None:
        """Writes the log back and closes the file."""
        self._connection.close()


def _storable(text: str) -> str:
    """The text with half surrogates (bytes of the command line that were no UTF-8) replaced: SQLite refuses them."""
    return text.encode("utf-8", "replace").decode("utf-8")


def _row_of_conversation(conversation: Conversation) -> dict[str, SqlValue]:
    return {
        "id": conversation.id,
        "title": _storable(conversation.title),
        "system": _storable(conversation.system),
        "model": _storable(conversation.model),
        "leaf": conversation.leaf,
        "window_start": conversation.window_start,
        "summary": _storable(conversation.summary),
        "draft": _storable(conversation.draft),
        "pinned": conversation.is_pinned,
        "created_at": conversation.created_at,
    }


def _row_of_turn(turn: Turn) -> tuple[object, ...]:
    return (
        turn.id,
        turn.parent,
        str(turn.role),
        _storable(turn.text),
        _storable(turn.thinking),
        None if turn.ids is None else array("i", turn.ids).tobytes(),
        turn.vocabulary,
        _storable(turn.model),
        str(turn.state),
        None if turn.figures is None else json.dumps(asdict(turn.figures)),
        turn.created_at,
        _text_of_attachments(turn.attachments),
    )


def turn_of_row(row: Sequence) -> Turn:
    """The turn that a row of `turns` holds; a value that makes no sense costs that value, not the turn."""
    identity, parent, role, text, thinking, ids, vocabulary, model, state, figures, created_at, attachments = row
    return Turn(
        id=str(identity),
        parent=parent,
        role=Role(role) if role in set(Role) else Role.USER,
        text=str(text or ""),
        thinking=str(thinking or ""),
        ids=_ids_of_blob(ids),
        vocabulary=str(vocabulary or ""),
        model=str(model or ""),
        state=TurnState(state) if state in set(TurnState) else TurnState.FINISHED,
        created_at=created_at if isinstance(created_at, float) else 0.0,
        figures=_figures_of_text(figures),
        attachments=attachments_of_text(attachments),
    )


def _ids_of_blob(blob: object) -> tuple[int, ...] | None:
    if not isinstance(blob, bytes) or len(blob) % array("i").itemsize:
        return None
    return tuple(array("i", blob))


def _text_of_attachments(attachments: Sequence[Attachment]) -> str:
    """JSON, in which half surrogates stand as escapes; empty for none: most turns have none."""
    return json.dumps([asdict(attachment) for attachment in attachments]) if attachments else ""


def attachments_of_text(text: object) -> tuple[Attachment, ...]:
    """The attachments of a row; none where it makes no sense."""
    if not isinstance(text, str) or not text:
        return ()
    try:
        return tuple(Attachment(**fields) for fields in json.loads(text))
    except (ValueError, TypeError):
        return ()


def _figures_of_text(text: object) -> ReplyFigures | None:
    if not isinstance(text, str):
        return None
    try:
        return ReplyFigures(**json.loads(text))
    except (ValueError, TypeError):
        return None
