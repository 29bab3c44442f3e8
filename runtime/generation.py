"""An answer in the making, as its caller sees it.

Owns the hand-over from the engine's thread to the caller's.  Does not know how tokens come about.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Literal

from runtime.speculation.options import SpeculationReport
from runtime.timings import Timings

FinishReason = Literal["stop", "length", "cancelled", "context"]
Logprobs = tuple[tuple[int, float], ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Chunk:
    """What came with a token.  text may be empty: half a character, or what could become a stop text, is held back.

    logprobs: one entry a token, the best (id, natural logarithm of its probability), if asked for.
    is_guessed: the token had been guessed ahead.  num_drafted: how many were guessed for the pass that begins here.
    """

    text: str
    token_ids: tuple[int, ...]
    logprobs: tuple[Logprobs, ...] = ()
    is_guessed: bool = False
    num_drafted: int = 0


@dataclass(frozen=True, kw_only=True)
class Completion:
    """A finished answer.

    text ends before a stop text.  ids: every token chosen, the end token and those of a stop text included.
    finish_reason: "stop" (end token or stop text), "length" (max_tokens), "context" (window full), "cancelled".
    prompt_logprobs: row i is the distribution of the token after prompt token i.  seed: what the draws depended on.
    speculation: what guessing ahead did, if the engine does.
    """

    text: str
    ids: tuple[int, ...]
    prompt_ids: tuple[int, ...]
    finish_reason: FinishReason
    stop_text: str | None
    timings: Timings
    logprobs: tuple[Logprobs, ...]
    prompt_logprobs: tuple[Logprobs, ...]
    notes: tuple[str, ...]
    seed: int
    speculation: SpeculationReport | None = None


class Generation:
    """Iterate it for chunks as they come, from one thread; `result` waits for the end.

    If the engine failed, both raise what it failed with.  keep_alive: what must live as long as this does.
    """

    def __init__(
        self,
        *,
        prompt_ids: tuple[int, ...],
        notes: tuple[str, ...],
        seed: int,
        starts_in_thinking: bool,
        cancel: Callable[[], None],
        keep_alive: object = None,
    ) -> None:
        self.prompt_ids = prompt_ids
        self.notes = notes
        self.seed = seed
        self.starts_in_thinking = starts_in_thinking
        self._cancel: Callable[[], None] | None = cancel
        self._keep_alive = keep_alive
        self._chunks: SimpleQueue[Chunk | None] = SimpleQueue()
        self._is_done = threading.Event()
        self._outcome: Completion | BaseException | None = None
        self._listeners: list[Callable[[], None]] = []
        self._lock = threading.Lock()
        self.num_tokens = 0  # answered so far

    def __iter__(self) -> Iterator[Chunk]:
        while (chunk := self._chunks.get()) is not None:
            yield chunk
        self._chunks.put(None)  # so that iterating again ends at once
        if isinstance(self._outcome, BaseException):
            raise self._outcome

    def cancel(self) -> None:
        """From any thread: ends the answer soon, with what there is.  Does nothing when it has ended."""
        cancel = self._cancel
        if cancel is not None:
            cancel()

    @property
    def is_done(self) -> bool:
        """Whether the answer has ended; chunks may still wait to be taken."""
        return self._is_done.is_set()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Waits for the end; False if it did not come in time."""
        return self._is_done.wait(timeout_s)

    @property
    def result(self) -> Completion:
        """The whole answer; waits for the end.  Chunks need not be taken."""
        self._is_done.wait()
        if isinstance(self._outcome, BaseException):
            raise self._outcome
        assert self._outcome is not None
        return self._outcome

    def when_done(self, listener: Callable[[], None]) -> None:
        """Calls it once, when the answer has ended: from the engine's thread, or at once.  It must return soon."""
        with self._lock:
            if not self.is_done:
                self._listeners.append(listener)
                return
        listener()

    def publish(self, chunk: Chunk) -> None:
        """For the engine: hands a chunk over."""
        self.num_tokens += len(chunk.token_ids)
        self._chunks.put(chunk)

    def finish(self, outcome: Completion | BaseException) -> None:
        """For the engine: ends the answer, once."""
        if self.is_done:
            return
        self._outcome = outcome
        self._cancel = None  # it leads back here: without it, what is no longer used goes at once
        with self._lock:
            self._is_done.set()
            listeners, self._listeners = self._listeners, []
        self._chunks.put(None)
        for listener in listeners:
            listener()
