"""Conversations on disk: one SQLite file, every turn durable the moment it is written.

Owns writing (reading stands in `store_reading.py`, the tables in `store_schema.py`). A turn names its parent, so that
a conversation is a tree and `leaf` says which branch is shown. One connection, used from one thread (`recorder.py`
owns that thread); several windows may use the file at once, and none overwrites words of another. What to do with a
damaged file stands in `salvage.py`.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from app.chat.changes import Changes
from app.chat.conversation import Conversation, Turn, TurnState, new_id
from app.chat.file_systems import is_network_path
from app.chat.plain_text import one_line
from app.chat.store_file import BUSY_TIMEOUT_MS, DamagedStoreError, MovedStoreError, connect, named_faults
from app.chat.store_reading import ReadingStore, newer_store
from app.chat.store_rows import TURN_COLUMNS, SqlValue, row_of_conversation, row_of_turn, storable, text_of_attachments
from app.chat.store_schema import SCHEMA_VERSION, bring_up_to_date, prepare_word_index, version_of

_CHECKED_BYTES = 256 * 2**20
_DELETED_FOR_GOOD_S = 7 * 24 * 3600
_WRONG_CLOCK_S = 3600
# The row keeps its number, by which the index of words knows it.
_TURN_CHANGES = ", ".join(f"{name} = excluded.{name}" for name in TURN_COLUMNS.split(", ")[1:])


class Store(ReadingStore):
    """The open file of conversations. Every method is one transaction; all raise StoreError.

    A reply that it writes as partial is this window's until it writes it otherwise.
    """

    def __init__(self, path: Path) -> None:
        """Opens or creates the file. Raises DamagedStoreError or NewerStoreError where it can't be used as it is."""
        self._known: dict[str, Mapping[str, SqlValue]] = {}
        self._window = new_id()
        self._shared: set[str] = set()
        self._shown = ""
        self._file: tuple[int, int] | None = None
        super().__init__(path)

    def _open(self) -> sqlite3.Connection:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._connection = connect(self.path)
        try:
            self._prepare()
            self._file = self._file_now()
        except BaseException:
            self._connection.close()
            raise
        return self._connection

    def _prepare(self) -> None:
        execute = self._connection.execute
        execute(f"PRAGMA busy_timeout = {BUSY_TIMEOUT_MS}")
        version = version_of(self._connection)
        if version > SCHEMA_VERSION:
            raise newer_store(self.path, version)
        execute(f"PRAGMA journal_mode = {'DELETE' if is_network_path(self.path) else 'WAL'}")
        execute("PRAGMA synchronous = FULL")  # NORMAL would leave the last minutes to the next checkpoint
        execute("PRAGMA foreign_keys = ON")
        if self.path.stat().st_size <= _CHECKED_BYTES:
            found = execute("PRAGMA quick_check(1)").fetchone()[0]
            if found != "ok":
                raise DamagedStoreError(f"{self.path} is damaged: {one_line(found)}")
        with self._transaction() as connection:
            bring_up_to_date(connection)
            prepare_word_index(connection)
            now_s = time.time()
            connection.execute("DELETE FROM conversations WHERE deleted_at < ?", (now_s - _DELETED_FOR_GOOD_S,))
            # Written while the clock was wrong: it must not stand before everything to come.
            connection.execute(
                "UPDATE conversations SET updated_at = ? WHERE updated_at > ?", (now_s, now_s + _WRONG_CLOCK_S)
            )

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with named_faults(self.path):
            if self._file is not None and self._file != self._file_now():
                raise MovedStoreError(f"{self.path} is no longer the file that was opened")
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield self._connection
                self._connection.execute("COMMIT")
            except BaseException:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise

    def _file_now(self) -> tuple[int, int] | None:
        """What tells the file at the path from another; None where there is none."""
        try:
            found = self.path.stat()
        except FileNotFoundError:
            return None
        return found.st_dev, found.st_ino

    def load(self, conversation_id: str) -> Conversation | None:
        """As it stands in the file, which this window knows from now on."""
        is_shared = self.claims.is_elsewhere(conversation_id)
        conversation = self.read(conversation_id)
        if conversation is not None:
            self._know(conversation)
            (self._shared.add if is_shared else self._shared.discard)(conversation_id)
        return conversation

    def write(self, changes: Changes) -> None:
        """Writes the changes, all or nothing.

        A conversation that another window deleted meanwhile is there again where turns or a draft are written:
        somebody goes on with it.
        """
        written = self._to_write(changes)
        with self._transaction() as connection:
            for conversation, has_attachments in written:
                self._write_conversation(connection, conversation, has_attachments=has_attachments)
            for turn in changes.turns.values():
                if turn.state is TurnState.PARTIAL:
                    self.claims.hold(turn.id)
                _write_turn(connection, changes.conversation_id, turn)
            connection.executemany("DELETE FROM turns WHERE id = ?", [(identity,) for identity in changes.removed])
            settings: dict[str, SqlValue] = {}
            if changes.is_deleted is not None:
                settings["deleted_at"] = time.time() if changes.is_deleted else None
            elif changes.turns or any(conversation.draft for conversation, _ in written):
                settings["deleted_at"] = None
            if changes.is_pinned is not None:
                settings["pinned"] = changes.is_pinned
            _update(connection, changes.conversation_id, settings)
        for conversation, _ in written:
            self._know(conversation)
        for turn in changes.turns.values():
            if turn.state is not TurnState.PARTIAL:
                self.claims.let_go(turn.id)

    def _to_write(self, changes: Changes) -> list[tuple[Conversation, bool]]:
        """The rows of `conversations`, each with whether its attachments count.

        In a conversation that another window shows too, the draft there is the other's: this one's gets a row of its
        own, which the list shows as a draft.
        """
        conversation = changes.conversation
        if conversation is None:
            return []
        if conversation.id not in self._shared:
            self.claims.hold(conversation.id)
            return [(conversation, changes.has_attachments)]
        own = Conversation(
            id=f"{conversation.id}-{self._window}",
            system=conversation.system,
            draft=conversation.draft,
            attachments=conversation.attachments,
        )
        shared = replace(conversation, draft="", edited=None, edit="", attachments=())
        has_own = bool(own.draft) or changes.has_attachments or own.id in self._known
        if not has_own:
            return [(shared, False)]
        self.claims.hold(own.id)
        return [(shared, False), (own, changes.has_attachments)]

    def save_conversation(self, conversation: Conversation) -> None:
        """Writes everything but the turns."""
        self.write(Changes(conversation_id=conversation.id, conversation=conversation))

    def save_turns(self, conversation: Conversation, turns: Sequence[Turn]) -> None:
        """Writes the turns and the conversation that holds them."""
        by_id = {turn.id: turn for turn in turns}
        self.write(Changes(conversation_id=conversation.id, conversation=conversation, turns=by_id))

    def set_time(self, conversation_id: str, updated_at: float) -> None:
        """Says when a conversation was changed last."""
        with self._transaction() as connection:
            _update(connection, conversation_id, {"updated_at": updated_at})

    def _write_conversation(
        self, connection: sqlite3.Connection, conversation: Conversation, *, has_attachments: bool
    ) -> None:
        """Writes what this window changed: what another window wrote meanwhile beside it stays."""
        row = row_of_conversation(conversation)
        beside: dict[str, SqlValue] = {"updated_at": time.time()}
        if has_attachments:
            beside["attachments"] = text_of_attachments(conversation.attachments)
        known = self._known.get(conversation.id)
        if known is not None:
            changed = {name: value for name, value in row.items() if value != known[name]}
            if _update(connection, conversation.id, changed | beside):
                return
        row |= beside
        settings = ", ".join(f"{name} = excluded.{name}" for name in row if name != "id")
        connection.execute(
            f"INSERT INTO conversations ({', '.join(row)}) VALUES ({', '.join('?' * len(row))}) "
            f"ON CONFLICT (id) DO UPDATE SET {settings}",
            tuple(row.values()),
        )

    def _know(self, conversation: Conversation) -> None:
        """So it stands in the file now, as far as this window knows."""
        self._known[conversation.id] = row_of_conversation(conversation)

    def show(self, conversation_id: str) -> None:
        """This window shows this conversation now, and no other."""
        if conversation_id != self._shown:
            self._shown = conversation_id
            self.claims.let_all_go(but=conversation_id)
            self._shared &= {conversation_id}
            if conversation_id not in self._shared and not self.claims.hold(conversation_id):
                self._shared.add(conversation_id)


