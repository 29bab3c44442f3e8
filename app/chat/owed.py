"""What of the conversations is not on disk yet.

Owns the changes that wait, one set for each conversation, newer ones joined to older. Filled by the screen's thread,
emptied by the recorder's. Knows nothing of files.
"""

from __future__ import annotations

import threading

from app.chat.changes import Changes


class Owed:
    """Changes in the order in which their conversations were changed first."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: dict[str, Changes] = {}
        self._taken: Changes | None = None

    def add(self, changes: Changes) -> None:
        """These wait, behind what waits of the same conversation."""
        with self._lock:
            self._join(changes)

    def take(self, passed_over: set[str]) -> Changes | None:
        """The first that waits of any other conversation than these; it waits no more, and is not done yet."""
        with self._lock:
            identity = next((key for key in self._waiting if key not in passed_over), None)
            self._taken = None if identity is None else self._waiting.pop(identity)
            return self._taken

    def settle(self, left: Changes | None) -> None:
        """What was taken stands on disk, save what is left: that waits again, before what came meanwhile."""
        with self._lock:
            self._taken = None
            if left is not None:
                later = self._waiting.pop(left.conversation_id, None)
                self._waiting = {left.conversation_id: left} | self._waiting
                if later is not None:
                    self._join(later)

    @property
    def all(self) -> tuple[Changes, ...]:
        """All that is not on disk for sure."""
        with self._lock:
            return ((self._taken,) if self._taken else ()) + tuple(self._waiting.values())

    def _join(self, changes: Changes) -> None:
        before = self._waiting.get(changes.conversation_id)
        self._waiting[changes.conversation_id] = changes if before is None else before.followed_by(changes)
