"""One read-only file mapped into memory.

Owns the file descriptor, the map, and what the operating system says when a file cannot be had.  Does not know what
is inside.

A file that another program truncates while it is mapped kills the reader with SIGBUS; nothing in this process can
prevent that.  Whoever reads large parts calls `check_unchanged` around it and closes the map when done.
"""

from __future__ import annotations

import mmap
import os
import stat
from pathlib import Path

import numpy as np

from models.errors import FileError, quoted


class MappedFile:
    """A mapped file.  `label` is its quoted path, the beginning of every message about it."""

    def __init__(self, path: Path) -> None:
        """Maps the file.  FileError when it is missing, empty, a folder, a device, or may not be read."""
        self.path = path
        self.label = quoted(str(path), limit=None)
        self._descriptor = _open(path, self.label)
        try:
            self._status = os.fstat(self._descriptor)
            _check_kind(path, self.label, self._status)
            self.map = mmap.mmap(self._descriptor, 0, access=mmap.ACCESS_READ)
        except OSError as error:
            os.close(self._descriptor)
            raise FileError(f"{self.label} cannot be mapped into memory: {error.strerror or error}.") from error
        except FileError:
            os.close(self._descriptor)
            raise
        self.size_bytes = len(self.map)
        self._is_open = True

    def bytes_at(self, offset_bytes: int, size_bytes: int) -> np.ndarray:
        """A read-only uint8 view [size_bytes] on the map."""
        self._check_open()
        return np.frombuffer(self.map, np.uint8, size_bytes, offset_bytes)

    def release(self, offset_bytes: int, size_bytes: int) -> None:
        """Gives the pages of that range back to the system; reading them again fetches them again."""
        self._check_open()
        start = offset_bytes // mmap.PAGESIZE * mmap.PAGESIZE
        if size_bytes > 0:
            self.map.madvise(mmap.MADV_DONTNEED, start, offset_bytes + size_bytes - start)

    def check_unchanged(self) -> None:
        """FileError when the file's size or modification time is no longer what it was when it was opened."""
        self._check_open()
        now = os.fstat(self._descriptor)
        if now.st_size != self._status.st_size:
            raise FileError(
                f"{self.label} changed while it was being read: it had {self._status.st_size:,} bytes, now it has "
                f"{now.st_size:,}; wait until whatever writes it has finished and load it again."
            )
        if now.st_mtime_ns != self._status.st_mtime_ns:
            raise FileError(
                f"{self.label} was written to while it was being read: wait until whatever writes it has finished and "
                "load it again."
            )

    def close(self) -> None:
        """Closes file and map.  Where views on the map are still alive, it goes with the last of them."""
        if not self._is_open:
            return
        self._is_open = False
        os.close(self._descriptor)
        try:
            self.map.close()
        except BufferError:
            # A view is alive; dropping our reference leaves the map to it.
            del self.map

    def _check_open(self) -> None:
        if not self._is_open:
            raise FileError(f"{self.label} has been closed and cannot be read any more.")


def _open(path: Path, label: str) -> int:
    try:
        # O_NONBLOCK: a named pipe would wait for a writer, and is refused a line later.
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError as error:
        raise FileError(f"{label} does not exist.") from error
    except PermissionError as error:
        raise FileError(f"{label} may not be read by this user: give it permission (`chmod +r`).") from error
    except OSError as error:
        raise FileError(f"{label} cannot be opened: {error.strerror or error}.") from error
    except ValueError as error:  # a NUL in the path
        raise FileError(f"{label} is not a possible path: {error}.") from error


def _check_kind(path: Path, label: str, status: os.stat_result) -> None:
    if stat.S_ISDIR(status.st_mode):
        raise FileError(f"{label} is a folder: name the .gguf file in it{_models_in(path)}.")
    if not stat.S_ISREG(status.st_mode):
        raise FileError(f"{label} is not a regular file but a device, pipe or socket: name a .gguf file.")
    if status.st_size == 0:
        raise FileError(f"{label} is empty (0 bytes): the download never began, fetch it again.")


def _models_in(folder: Path) -> str:
    try:
        names = sorted(entry.name for entry in os.scandir(folder) if entry.name.endswith(".gguf"))
    except OSError:
        return ""
    if not names:
        return " (there is none at its top level)"
    shown = ", ".join(map(quoted, names[:3]))
    return f" (it holds {shown}{' and others' if len(names) > 3 else ''})"
