"""How far a batch has come: rows, tokens a second, time left; on stderr.

Owns the figures and their wording.  Does not know rows or engines.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable

from app.output import Console

_REDRAW_S = 0.2
_LINE_EVERY_S = 15.0
_WINDOW_S = 20.0
_BAR_WIDTH = 24


class BatchProgress:
    """Call update() often; it draws now and then: a line in place on a terminal, elsewhere a line every 15 seconds."""

    def __init__(self, console: Console, num_rows: int, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._console = console
        self._num_rows = num_rows
        self._clock = clock
        self._began_s = clock()
        self._drawn_s = self._began_s
        self._samples: deque[tuple[float, int]] = deque([(self._began_s, 0)])

    @property
    def elapsed_s(self) -> float:
        """Since the beginning."""
        return self._clock() - self._began_s

    def update(self, num_done: int, num_tokens: int) -> None:
        """num_done: rows that need no more work; num_tokens: answered so far, those of unfinished rows too."""
        now_s = self._clock()
        every_s = _REDRAW_S if self._console.is_stderr_terminal else _LINE_EVERY_S
        if now_s - self._drawn_s < every_s:
            return
        self._drawn_s = now_s
        self._samples.append((now_s, num_tokens))
        while now_s - self._samples[0][0] > _WINDOW_S and len(self._samples) > 2:
            self._samples.popleft()
        text = self.line(num_done, num_tokens)
        if self._console.is_stderr_terminal:
            self._console.progress_line(text)
        else:
            self._console.note(text)

    def line(self, num_done: int, num_tokens: int) -> str:
        """The figures as text."""
        first_s, first_tokens = self._samples[0]
        now_s = self._clock()
        parts = [f"{num_done} of {self._num_rows} rows"]
        if now_s > first_s and num_tokens > first_tokens:
            parts.append(f"{(num_tokens - first_tokens) / (now_s - first_s):.1f} tokens/s")
        if 0 < num_done < self._num_rows:
            parts.append(f"{duration_text(self.elapsed_s / num_done * (self._num_rows - num_done))} left")
        filled = _BAR_WIDTH * num_done // max(self._num_rows, 1)
        bar = f"[{'#' * filled}{'.' * (_BAR_WIDTH - filled)}]  " if self._console.is_stderr_terminal else ""
        return f"{bar}{', '.join(parts)}"

    def close(self) -> None:
        """Takes the line away."""
        self._console.clear_progress_line()


def duration_text(duration_s: float) -> str:
    """Seconds as people read them: `8 s`, `3:05 min`, `1:02:09 h`."""
    seconds = max(0, round(duration_s))
    if seconds < 60:
        return f"{seconds} s"
    minutes, seconds = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02} h" if hours else f"{minutes}:{seconds:02} min"
