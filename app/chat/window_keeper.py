"""A window that is full: what was asked about it, and what follows from the answer.

Owns that state. Knows the conversation and the reply through the controller, and nothing of engines: enlarging a window
is a load, which closes the question by itself.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Protocol

from app.chat.conversation import Conversation
from app.chat.events import WindowFull
from app.chat.recorder import Recorder
from app.chat.status_keeper import StatusKeeper
from app.chat.view import ChatView


class Desk(Protocol):
    """What is shown and written, as the answers change it."""

    conversation: Conversation

    def resume(self) -> None:
        """Asks for the reply again."""
        ...

    def end_full(self) -> None:
        """Ends the reply where it stands."""
        ...


class WindowKeeper:
    """Driven from the screen's thread."""

    def __init__(self, desk: Desk, recorder: Recorder, view: ChatView, status: StatusKeeper) -> None:
        self._desk = desk
        self._recorder = recorder
        self._view = view
        self._status = status
        self._full: WindowFull | None = None

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
        self.close()
        self._desk.conversation = replace(self._desk.conversation, window_start=smaller.start_turn_id)
        self._recorder.save_conversation(self._desk.conversation)
        self._view.mark_window_start(smaller.start_turn_id)
        self._desk.resume()

    def leave(self) -> None:
        """Leaves it at that."""
        if self._full is not None:
            self.close()
            self._desk.end_full()

    def close(self) -> None:
        """There is nothing to ask any more."""
        if self._full is not None:
            self._full = None
            self._view.close_window_question()
