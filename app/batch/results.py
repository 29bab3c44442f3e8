"""The file that results go to: appended record by record, each whole and on the disk before the next.

Owns the file, its lock and the order of records.  Does not know how a record looks (formats.py) or comes about.
"""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType

from app.batch.formats import Format, Known
from app.batch.journal import Journal
from app.errors import AppError

# What fsync says of pipes and terminals, where nothing can be lost on a disk.
_NO_DISK = (errno.EINVAL, errno.ENOTSUP, errno.EROFS)


class ResultsFile:
    """Open for appending; what a killed run left half written is cut off.

    known: the records that are there.  Raises AppError when another run has the file, and when it holds something else
    than results.
    """

    def __init__(self, path: Path, format: Format) -> None:
        self._path = path = path.expanduser()
        self._journal: Journal | None = None
        try:
            self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        except OSError as error:
            raise AppError(f"The results can't be written to {path}: {error.strerror}.") from error
        try:
            self.known = self._take(format)
        except BaseException:
            os.close(self._descriptor)
            raise

    def append(self, record: str, key: str) -> None:
        """Writes a record and waits until it is on the disk; one that can't be written whole leaves nothing.

        key: of what it answers.
        """
        data = memoryview(record.encode("utf-8", "backslashreplace"))
        end = os.fstat(self._descriptor).st_size
        try:
            if self._journal is not None:
                self._journal.append(key)
            while data:
                data = data[os.write(self._descriptor, data) :]
            self._sync()
        except OSError as error:
            self._cut(end)
            raise AppError(
                f"The results can't be written to {self._path}: {error.strerror}.",
                hint="what is there already is kept; start the same command again to go on.",
            ) from error

    def _sync(self) -> None:
        try:
            os.fsync(self._descriptor)
        except OSError as error:
            if error.errno not in _NO_DISK:
                raise

    def _cut(self, end: int) -> None:
        try:
            os.ftruncate(self._descriptor, end)
        except OSError:
            pass  # a pipe, or a disk that is gone: the next run cuts what is half written

    def close(self) -> None:
        """Lets the file go."""
        os.close(self._descriptor)

    def __enter__(self) -> ResultsFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _take(self, format: Format) -> Known:
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise AppError(f"Another run is writing to {self._path} now.", hint="wait for it to end.") from error
        except OSError:
            pass  # a file system without locks
        content = self._path.read_bytes() if self._path.is_file() else b""
        known = format.read(content)
        if format.is_positional and self._path.is_file():
            known = self._take_journal(known, is_cut=known.end < len(content))
        if known.is_foreign:
            raise AppError(
                f"{self._path} holds something else than the results of these rows, so nothing was written to it.",
                hint="give --out another file, or the --format that this one was begun with.",
            )
        if known.end < len(content):
            os.ftruncate(self._descriptor, known.end)
            os.fsync(self._descriptor)
        if known.end == 0 and (begin := format.begin()):
            self.append(begin, "")
        return known

    def _take_journal(self, known: Known, *, is_cut: bool) -> Known:
        """The records with their keys; without one for each, and for what was cut, they are of another hand."""
        try:
            journal = Journal(self._path)
            if len(journal.keys) < known.num_records + is_cut:
                return replace(known, is_foreign=True)
            journal.keep(known.num_records)
        except OSError as error:
            raise AppError(f"The results can't be written to {error.filename}: {error.strerror}.") from error
        self._journal = journal
        return replace(known, keys=tuple(journal.keys))


@dataclass(frozen=True, kw_only=True)
class Record:
    """text: as the format has it, empty where nothing is written; key: of what it answers."""

    text: str
    key: str


class InOrder:
    """Lets records through in the order of the rows: each waits for those before it.

    places: by line, the place of each row that is still to come, from 0 on.
    """

    def __init__(self, places: Mapping[int, int]) -> None:
        self._places = places
        self._waiting: dict[int, Record] = {}
        self._next = 0

    def add(self, line: int, record: Record) -> list[Record]:
        """The records that may be written now."""
        self._waiting[self._places[line]] = record
        ready: list[Record] = []
        while self._next in self._waiting:
            ready.append(self._waiting.pop(self._next))
            self._next += 1
        return ready
