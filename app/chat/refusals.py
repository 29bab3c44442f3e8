"""Why something can't be done just now, as one sentence with what to do about it; nothing where it can.

Owns the sentences. Knows what goes on through its desk, and changes nothing.
"""

from __future__ import annotations

from typing import Protocol

from app.chat.commands.key_table import KeyTable
from app.chat.conversation import Conversation, TurnState
from app.chat.engine_port import Role
from app.chat.view import Phase


class Desk(Protocol):
    """What is going on. `fault`: why there is no model."""

    @property
    def phase(self) -> Phase: ...
    @property
    def conversation(self) -> Conversation: ...
    @property
    def fault(self) -> str: ...


class Refusals:
    """Asked before something is done."""

    def __init__(self, desk: Desk, keys: KeyTable) -> None:
        self._desk = desk
        self._keys = keys

    def to_ask(self) -> str:
        """Of the model; while it is being loaded, a message waits."""
        return {
            Phase.REPLYING: f"The reply is still being written: {self._keys.hint('stop')} stops it.",
            Phase.CHOOSING: "The window is full: choose first how to go on.",
            Phase.FAILED: f"There is no model to answer: {self._desk.fault}",
        }.get(self._desk.phase, "")

    def to_regenerate(self) -> str:
        """For another reply to the last question."""
        turns = self._desk.conversation.turns
        if self._desk.phase is not Phase.IDLE:
            return self.to_ask() or "The model is still being loaded."
        if not turns or turns[-1].role is not Role.ASSISTANT:
            return "There is no reply yet."
        has_question = len(turns) > 1 and turns[-2].role is Role.USER
        return "" if has_question else "The question to this reply was removed."

    def to_go_on(self) -> str:
        """With the last reply."""
        turns = self._desk.conversation.turns
        if self._desk.phase is not Phase.IDLE or not turns or turns[-1].role is not Role.ASSISTANT:
            return self.to_regenerate()
        last = turns[-1]
        if last.can_go_on:
            return ""
        if last.state is TurnState.ELSEWHERE:
            return "Another window writes this reply just now."
        is_finished = last.state is TurnState.FINISHED
        return "The reply came to its end." if is_finished else "There is nothing of the reply to go on from."

    def to_change(self) -> str:
        """For changing turns."""
        return self.to_ask() if self._desk.phase in (Phase.REPLYING, Phase.CHOOSING) else ""
