"""What living windows hold: the conversation that each shows, and the reply that it writes.

Owns a folder of empty files beside the conversations, one for each thing that is held, named by its id and locked
(flock) by whoever holds it. The system takes the lock away with the program, however that ends, so no process number
can mislead that was given out anew; on a network home, NFS and SMB pass the locks on to the other machines. Knows
nothing of what the ids stand for. Where a file system has no locks, everything counts as free.
"""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path

_ATTEMPTS = 5
_ATTEMPT_PAUSE_S = 0.01


class Claims:
    """What this window holds, and whether another one holds something. One thread."""

    def __init__(self, folder: Path) -> None:
        """The folder is made by the first claim."""
        self._folder = folder
        self._held: dict[str, int] = {}

    def hold(self, identity: str) -> bool:
        """Takes it, or has it already; False where another living window holds it."""
        if identity in self._held:
            return True
        try:
            self._folder.mkdir(exist_ok=True)
            for _ in range(_ATTEMPTS):  # Whoever only looks holds the lock for a moment too.
                if (lock := self._lock(identity, os.O_RDWR | os.O_CREAT)) is not None:
                    self._held[identity] = lock
                    return True
                time.sleep(_ATTEMPT_PAUSE_S)
        except OSError:
            return True
        return False

    def let_go(self, identity: str) -> None:
        """Whoever wants it may have it."""
        if (lock := self._held.pop(identity, None)) is not None:
            self._remove(identity)
            os.close(lock)

    def is_held(self, identity: str) -> bool:
        """Whether any living window holds it."""
        return identity in self._held or self.is_elsewhere(identity)

    def is_elsewhere(self, identity: str) -> bool:
        """Whether another living window holds it."""
        if identity in self._held:
            return False
        try:
            lock = self._lock(identity, os.O_RDWR)
        except OSError:
            return False
        if lock is None:
            return True
        self._remove(identity)  # Its holder ended without letting go.
        os.close(lock)
        return False

    def held_elsewhere(self) -> set[str]:
        """All that other living windows hold."""
        try:
            names = os.listdir(self._folder)
        except OSError:
            return set()
        return {name for name in names if self.is_elsewhere(name)}

    def let_all_go(self, *, but: str = "") -> None:
        """Lets go of everything, save one."""
        for identity in [held for held in self._held if held != but]:
            self.let_go(identity)

    def _lock(self, identity: str, how: int) -> int | None:
        """The locked file; None where another has it. A file that its holder took away meanwhile is none."""
        while True:
            file = os.open(self._folder / identity, how | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if os.fstat(file).st_nlink:
                    return file
            except BlockingIOError:
                os.close(file)
                return None
            except OSError:
                os.close(file)
                raise
            os.close(file)

    def _remove(self, identity: str) -> None:
        try:
            os.unlink(self._folder / identity)
        except OSError:
            pass
