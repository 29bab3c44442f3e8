"""A window that is full: what was asked about it, and what follows from the answer.

Owns that state. Knows the conversation through its desk, and nothing of engines: enlarging a window is a load, which
closes the question by itself.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Protocol

from app.chat.conversation import Conversation
from app.chat.engine_port import EndReason, ReplyEnd
from app.chat.engine_requests import SummaryRequest
from app.chat.engine_thread import EngineThread
from app.chat.events import SummaryEnded, WindowFull
from app.chat.recorder import Recorder
from app.chat.reply_keeper import ReplyKeeper
from app.chat.status_keeper import StatusKeeper
from app.chat.view import ChatView


class Desk(Protocol):
    """Where the conversation lies."""

    conversation: Conversation


class WindowKeeper:
    """Driven from the screen's thread."""

    def __init__(
        self,
        desk: Desk,
        replies: ReplyKeeper,
        engine: EngineThread,
        recorder: Recorder,
        view: ChatView,
        status: StatusKeeper,
    ) -> None:
        self._desk = desk
        self._replies = replies
        self._engine = engine
        self._recorder = recorder
        self._view = view
        self._status = status
        self._full: WindowFull | None = None
        self._is_summarising = False

    @property
    def is_open(self) -> bool:
        """Whether the user is being asked."""
        return self._full is not None

    def ask(self, full: WindowFull) -> None:
        """Asks the user how to go on."""
        self._full = full
        self._view.ask_about_window(full)
        self._status.tell(activity="window full", used_tokens=full.used_tokens)

    def drop_oldest(self) -> None:
        """Goes on without the oldest turns."""
        smaller = self._full.smaller if self._full is not None else None
        if smaller is None:
            return
        self._begin_at(smaller.start_turn_id, self._desk.conversation.summary)

    def summarise(self) -> None:
        """Has the model put into few words what would be left out, then goes on with that."""
        full = self._full
        if full is None or full.smaller is None:
            return
        self._is_summarising = True
        self._view.close_window_question()
        self._status.tell(activity="summarising")
        conversation = self._desk.conversation
        self._engine.ask(
            SummaryRequest(turn_id=full.turn_id, conversation=conversation, start_turn_id=full.smaller.start_turn_id)
        )

    def take(self, summary: SummaryEnded) -> None:
        """The summary is there, or can't be had: then the user is asked again."""
        full = self._full
        if full is None or full.smaller is None or summary.turn_id != full.turn_id or not self._is_summarising:
            return
        self._is_summarising = False
        if summary.fault:
            self._view.show_note(summary.fault, is_warning=True)
            self.ask(full)
            return
        self._view.show_note(
            f"{full.smaller.num_dropped} turns ({full.smaller.freed_tokens:,} tokens) are now a summary of "
            f"{summary.num_tokens:,} tokens: {summary.text}"
        )
        self._begin_at(full.smaller.start_turn_id, summary.text)

    def stop(self) -> None:
        """Stops a summary, and asks again; where none is written, leaves it at that."""
        if self._full is not None and self._is_summarising:
            self._engine.cancel(self._full.turn_id)
        else:
            self.leave()

    def _begin_at(self, turn_id: str, summary: str) -> None:
        self.close()
        self._desk.conversation = replace(self._desk.conversation, window_start=turn_id, summary=summary)
        self._recorder.save_conversation(self._desk.conversation)
        self._view.mark_window_start(turn_id)
        self._replies.ask()

    def leave(self) -> None:
        """Leaves it at that."""
        if self._full is not None:
            if self._is_summarising:
                self._engine.cancel(self._full.turn_id)
            self.close()
            self._replies.end(ReplyEnd(reason=EndReason.WINDOW))

    def close(self) -> None:
        """There is nothing to ask any more."""
        if self._full is not None:
            self._full, self._is_summarising = None, False
            self._view.close_window_question()
