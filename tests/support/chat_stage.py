"""A chat with an engine that says what a test tells it to, and what stands on its screen.

Owns the fake engine (words are tokens) and the reading of the screen. Knows nothing of real models.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from fake_shelf import desk_for
from textual import events
from textual.keys import _character_to_key
from textual.pilot import Pilot

from app.chat.app import ChatApp, ChatSetting
from app.chat.engine_port import (
    ChatEngine,
    EndReason,
    LeaveSignal,
    LoadProgress,
    LoadStep,
    ModelFacts,
    PrefillProgress,
    PromptTurn,
    ReplyEnd,
    ReplyFigures,
    ReplyPiece,
)
from app.chat.model_desk import ModelDesk
from app.chat.widgets.prompt import Prompt
from app.preferences import Preferences

DEADLINE_S = 60.0


@dataclass(frozen=True, kw_only=True)
class Script:
    """How one reply goes. With `gate`, the pieces behind the first `num_before_gate` wait until it is set."""

    pieces: tuple[ReplyPiece, ...] = ()
    end: EndReason = EndReason.STOP
    error: Exception | None = None
    gate: threading.Event | None = None
    num_before_gate: int = 0
    prefill_gate: threading.Event | None = None


def says(text: str, **how: object) -> Script:
    """A reply of this text, word by word."""
    words = text.split(" ")
    pieces = [word + (" " if place < len(words) - 1 else "") for place, word in enumerate(words)]
    return Script(
        pieces=tuple(ReplyPiece(text=piece, token_ids=(100 + place,)) for place, piece in enumerate(pieces)),
        **how,  # type: ignore[arg-type]
    )


class FakeStream:
    """A reply that follows its script until it is cancelled."""

    def __init__(self, script: Script, prompt_tokens: int, on_prefill: PrefillProgress | None) -> None:
        self._script = script
        self._prompt_tokens = prompt_tokens
        self._on_prefill = on_prefill
        self._cancelled = threading.Event()
        self._num_tokens = 0
        self._reason = EndReason.STOP

    def __iter__(self) -> Iterator[ReplyPiece]:
        script = self._script
        if self._on_prefill is not None:
            self._on_prefill(self._prompt_tokens // 2, self._prompt_tokens)
        if script.prefill_gate is not None and not self._waits_for(script.prefill_gate):
            return
        for place, piece in enumerate(script.pieces):
            if place == script.num_before_gate and script.gate is not None and not self._waits_for(script.gate):
                return
            if self._cancelled.is_set():
                self._reason = EndReason.CANCELLED
                return
            self._num_tokens += len(piece.token_ids)
            yield piece
            if script.gate is not None:
                time.sleep(0.002)  # so that there is a speed, and one of few digits
        if script.error is not None:
            raise script.error
        self._reason = script.end

    def _waits_for(self, gate: threading.Event) -> bool:
        while not gate.wait(0.005):
            if self._cancelled.is_set():
                self._reason = EndReason.CANCELLED
                return False
        return True

    def cancel(self) -> None:
        self._cancelled.set()

    @property
    def end(self) -> ReplyEnd:
        figures = ReplyFigures(
            prompt_tokens=self._prompt_tokens,
            reused_tokens=self._prompt_tokens // 2,
            reply_tokens=self._num_tokens,
            ttft_s=0.25,
            tokens_per_s=40.0,
        )
        return ReplyEnd(reason=self._reason, figures=figures)


@dataclass(kw_only=True)
class FakeEngine:
    """Follows one script after the other and remembers what it was asked."""

    scripts: list[Script] = field(default_factory=list)
    facts: ModelFacts = field(
        default_factory=lambda: ModelFacts(
            name="tiny-1m", description="llama · 1M · Q8_0 · window 4,096", context_size=4096, vocabulary="words"
        )
    )
    asked: list[tuple[PromptTurn, ...]] = field(default_factory=list)
    begun: list[tuple[int, ...]] = field(default_factory=list)
    begun_texts: list[str] = field(default_factory=list)
    is_closed: bool = False
    load_steps: tuple[LoadStep, ...] = ()
    load_gate: threading.Event | None = None
    load_error: Exception | None = None

    def load(self, progress: LoadProgress, leaving: LeaveSignal) -> ChatEngine:
        """The loader that the chat is given."""
        for step in self.load_steps:
            progress(step)
        while self.load_gate is not None and not self.load_gate.wait(0.005):
            progress(LoadStep(title="Packing weights", done=1, total=2))
        if self.load_error is not None:
            raise self.load_error
        return self

    def prompt_size(self, turns: Sequence[PromptTurn]) -> int:
        return sum(len(turn.text.split()) + 1 for turn in turns)

    def count_tokens(self, text: str) -> int:
        return len(text.split())

    def reply(
        self,
        turns: Sequence[PromptTurn],
        *,
        begun: Sequence[int] = (),
        begun_text: str = "",
        on_prefill: PrefillProgress | None = None,
    ) -> FakeStream:
        self.begun_texts.append(begun_text)
        self.asked.append(tuple(turns))
        self.begun.append(tuple(begun))
        script = self.scripts.pop(0) if self.scripts else says("Fine.")
        return FakeStream(script, self.prompt_size(turns) + len(begun), on_prefill)

    def close(self) -> None:
        self.is_closed = True


class Stage:
    """A chat under test."""

    def __init__(self, app: ChatApp, pilot: Pilot[None]) -> None:
        self.app = app
        self.pilot = pilot

    def lines(self) -> list[str]:
        """What stands on the screen, line by line."""
        strips = self.app.screen._compositor.render_strips()
        return ["".join(segment.text for segment in strip).rstrip() for strip in strips]

    def text(self) -> str:
        """What stands on the screen."""
        return "\n".join(self.lines())

    async def until(self, holds: Callable[[], object], what: str = "") -> None:
        """Lets the chat go on until something holds; fails when that takes unreasonably long."""
        deadline_s = time.monotonic() + DEADLINE_S
        while not holds():
            if time.monotonic() > deadline_s:
                raise AssertionError(f"never came: {what}\n{self.text()}")
            await self.pilot.pause(0.005)

    async def until_shown(self, *texts: str) -> None:
        """Waits until all of these texts stand on the screen."""
        await self.until(lambda: all(text in self.text() for text in texts), f"{texts} on the screen")

    async def until_idle(self) -> None:
        """Waits until the model is loaded and nothing is being written."""
        await self.until(lambda: self.app.controller.phase == "idle", "an idle chat")
        await self.app.workers.wait_for_complete()
        await self.pilot.pause(0)

    async def press(self, *keys: str) -> None:
        """Types the keys: characters in one go, and a moment before and behind every other key."""
        for key in keys:
            if len(key) == 1:
                self.app.post_message(events.Key(_character_to_key(key), key))
            else:
                await self.pilot.pause()
                self.app.post_message(events.Key(key, " " if key == "space" else None))
                await self.pilot.pause()
        await self.pilot.pause()

    async def send(self, text: str) -> None:
        """Puts text into the input and sends it."""
        self.app.screen.query_one(Prompt).insert_text(text)
        await self.press("enter")

    async def ask(self, text: str) -> None:
        """Sends and waits for the whole reply."""
        await self.send(text)
        await self.until(lambda: self.app.controller.phase != "idle" or self.app.controller.conversation.turns)
        await self.until_idle()


@asynccontextmanager
async def chat(
    engine: FakeEngine,
    history_path: Path,
    *,
    size: tuple[int, int] = (80, 24),
    system: str = "",
    continues_last: bool = False,
    first_message: str = "",
    keys: Mapping[str, tuple[str, ...]] | None = None,
    preferences: Preferences | None = None,
    models: ModelDesk | None = None,
) -> AsyncIterator[Stage]:
    """A chat window with this engine, left in the end as a user leaves it."""
    app = ChatApp(
        ChatSetting(
            models=models or desk_for(engine, preferences or Preferences(model="tiny-1m", system=system or None)),
            history_path=history_path,
            continues_last=continues_last,
            first_message=first_message,
            keys=keys or {},
        )
    )
    try:
        async with app.run_test(size=size) as pilot:
            yield Stage(app, pilot)
    finally:
        await asyncio.to_thread(app.controller.close)
