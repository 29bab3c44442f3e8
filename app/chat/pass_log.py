"""The passes of a reply as they come: how long each took, how many tokens it brought, which of them had been guessed.

Owns the log of the last ones. Knows nothing of the screen. A pass ends with the model's own token; those before it in
the same pass had been guessed.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from statistics import median

from app.chat.engine_port import Spent

_KEPT_PASSES = 200
_KEPT_PIECES = 120
_RECENT_PASSES = 30


@dataclass(frozen=True, kw_only=True)
class PassFigures:
    """What the latest passes took. None: nothing was measured (yet).

    `spent_a_token`: of these, on each device, where there are several.
    """

    ms_a_token: float | None = None
    ms_a_pass: float | None = None
    tokens_a_pass: float | None = None
    acceptance: float | None = None
    num_drafted: int = 0
    token_times_ms: tuple[float, ...] = ()
    spent_a_token: Spent | None = None


@dataclass(frozen=True, kw_only=True)
class LoggedPiece:
    """A bit of the reply's text, and whether it had been guessed."""

    text: str
    is_guessed: bool


class PassLog:
    """Takes tokens one by one; times are seconds of a steady clock."""

    def __init__(self) -> None:
        self._passes: deque[tuple[float, int]] = deque(maxlen=_KEPT_PASSES)  # (seconds it took, tokens it brought)
        self._spent: deque[tuple[Spent, int]] = deque(maxlen=_RECENT_PASSES)  # (up to its end, tokens up to then)
        self.pieces: deque[LoggedPiece] = deque(maxlen=_KEPT_PIECES)
        self._ended_at_s: float | None = None
        self._num_in_pass = 0
        self._num_guessed = 0
        self._num_drafted = 0
        self._num_tokens = 0
        self._num_passes = 0

    def clear(self) -> None:
        """Another model, or other devices, from here on."""
        self.__init__()

    def begin(self) -> None:
        """A reply begins."""
        self.pause()
        self.pieces.clear()
        self._spent.clear()  # what reading the prompt takes is no token's

    def pause(self) -> None:
        """A reply has ended, for now: the time until its next token is no pass."""
        self._ended_at_s = None
        self._num_in_pass = 0

    def add(
        self,
        text: str,
        *,
        num_tokens: int,
        is_guessed: bool,
        num_drafted: int,
        at_s: float,
        spent: Spent | None = None,
    ) -> None:
        """A token came (or a piece of text without one). `spent`: on each device, up to now."""
        if text:
            self.pieces.append(LoggedPiece(text=text, is_guessed=is_guessed))
        self._num_drafted += num_drafted
        if not num_tokens:
            return
        self._num_tokens += num_tokens
        self._num_in_pass += num_tokens
        if is_guessed:
            self._num_guessed += num_tokens
            return
        if self._ended_at_s is not None:
            self._passes.append((at_s - self._ended_at_s, self._num_in_pass))
        self._ended_at_s = at_s
        if spent is not None:
            self._spent.append((spent, self._num_tokens))
        self._num_in_pass = 0
        self._num_passes += 1

    @property
    def figures(self) -> PassFigures:
        """Medians of the latest passes, and the shares of all."""
        recent = list(self._passes)[-_RECENT_PASSES:]
        if not recent:
            return PassFigures(num_drafted=self._num_drafted)
        return PassFigures(
            ms_a_token=1e3 * sum(took_s for took_s, _ in recent) / sum(count for _, count in recent),
            ms_a_pass=1e3 * median(took_s for took_s, _ in recent),
            tokens_a_pass=self._num_tokens / self._num_passes,
            acceptance=self._num_guessed / self._num_drafted if self._num_drafted else None,
            num_drafted=self._num_drafted,
            token_times_ms=tuple(1e3 * took_s / count for took_s, count in self._passes),
            spent_a_token=self._spent_a_token(),
        )

    def _spent_a_token(self) -> Spent | None:
        if len(self._spent) < 2:
            return None
        (before, first), (after, last) = self._spent[0], self._spent[-1]
        count = last - first
        return Spent(
            cpu_ms=(after.cpu_ms - before.cpu_ms) / count,
            gpu_ms=(after.gpu_ms - before.gpu_ms) / count,
            transfer_ms=(after.transfer_ms - before.transfer_ms) / count,
        )
