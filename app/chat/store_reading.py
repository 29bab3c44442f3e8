"""Reading the conversations on disk: the list, one of them, the prompts that were sent, and searching.

Owns what is asked of the file, and how it looks from this window while others have it open too. Reads also where
nothing can be written; `store.py` adds the writing.
"""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass, replace
from pathlib import Path

from app.chat.branches import branch_to
from app.chat.claims import Claims
from app.chat.conversation import Conversation, Turn, TurnState
from app.chat.engine_port import Role
from app.chat.search import Hit, search
from app.chat.store_file import NewerStoreError, StoreError, connect_to_read, named_faults
from app.chat.store_rows import CONVERSATION_COLUMNS, TURN_COLUMNS, conversation_of_row, leaf_of_row, turn_of_row
from app.chat.store_schema import SCHEMA_VERSION, has_word_index, version_of

_LONGEST_RECALLED = 20_000


@dataclass(frozen=True, kw_only=True)
class ConversationLine:
    """One line of the list of conversations.

    `is_being_written`: its last reply grows right now; `is_elsewhere`: another window shows it.
    """

    id: str
    title: str
    updated_at: float
    num_turns: int
    has_draft: bool
    is_broken_off: bool
    is_being_written: bool = False
    is_elsewhere: bool = False
    is_pinned: bool = False


class ReadingStore:
    """The file of conversations, to be read alone. All methods raise StoreError."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.claims = Claims(path.with_name(f"{path.name}-open"))
        with named_faults(path):
            self._connection = self._open()
            self._is_indexed = has_word_index(self._connection)

    def _open(self) -> sqlite3.Connection:
        connection = connect_to_read(self.path)
        version = version_of(connection)
        if version != SCHEMA_VERSION:
            connection.close()
            raise (
                newer_store(self.path, version)
                if version > SCHEMA_VERSION
                else StoreError(
                    f"{self.path} is of an earlier format ({version}), and can't be brought up to date here"
                )
            )
        return connection

    def load(self, conversation_id: str) -> Conversation | None:
        """The conversation, to be shown; None where there is none of that id."""
        return self.read(conversation_id)

    def read(self, conversation_id: str) -> Conversation | None:
        """The conversation, the turns of its other branches apart; None where there is none of that id.

        A reply that another window writes right now is marked as such; a draft in a conversation that another window
        shows is that window's.
        """
        with named_faults(self.path):
            row = self._connection.execute(
                f"SELECT {CONVERSATION_COLUMNS}, attachments FROM conversations WHERE id = ?", (conversation_id,)
            ).fetchone()
            if row is None:
                return None
            rows = self._connection.execute(
                f"SELECT {TURN_COLUMNS} FROM turns WHERE conversation = ? ORDER BY rowid", (conversation_id,)
            ).fetchall()
        turns = [self._as_it_stands(turn_of_row(turn_row)) for turn_row in rows]
        branch = branch_to(turns, leaf_of_row(row))
        shown = {turn.id for turn in branch}
        conversation = replace(
            conversation_of_row(row[:-1], row[-1]),
            turns=branch,
            others=tuple(turn for turn in turns if turn.id not in shown),
        )
        if self.claims.is_elsewhere(conversation_id):
            return replace(conversation, draft="", edited=None, edit="", attachments=())
        return conversation

    def _as_it_stands(self, turn: Turn) -> Turn:
        is_elsewhere = turn.state is TurnState.PARTIAL and self.claims.is_elsewhere(turn.id)
        return replace(turn, state=TurnState.ELSEWHERE) if is_elsewhere else turn

    def conversations(self, limit: int = 200) -> list[ConversationLine]:
        """The conversations that hold anything and are not deleted: those that are pinned, then the latest first."""
        with named_faults(self.path):
            rows = self._connection.execute(
                "SELECT c.id, c.title, c.updated_at, count(t.id), "
                "c.draft <> '' OR c.edit <> '' OR c.attachments <> '', "
                "coalesce(max(t.id = c.leaf AND t.state = ?), 0), c.leaf, c.draft, c.pinned FROM conversations c "
                "LEFT JOIN turns t ON t.conversation = c.id WHERE c.deleted_at IS NULL "
                "GROUP BY c.id HAVING count(t.id) > 0 OR c.draft <> '' OR c.attachments <> '' "
                "ORDER BY c.pinned DESC, c.updated_at DESC LIMIT ?",
                (TurnState.PARTIAL, limit),
            ).fetchall()
        elsewhere = self.claims.held_elsewhere()
        return [
            ConversationLine(
                id=identity,
                title=title or draft,
                updated_at=updated_at,
                num_turns=num_turns,
                has_draft=bool(has_draft),
                is_broken_off=bool(is_partial) and not self.claims.is_held(leaf),
                is_being_written=bool(is_partial) and self.claims.is_held(leaf),
                is_elsewhere=identity in elsewhere,
                is_pinned=bool(is_pinned),
            )
            for identity, title, updated_at, num_turns, has_draft, is_partial, leaf, draft, is_pinned in rows
        ]

    def prompts(self, limit: int = 200) -> list[str]:
        """What the user sent lately in any conversation, the oldest first, repeats once."""
        with named_faults(self.path):
            rows = self._connection.execute(
                "SELECT text FROM turns WHERE role = ? AND length(text) BETWEEN 1 AND ? "
                "GROUP BY text ORDER BY max(created_at) DESC LIMIT ?",
                (Role.USER, _LONGEST_RECALLED, limit),
            ).fetchall()
        return [row[0] for row in reversed(rows)]

    def search(self, text: str) -> list[Hit]:
        """The turns of all conversations that hold the words of the text, the latest first."""
        with named_faults(self.path):
            return search(self._connection, text, is_indexed=self._is_indexed)

    def close(self) -> None:
        """Lets go of what this window held, and closes the file."""
        self.claims.let_all_go()
        self._connection.close()


def newer_store(path: Path, version: int) -> NewerStoreError:
    """What is said of a file that a later version wrote."""
    return NewerStoreError(
        f"{path} was written by a later version of Tandem (format {version}, this one knows {SCHEMA_VERSION}): "
        "install the later version"
    )
