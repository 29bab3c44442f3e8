"""How much of what was drawn the terminal has not taken yet.

Owns the counting of questions and answers. Writes and reads nothing itself.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable

# At 2 kB/s half a second; over a far line enough for a smooth reply.
_MOST_BYTES_AHEAD = 1024
# A terminal that stopped answering is no longer waited for.
_ANSWER_TIMEOUT_S = 8.0


class Backlog:
    """How much is on its way to the terminal: what lies in the buffers of a network is not seen here, so it is asked.

    The terminal answers a question once it has taken what was written before it. One that never answers is not waited
    for. Written to on the screen's thread, answered on the one that reads keys.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._written = self._taken = 0
        self._asked: deque[int] = deque()
        self._moved_at_s = 0.0
        self.does_answer = False

    def note_written(self, num_bytes: int) -> None:
        """So much more was written."""
        self._written += num_bytes

    def note_asked(self) -> None:
        """A question was written behind it."""
        if not self._asked:
            self._moved_at_s = self._clock()
        self._asked.append(self._written)

    def note_answered(self) -> None:
        """The oldest question was answered."""
        self.does_answer = True
        self._moved_at_s = self._clock()
        if self._asked:
            self._taken = self._asked.popleft()

    @property
    def is_waiting(self) -> bool:
        """Whether an answer is to come."""
        if self._asked and self._clock() - self._moved_at_s > _ANSWER_TIMEOUT_S:
            self.does_answer = False
            self._asked.clear()
        return self.does_answer and bool(self._asked)

    @property
    def is_long(self) -> bool:
        """Whether more is on its way than should be."""
        return self.is_waiting and self._asked[-1] - self._taken > _MOST_BYTES_AHEAD
