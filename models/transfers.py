"""What every download shares: the unfinished file beside its goal, the lock, hashes, disk space, cancelling.

Owns the rule that a file gets its final name only when all of it is there and its SHA-256 is right.  Does not know
where bytes come from.  Unfinished files lie in a hidden folder of the models folder, so that the last step is a
rename within one file system.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from models.errors import DownloadError

UNFINISHED_FOLDER = ".unfinished"
_LOCK_POLL_S = 0.1
_HASH_CHUNK_BYTES = 1 << 20


class CancelSignal(Protocol):
    """Anything that can be asked whether to stop, such as a threading.Event."""

    def is_set(self) -> bool: ...


Progress = Callable[[int, int], None]
"""Called with (bytes done, bytes in all)."""


class DownloadCancelledError(DownloadError):
    """The caller asked to stop; what was fetched is kept, and the next try goes on from there."""


class DiskFullError(DownloadError):
    """The models folder's file system has no room: no other source can help."""


def size_text(size_bytes: int) -> str:
    """A size as people read it, in powers of ten: 98.4 MB."""
    if size_bytes < 1000:
        return f"{size_bytes} bytes"
    amount = float(size_bytes)
    for unit in ("kB", "MB", "GB"):
        amount /= 1000
        if amount < 999.95:
            return f"{amount:.1f} {unit}"
    return f"{amount / 1000:.1f} TB"


def check_cancelled(cancel: CancelSignal | None, what: str) -> None:
    """Raise DownloadCancelledError when the caller asked to stop."""
    if cancel is not None and cancel.is_set():
        raise DownloadCancelledError(
            f"The download of {what} was stopped; what has arrived is kept, and the next try goes on from there."
        )


@contextmanager
def disk_errors(path: Path) -> Iterator[None]:
    """Turn what the file system says while `path` is written into one sentence."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise DiskFullError(
                f"The disk is full: {path} could not be written. Free some space and try again: it goes on "
                "from what has arrived. TANDEM_MODELS_DIR names a folder on another disk."
            ) from error
        reason = error.strerror or str(error)
        raise DownloadError(
            f"{path} could not be written ({reason}): make the folder writable, or choose another one with "
            "TANDEM_MODELS_DIR."
        ) from error


def require_free_space(folder: Path, needed_bytes: int, what: str) -> None:
    """Refuse at once what can't fit on the disk."""
    free_bytes = shutil.disk_usage(folder).free
    if free_bytes < needed_bytes:
        raise DiskFullError(
            f"{what} needs {size_text(needed_bytes)} more on the disk, and {folder} has {size_text(free_bytes)} free: "
            "free some space, or choose another folder with TANDEM_MODELS_DIR."
        )


def file_sha256(path: Path, cancel: CancelSignal | None = None) -> str:
    """SHA-256 of a file's content, in hexadecimal."""
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while chunk := file.read(_HASH_CHUNK_BYTES):
            check_cancelled(cancel, path.name)
            digest.update(chunk)
    return digest.hexdigest()


def unfinished_path(folder: Path, local_name: str, version: str) -> Path:
    """Where the bytes of folder/local_name are gathered; `version` keeps two contents of one name apart."""
    return folder / UNFINISHED_FOLDER / f"{local_name.replace('/', '--')}.{version[:12]}.part"


class UnfinishedFile:
    """The bytes that have arrived so far, kept on disk so that a later try goes on with them."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with disk_errors(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            # Unbuffered: what was counted is in the file, and closing can't fail for want of room.
            self._file = open(path, "ab", buffering=0)  # noqa: SIM115 (closed by close)
            self.size_bytes = self._file.tell()

    def append(self, data: bytes) -> None:
        rest = memoryview(data)
        while rest:
            with disk_errors(self.path):
                written = self._file.write(rest)
            self.size_bytes += written
            rest = rest[written:]

    def flush(self) -> None:
        """Put what was appended on the disk, so that a record of it may be written."""
        with disk_errors(self.path):
            os.fsync(self._file.fileno())

    def truncate(self, size_bytes: int) -> None:
        with disk_errors(self.path):
            self._file.truncate(size_bytes)
        self.size_bytes = size_bytes

    def close(self) -> None:
        self._file.close()

    def finish(self, target: Path, *, size_bytes: int, sha256: str, cancel: CancelSignal | None) -> None:
        """Check size and hash, then give the file its final name; wrong content is deleted and refused."""
        self.flush()
        self.close()
        found = file_sha256(self.path, cancel)
        if self.size_bytes != size_bytes or found != sha256:
            self.path.unlink(missing_ok=True)
            raise DownloadError(
                f"What arrived for {target.name} is wrong and was deleted: {self.size_bytes} bytes with SHA-256 "
                f"{found[:16]}..., expected {size_bytes} bytes with {sha256[:16]}...: try again."
            )
        with disk_errors(target):
            target.parent.mkdir(parents=True, exist_ok=True)
            os.replace(self.path, target)


@contextmanager
def download_lock(folder: Path, local_name: str, cancel: CancelSignal | None) -> Iterator[None]:
    """Let one process at a time fetch folder/local_name; the others wait, and find it there."""
    path = folder / UNFINISHED_FOLDER / f"{local_name.replace('/', '--')}.lock"
    with disk_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = _acquire(path, cancel, local_name)
    try:
        yield
    finally:
        path.unlink(missing_ok=True)
        os.close(descriptor)
        _remove_if_empty(path.parent)


def _acquire(path: Path, cancel: CancelSignal | None, what: str) -> int:
    while True:
        with disk_errors(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            while not _try_lock(path, descriptor):
                check_cancelled(cancel, what)
                time.sleep(_LOCK_POLL_S)
            # The holder before us removed the file: a lock on a removed file keeps nobody out.
            if _is_file_of(path, descriptor):
                return descriptor
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)


def _try_lock(path: Path, descriptor: int) -> bool:
    with disk_errors(path):
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True


def _is_file_of(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(os.stat(path), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def _remove_if_empty(folder: Path) -> None:
    try:
        folder.rmdir()
    except OSError:
        pass  # other downloads keep theirs there
