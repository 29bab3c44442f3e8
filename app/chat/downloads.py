"""Downloads that go on while the chat does: at most one for each model.

Owns their threads and how far each has come. Knows nothing of the screen, which looks at them as often as it draws.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from enum import StrEnum

from app.chat.model_port import ModelShelf, ShelfFault


class DownloadState(StrEnum):
    """How a download is going. STOPPED and FAILED ones go on where they were when they are started again."""

    RUNNING = "running"
    STOPPED = "stopped"
    FAILED = "failed"
    DONE = "done"


_SPEED_OVER_S = 5.0


class Download:
    """One download. `done_bytes` and `total_bytes` are what has come and what is to come (0: not known yet)."""

    def __init__(self, name: str, done_bytes: int = 0, *, clock: Callable[[], float] = time.monotonic) -> None:
        """`done_bytes`: what an earlier download left."""
        self.name = name
        self.state = DownloadState.RUNNING
        self.done_bytes = done_bytes
        self.total_bytes = 0
        self.sentence = ""
        self._leaving = threading.Event()
        self._clock = clock
        self._came = deque([(clock(), done_bytes)])  # when how much was there, over the last seconds

    @property
    def silent_s(self) -> float:
        """For so long nothing has come."""
        return self._clock() - self._came[-1][0]

    @property
    def bytes_per_s(self) -> float:
        """What came lately; 0 where that can't be said yet."""
        (first_s, first_bytes), (_, last_bytes) = self._came[0], self._came[-1]
        elapsed_s = self._clock() - first_s
        return (last_bytes - first_bytes) / elapsed_s if elapsed_s >= 1 else 0.0

    def stop(self) -> None:
        """Ends it; what has come is kept. Its thread may wait a while longer for a server that says nothing."""
        self._leaving.set()
        if self.state is DownloadState.RUNNING:
            self.state = DownloadState.STOPPED

    def run(self, shelf: ModelShelf) -> None:
        """Downloads, on the thread that calls."""
        try:
            shelf.fetch(self.name, self._report, self._leaving)
        except Exception as fault:  # A bug below must end as a sentence too: nobody else looks at this thread.
            self.sentence = str(fault) if isinstance(fault, ShelfFault) else f"The download failed: {fault}"
            self.state = DownloadState.STOPPED if self._leaving.is_set() else DownloadState.FAILED
        else:
            self.state = DownloadState.DONE

    def _report(self, done_bytes: int, total_bytes: int) -> None:
        now = self._clock()
        if done_bytes != self.done_bytes or not self.total_bytes:
            if not self.total_bytes or done_bytes < self.done_bytes:
                self._came.clear()  # what was there before it began says nothing of the speed
            self._came.append((now, done_bytes))
        while len(self._came) > 2 and self._came[1][0] < now - _SPEED_OVER_S:
            self._came.popleft()
        self.done_bytes, self.total_bytes = done_bytes, total_bytes


class Downloads:
    """All downloads of this chat. `when_ended` is called on the download's thread."""

    def __init__(self, shelf: ModelShelf, when_ended: Callable[[Download], None]) -> None:
        self._shelf = shelf
        self._when_ended = when_ended
        self._downloads: dict[str, Download] = {}

    def of(self, name: str) -> Download | None:
        """The latest download of a model."""
        return self._downloads.get(name)

    def start(self, name: str, done_bytes: int = 0) -> Download:
        """Begins or goes on; one that is running is left alone. `done_bytes`: what an earlier chat left of it."""
        known = self._downloads.get(name)
        if known is not None and known.state is DownloadState.RUNNING:
            return known
        download = self._downloads[name] = Download(name, known.done_bytes if known is not None else done_bytes)
        threading.Thread(target=self._run, args=(download,), name="chat-download", daemon=True).start()
        return download

    def stop_all(self) -> None:
        """Ends all of them; what has come is kept."""
        for download in self._downloads.values():
            download.stop()

    def _run(self, download: Download) -> None:
        download.run(self._shelf)
        self._when_ended(download)
