"""Searching in all conversations: which turns, titles and unsent drafts hold a text, and what stands around it.

Owns the choice between the index of words and reading every turn, and the excerpt of a hit. Shorter texts than the
index's three characters are looked for in the turns themselves, as are replies that are still being written.
"""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass

from app.chat.plain_text import one_line

_INDEXED_CHARS = 3
_AROUND_CHARS = 60
_LIMIT = 100
_Row = tuple[str, str | None, str, str, float, str]  # conversation, turn, title, what it is, when, its text


@dataclass(frozen=True, kw_only=True)
class Hit:
    """A turn that holds what was looked for. `before`, `found` and `after` are one line of it.

    `turn_id` is None where it is the conversation's title or draft that does.
    """

    conversation_id: str
    turn_id: str | None
    title: str
    role: str  # of the turn's speaker; else `title` or `draft`
    created_at: float
    before: str
    found: str
    after: str


def search(connection: sqlite3.Connection, text: str, *, is_indexed: bool, limit: int = _LIMIT) -> list[Hit]:
    """What holds every word of the text (in quotation marks: the text as it stands), the latest first.

    That are turns, and a conversation's title or draft where none of its turns was found.
    """
    words = words_of(text)
    if not words:
        return []
    is_short = not is_indexed or any(len(word) < _INDEXED_CHARS for word in words)
    holds = " AND ".join(["t.text LIKE ? ESCAPE '\\'"] * len(words))
    patterns = [f"%{_escaped(word)}%" for word in words]
    if is_short:
        condition, values = holds, patterns
    else:
        condition = f"(t.rowid IN (SELECT rowid FROM words WHERE words MATCH ?) OR t.state = 'partial' AND {holds})"
        values = [" AND ".join(f'"{word}"' for word in (word.replace('"', '""') for word in words)), *patterns]
    rows = connection.execute(
        "SELECT c.id, t.id, c.title, t.role, t.created_at, t.text FROM turns t "
        f"JOIN conversations c ON c.id = t.conversation WHERE c.deleted_at IS NULL AND {condition} "
        "ORDER BY t.created_at DESC LIMIT ?",
        (*values, limit),
    ).fetchall()
    hits = [_hit(row, words) for row in rows]
    found = {hit.conversation_id for hit in hits}
    beside = [row for row in _titles_and_drafts(connection, patterns) if row[0] not in found]
    hits += [_hit(row, words) for row in beside[:limit]]
    return sorted(hits, key=lambda hit: -hit.created_at)[:limit]


def _titles_and_drafts(connection: sqlite3.Connection, patterns: list[str]) -> list[_Row]:
    """The conversations whose title, or else whose draft, holds all the words: there are few, and they are short."""
    rows: dict[str, _Row] = {}
    for name in ("draft", "title"):
        holds = " AND ".join([f"{name} LIKE ? ESCAPE '\\'"] * len(patterns))
        rows |= {
            row[0]: row
            for row in connection.execute(
                f"SELECT id, NULL, title, '{name}', updated_at, {name} FROM conversations "
                f"WHERE deleted_at IS NULL AND {holds} ORDER BY updated_at DESC",
                patterns,
            )
        }
    return list(rows.values())


def words_of(text: str) -> list[str]:
    """What has to be found, all of it: words between blanks, or what stands between quotation marks as it is."""
    stripped = text.strip()
    if len(stripped) > 1 and stripped[0] == stripped[-1] == '"':
        inner = stripped[1:-1]
        return [inner] if inner.strip() else []
    return stripped.split()


def _hit(row: _Row, words: list[str]) -> Hit:
    conversation_id, turn_id, title, role, created_at, text = row
    folded = text.lower()
    places = [(folded.find(word.lower()), len(word)) for word in words]
    start, length = min((place for place in places if place[0] >= 0), default=(0, 0))
    end = start + length
    return Hit(
        conversation_id=conversation_id,
        turn_id=turn_id,
        title=title,
        role=role,
        created_at=created_at,
        before=("…" if start > _AROUND_CHARS // 3 else "") + _line(text[max(0, start - _AROUND_CHARS // 3) : start]),
        found=_line(text[start:end]),
        after=_line(text[end : end + 4 * _AROUND_CHARS]),
    )


def _line(text: str) -> str:
    """One line; a blank at either end stays one."""
    head = " " if text[:1].isspace() else ""
    tail = " " if text[-1:].isspace() and text.strip() else ""
    return f"{head}{one_line(text)}{tail}"


def _escaped(word: str) -> str:
    return word.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
