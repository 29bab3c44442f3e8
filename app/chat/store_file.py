"""The file of conversations as SQLite has it: connections to it, and its faults as sentences that name it.

Owns what is said when the file can't be used. Knows nothing of what stands in it.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

BUSY_TIMEOUT_MS = 5000
_DAMAGE_KINDS = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
_REFUSAL_CODES = (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM)


class StoreError(Exception):
    """The conversations can't be kept or read; the message is one sentence for the screen."""


class DamagedStoreError(StoreError):
    """The file is no database, or its pages contradict each other."""


class NewerStoreError(StoreError):
    """The file was written by a later Tandem and must not be touched."""


class MovedStoreError(StoreError):
    """Another file, or none, stands where this one was opened: what is written into it would be lost."""


@contextmanager
def named_faults(path: Path) -> Iterator[None]:
    """Turns what SQLite and the system say into a sentence that names the file."""
    try:
        yield
    except sqlite3.Error as fault:
        # Faults of the module itself carry no code; a code's low byte is its kind.
        code = getattr(fault, "sqlite_errorcode", 0)
        kind = code & 0xFF
        # Our own constraints have codes of their own; the bare one is what a broken index of words gives.
        if kind in _DAMAGE_KINDS or code == sqlite3.SQLITE_CONSTRAINT:
            raise DamagedStoreError(f"{path} is damaged: {fault}") from fault
        reason = _refusal(path) if kind in _REFUSAL_CODES else ""
        raise StoreError(f"The conversations in {path} can't be kept: {reason or fault}") from fault
    except OSError as fault:
        raise StoreError(f"{path} can't be opened: {_refusal(path) or fault.strerror or fault}") from fault


def _refusal(path: Path) -> str:
    """Why the system lets nobody at the file, where that can be seen; SQLite only says that it could not."""
    if path.is_dir():
        return "it is a folder"
    in_the_way = next((folder for folder in path.parents if folder.exists() and not folder.is_dir()), None)
    if in_the_way is not None:
        return f"{in_the_way} is a file where a folder should be"
    existing = path if path.exists() else next(folder for folder in path.parents if folder.exists())
    is_refused = not os.access(existing, os.R_OK | os.W_OK) or not os.access(existing.parent, os.X_OK)
    return f"{existing} may not be written by you" if is_refused else ""


def connect(path: Path) -> sqlite3.Connection:
    """A connection that waits for other windows, reads text of any bytes, and begins no transaction by itself."""
    return _set_up(sqlite3.connect(path, timeout=BUSY_TIMEOUT_MS / 1000, isolation_level=None, check_same_thread=False))


def connect_to_read(path: Path) -> sqlite3.Connection:
    """A connection that writes nothing at all, not even beside the file: for a place where nothing can be written."""
    with named_faults(path):
        for how in ("mode=ro", "immutable=1"):  # the first sees what is in the log too, where SQLite can have it
            connection = sqlite3.connect(
                f"file:{quote(str(path))}?{how}", uri=True, isolation_level=None, check_same_thread=False
            )
            try:
                connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
            except sqlite3.OperationalError:
                connection.close()
                if how == "immutable=1":
                    raise
            else:
                return _set_up(connection)
    raise AssertionError("the last way either gives a connection or raises")


def _set_up(connection: sqlite3.Connection) -> sqlite3.Connection:
    connection.text_factory = lambda raw: raw.decode("utf-8", "replace")
    return connection
