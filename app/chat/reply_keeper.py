"""The reply that is being written: asked for, grown, stopped, ended, and kept as it goes.

Owns that reply. Knows the conversation through its desk, the screen through `ChatView`, and nothing of what the user
does: it is told to begin, to go on and to stop.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Protocol

from app.chat import events
from app.chat.active_reply import ActiveReply
from app.chat.conversation import Conversation, Turn, TurnState
from app.chat.engine_port import EndReason, ReplyEnd, Role
from app.chat.engine_requests import ReplyRequest
from app.chat.engine_thread import EngineThread
from app.chat.model_keeper import ModelKeeper
from app.chat.recorder import Recorder
from app.chat.status_keeper import StatusKeeper
from app.chat.view import ChatView


class Desk(Protocol):
    """What is shown, as a reply changes it."""

    conversation: Conversation

    @property
    def places(self) -> Mapping[str, tuple[int, int]]: ...
    def keep_turn(self, turn: Turn) -> None: ...


class ReplyKeeper:
    """Driven from the screen's thread. At most one reply is written at a time."""

    def __init__(
        self,
        desk: Desk,
        model: ModelKeeper,
        engine: EngineThread,
        recorder: Recorder,
        view: ChatView,
        status: StatusKeeper,
    ) -> None:
        self._desk = desk
        self._model = model
        self._engine = engine
        self._recorder = recorder
        self._view = view
        self._status = status
        self._reply: ActiveReply | None = None
        self._told_notes: set[str] = set()

    @property
    def turn_id(self) -> str | None:
        """The turn that is being written."""
        return self._reply.turn_id if self._reply is not None else None

    @property
    def is_stopping(self) -> bool:
        """Whether it was told to stop, and has not ended yet."""
        return self._reply is not None and self._reply.is_stopping

    def shown_in(self, conversation: Conversation) -> Conversation:
        """The conversation with the reply as far as it has come."""
        return conversation if self._reply is None else conversation.with_turn(self._reply.snapshot())

    # Beginning and ending.

    def begin(self, question: Turn) -> None:
        """Asks for the reply to the last turn, and keeps both."""
        facts = self._model.facts
        turn = Turn(
            parent=question.id,
            role=Role.ASSISTANT,
            text="",
            state=TurnState.PARTIAL,
            model=facts.name if facts else "",
            vocabulary=facts.vocabulary if facts else "",
        )
        self._reply = ActiveReply(turn)
        self._desk.conversation = self._desk.conversation.with_turn(turn)
        self._recorder.save_turns(self._desk.conversation, [question, turn])
        self._view.add_turn(turn)
        self._view.mark_places(self._desk.places)
        if facts is not None:
            self.ask()

    def go_on(self, turn: Turn) -> None:
        """Asks for more of a reply that stands already."""
        self._reply = ActiveReply(turn)
        self.ask()

    def ask(self, *, is_full: bool = False) -> None:
        """Asks the engine for the reply, or for more of it where some of it stands already."""
        reply, facts = self._reply, self._model.facts
        if reply is None:
            return
        assert facts is not None, "nobody asks before the model is loaded"
        conversation = self._desk.conversation
        self._engine.ask(
            ReplyRequest(
                turn_id=reply.turn_id,
                conversation=replace(conversation, turns=conversation.turns[:-1]),
                begun=reply.ids_for(facts.vocabulary),
                begun_text=reply.text,
                is_full=is_full,
            )
        )
        reply.answered_by(facts)
        self._status.tell(activity="reading", tokens_per_s=None, ttft_s=None, reused_tokens=None)

    def stop(self) -> bool:
        """Stops it; False where nothing is being written."""
        reply = self._reply
        if reply is None:
            return False
        if self._model.is_loading:
            self.end(ReplyEnd(reason=EndReason.CANCELLED))
        elif not reply.is_stopping:
            reply.is_stopping = True
            self._engine.cancel(reply.turn_id)
            self._status.tell(activity="stopping")
        return True

    def end(self, end: ReplyEnd) -> None:
        """Ends it where it stands, if one is being written."""
        reply, self._reply = self._reply, None
        if reply is None:
            return
        turn = reply.ended(end)
        self._desk.keep_turn(turn)
        self._view.end_reply(turn, end.error)
        for note in end.notes:
            if note not in self._told_notes:
                self._told_notes.add(note)
                self._view.show_note(note)
        if end.figures.prompt_tokens:
            self._status.tell_end(end.figures)
        else:
            self._status.tell(activity=self._model.activity)

    def cancel(self) -> None:
        """Tells the engine that nobody waits for it any more."""
        if self._reply is not None:
            self._engine.cancel(self._reply.turn_id)

    def leave(self, *, unbegun: TurnState = TurnState.STOPPED) -> None:
        """Leaves it as stopped where it stands, without waiting. `unbegun`: its state where nothing has come yet."""
        reply, self._reply = self._reply, None
        if reply is not None:
            self._desk.keep_turn(reply.snapshot(TurnState.STOPPED if reply.has_begun else unbegun))

    # While it grows.

    def save(self) -> None:
        """Keeps what has come since the last time."""
        if self._reply is not None and self._reply.is_changed:
            self._reply.is_changed = False
            self._desk.keep_turn(self._reply.snapshot())

    def tell_progress(self) -> None:
        """Tells the status line how far it has come."""
        if self._reply is not None:
            self._status.tell_progress(self._reply)

    def grow(self, turn_id: str, pieces: Sequence[events.ReplyGrew]) -> None:
        """Takes in all that came since the last time at once: what the screen does a token would add up."""
        reply = self._reply
        if reply is None or turn_id != reply.turn_id:
            return
        for piece in pieces:
            reply.grow(piece)
            self._view.follow_tokens(piece)
        text = "".join(piece.text for piece in pieces)
        thinking = "".join(piece.thinking for piece in pieces)
        self._view.grow_reply(turn_id, text, thinking)

    def take(self, event: events.ReplyStarted | events.PrefillAdvanced | events.ReplyEnded) -> None:
        """Takes in how it began, how much of the prompt was read, how it ended."""
        reply = self._reply
        if reply is None or event.turn_id != reply.turn_id:
            return
        match event:
            case events.ReplyStarted():
                reply.begin(event.prompt_tokens)
            case events.PrefillAdvanced():
                reply.prefill = (event.done, event.total)
            case events.ReplyEnded():
                if event.end.reason is EndReason.WINDOW and not reply.is_stopping:
                    self.ask(is_full=True)
                else:
                    self.end(event.end)

    def follow_load(self, event: events.LoadEvent) -> None:
        """What waited for the model is asked now, or fails with it."""
        if isinstance(event, events.EngineReady):
            self._desk.conversation = replace(self._desk.conversation, model=event.facts.name)
            self.ask()
        elif isinstance(event, events.LoadFailed):
            self.end(ReplyEnd(reason=EndReason.FAILED, error=event.sentence))