def _update(connection: sqlite3.Connection, conversation_id: str, settings: Mapping[str, SqlValue]) -> bool:
    """Sets these columns of a conversation; False where there is none of that id."""
    if not settings:
        return False
    names = ", ".join(f"{name} = ?" for name in settings)
    values = (*settings.values(), conversation_id)
    return bool(connection.execute(f"UPDATE conversations SET {names} WHERE id = ?", values).rowcount)


def _write_turn(connection: sqlite3.Connection, conversation_id: str, turn: Turn) -> None:
    """Writes a turn over the one of its id. A turn only ever grows: what this one does not begin with was written by
    another window, and stays as another version."""
    row = row_of_turn(turn)
    found = connection.execute("SELECT text, thinking FROM turns WHERE id = ?", (turn.id,)).fetchone()
    if found is not None:
        own, other = (storable(turn.text), storable(turn.thinking)), found
        is_behind = _begins_with(other, own) and own != other
        if is_behind or turn.state is TurnState.ELSEWHERE:
            connection.execute("UPDATE turns SET parent = ? WHERE id = ?", (turn.parent, turn.id))
            return
        if not _begins_with(own, other):
            rest = TURN_COLUMNS.removeprefix("id, ")
            copy = (
                f"INSERT INTO turns (conversation, id, {rest}) SELECT conversation, ?, {rest} FROM turns WHERE id = ?"
            )
            connection.execute(copy, (new_id(), turn.id))
    connection.execute(
        f"INSERT INTO turns (conversation, {TURN_COLUMNS}) VALUES ({', '.join('?' * (len(row) + 1))}) "
        f"ON CONFLICT (id) DO UPDATE SET {_TURN_CHANGES}",
        (conversation_id, *row),
    )


def _begins_with(longer: tuple[str, str], shorter: tuple[str, str]) -> bool:
    return all(text.startswith(beginning) for text, beginning in zip(longer, shorter, strict=True))
