"""One file, open for reading at any place.

Owns the file descriptor, every read from it, and what the operating system says when a file cannot be had.  Does not
know what is inside.

Nothing is mapped into memory: a program that reads a mapped file dies with SIGBUS when another one truncates it, and
nothing can be done about that.  A read that comes back short is an error like any other; one that does not come back is
waited for in a way that whoever opens the file chooses (system_calls.py).
"""

from __future__ import annotations

import os
import stat
from functools import partial
from pathlib import Path

import numpy as np

from models.errors import FileError, quoted
from models.system_calls import how_calls_are_made

_WINDOW_BYTES = 256 << 10


class FileReader:
    """An open file.  `label` is its quoted path, the beginning of every message about it."""

    def __init__(self, path: Path) -> None:
        """Opens the file.  FileError when it is missing, empty, a folder, a device, or may not be read."""
        self.path = path
        self.label = quoted(str(path), limit=None)
        self._make = how_calls_are_made()
        self._descriptor = self._make(self.label, lambda: _open(path, self.label))
        try:
            self._status = self._look()
            _check_kind(path, self.label, self._status)
        except OSError as error:
            os.close(self._descriptor)
            raise FileError(f"{self.label} cannot be read: {error.strerror or error}.") from error
        except FileError:
            os.close(self._descriptor)
            raise
        self.size_bytes = self._status.st_size
        self._is_open = True
        self._window, self._window_start = b"", 0

    def bytes_at(self, offset_bytes: int, size_bytes: int) -> np.ndarray:
        """A copy, uint8 [size_bytes].  FileError when the file is no longer that long, or can't be read."""
        data = np.empty(size_bytes, np.uint8)
        self.read_into(data, offset_bytes)
        return data

    def read_into(self, data: np.ndarray, offset_bytes: int) -> None:
        """Fills data (uint8, contiguous) from that byte on; FileError as in bytes_at."""
        self._check_open()
        rest, at = data.data, offset_bytes
        while rest:
            try:
                count = self._make(self.label, partial(os.preadv, self._descriptor, [rest], at))
            except OSError as error:
                raise FileError(
                    f"{self.label} cannot be read at byte {at:,}: {error.strerror or error}; look whether the disk or "
                    "the network share it lies on is there."
                ) from error
            if count == 0:
                raise self._shrunk(self._look().st_size)
            rest, at = rest[count:], at + count

    def window(self, offset_bytes: int, size_bytes: int = 1) -> tuple[bytes, int]:
        """Some bytes, and where they begin: from offset_bytes, or before, at least size_bytes on.

        Small reads one behind the other cost one read of the file in many.  FileError as in bytes_at.
        """
        end = offset_bytes + size_bytes
        if not self._window_start <= offset_bytes <= end <= self._window_start + len(self._window):
            length = min(max(size_bytes, _WINDOW_BYTES), self.size_bytes - offset_bytes)
            self._window = self.bytes_at(offset_bytes, length).tobytes()
            self._window_start = offset_bytes
        return self._window, self._window_start

    def check_unchanged(self) -> None:
        """FileError when the file's size or modification time is no longer what it was when it was opened."""
        self._check_open()
        now = self._look()
        if now.st_size != self._status.st_size:
            raise self._shrunk(now.st_size)
        if now.st_mtime_ns != self._status.st_mtime_ns:
            raise FileError(
                f"{self.label} was written to while it was being read: wait until whatever writes it has finished and "
                "load it again."
            )

    def close(self) -> None:
        """Closes the file.  May be called again."""
        if self._is_open:
            self._is_open = False
            self._window = b""
            os.close(self._descriptor)

    def _look(self) -> os.stat_result:
        return self._make(self.label, partial(os.fstat, self._descriptor))

    def _shrunk(self, size_bytes: int) -> FileError:
        return FileError(
            f"{self.label} changed while it was being read: it had {self._status.st_size:,} bytes, now it has "
            f"{size_bytes:,}; wait until whatever writes it has finished and load it again."
        )

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
