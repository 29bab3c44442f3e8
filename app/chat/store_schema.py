"""The tables of the file of conversations, version by version, and the index of its words.

Owns every CREATE and ALTER. A step brings a file from one version to the next, so that an old file goes through all
that it lacks. The index of words (FTS5, trigrams: Chinese is found as well) holds each turn that is no longer being
written; where this SQLite has no such index, there is none, and searching reads the turns themselves.
"""

from __future__ import annotations

import sqlite3

_FIRST = """
CREATE TABLE conversations (
    id TEXT PRIMARY KEY,
    title TEXT NOT NULL DEFAULT '',
    system TEXT NOT NULL DEFAULT '',
    model TEXT NOT NULL DEFAULT '',
    leaf TEXT,
    window_start TEXT,
    draft TEXT NOT NULL DEFAULT '',
    created_at REAL NOT NULL,
    updated_at REAL NOT NULL
);
CREATE TABLE turns (
    id TEXT PRIMARY KEY,
    conversation TEXT NOT NULL REFERENCES conversations (id) ON DELETE CASCADE,
    parent TEXT,
    role TEXT NOT NULL,
    text TEXT NOT NULL,
    thinking TEXT NOT NULL DEFAULT '',
    ids BLOB,
    vocabulary TEXT NOT NULL DEFAULT '',
    model TEXT NOT NULL DEFAULT '',
    state TEXT NOT NULL,
    figures TEXT,
    created_at REAL NOT NULL
);
CREATE INDEX turns_of_conversation ON turns (conversation);
CREATE INDEX conversations_by_time ON conversations (updated_at);
"""
_PINS_DELETIONS_ATTACHMENTS = """
ALTER TABLE conversations ADD COLUMN pinned INTEGER NOT NULL DEFAULT 0;
ALTER TABLE conversations ADD COLUMN deleted_at REAL;
ALTER TABLE conversations ADD COLUMN attachments TEXT NOT NULL DEFAULT '';
ALTER TABLE turns ADD COLUMN attachments TEXT NOT NULL DEFAULT '';
"""
_SUMMARIES = "ALTER TABLE conversations ADD COLUMN summary TEXT NOT NULL DEFAULT ''"
_UNSAVED_EDITS = """
ALTER TABLE conversations ADD COLUMN edited TEXT;
ALTER TABLE conversations ADD COLUMN edit TEXT NOT NULL DEFAULT '';
"""
_STEPS = (_FIRST, _PINS_DELETIONS_ATTACHMENTS, _SUMMARIES, _UNSAVED_EDITS)
SCHEMA_VERSION = len(_STEPS)

_FIRST_TRIGRAM_VERSION = (3, 34, 0)
# A view, so that a rebuild and the triggers agree on which turns are indexed.
_INDEX = (
    "CREATE VIEW IF NOT EXISTS finished_turns AS SELECT rowid, text FROM turns WHERE state <> 'partial'",
    "CREATE VIRTUAL TABLE IF NOT EXISTS words USING fts5("
    "text, content = 'finished_turns', content_rowid = 'rowid', tokenize = 'trigram')",
    "INSERT INTO words (words) VALUES ('rebuild')",
    """CREATE TRIGGER words_of_new AFTER INSERT ON turns BEGIN
        INSERT INTO words (rowid, text) SELECT new.rowid, new.text WHERE new.state <> 'partial';
    END""",
    """CREATE TRIGGER words_of_gone AFTER DELETE ON turns BEGIN
        INSERT INTO words (words, rowid, text) SELECT 'delete', old.rowid, old.text WHERE old.state <> 'partial';
    END""",
    """CREATE TRIGGER words_of_changed AFTER UPDATE ON turns BEGIN
        INSERT INTO words (words, rowid, text) SELECT 'delete', old.rowid, old.text WHERE old.state <> 'partial';
        INSERT INTO words (rowid, text) SELECT new.rowid, new.text WHERE new.state <> 'partial';
    END""",
)
_TRIGGERS = ("words_of_new", "words_of_gone", "words_of_changed")


def version_of(connection: sqlite3.Connection) -> int:
    """The version of the file; 0 for an empty one."""
    return connection.execute("PRAGMA user_version").fetchone()[0]


def bring_up_to_date(connection: sqlite3.Connection) -> None:
    """Takes the file through the steps that it lacks. Inside a transaction: an old file stays whole or becomes new."""
    for number in range(version_of(connection), SCHEMA_VERSION):
        for sentence in filter(str.strip, _STEPS[number].split(";")):
            connection.execute(sentence)
        connection.execute(f"PRAGMA user_version = {number + 1}")


def has_word_index(connection: sqlite3.Connection) -> bool:
    """Whether this SQLite knows the index of words."""
    options = {row[0] for row in connection.execute("PRAGMA compile_options")}
    return "ENABLE_FTS5" in options and sqlite3.sqlite_version_info >= _FIRST_TRIGRAM_VERSION


def prepare_word_index(connection: sqlite3.Connection) -> bool:
    """Makes the index where it is missing; False where this SQLite has none. Inside a transaction.

    A SQLite that lacks it could not write a turn past the triggers: they go, and whoever can makes the index anew.
    """
    found = {row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'")}
    if not has_word_index(connection):
        for name in found.intersection(_TRIGGERS):
            connection.execute(f"DROP TRIGGER {name}")
        return False
    if not found.issuperset(_TRIGGERS):
        for name in found.intersection(_TRIGGERS):
            connection.execute(f"DROP TRIGGER {name}")
        for sentence in _INDEX:
            connection.execute(sentence)
    return True
