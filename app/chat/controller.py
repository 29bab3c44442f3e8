"""What the chat does: the rules between what the user asks, what the engine answers, and what is kept.

Owns the conversation that is shown and the reply that is being written. Knows the screen through `ChatView` only, and
is driven from the screen's thread alone: by what the user did, and by `tick`, which takes in what the threads posted.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import groupby
from typing import cast

from app.chat import events
from app.chat.active_reply import ActiveReply
from app.chat.attaching import Attaching
from app.chat.branches import places
from app.chat.commands.key_table import KeyTable
from app.chat.conversation import Conversation, Turn, TurnState
from app.chat.engine_port import EndReason, EngineLoader, ModelFacts, ReplyEnd, Role
from app.chat.engine_thread import EngineThread, ReplyRequest
from app.chat.library import Library
from app.chat.model_keeper import ModelKeeper
from app.chat.recorder import Recorder
from app.chat.refusals import Refusals
from app.chat.revisions import Revisions
from app.chat.status_keeper import StatusKeeper
from app.chat.view import ChatView, Phase
from app.chat.window_keeper import WindowKeeper

_SAVE_INTERVAL_S = 0.5
_STATUS_INTERVAL_S = 0.2
_CLOSE_TIMEOUT_S = 3.0
# A load can't always be ended at once, and leaves nothing that would have to be kept.
_CLOSE_LOADING_TIMEOUT_S = 0.3


class ChatController:
    """One chat window."""

    def __init__(
        self,
        *,
        view: ChatView,
        engine: EngineThread,
        recorder: Recorder,
        mailbox: events.Mailbox,
        keys: KeyTable,
        system: str = "",
        continues_last: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._view = view
        self._engine = engine
        self._recorder = recorder
        self._mailbox = mailbox
        self._system = system
        self._clock = clock
        self._saved_at_s = 0.0
        self._told_at_s = 0.0
        self._draft_changed = False
        self._reply: ActiveReply | None = None
        self._status = StatusKeeper(view)
        self._model = ModelKeeper(view, engine, self._status)
        self.window = WindowKeeper(self, engine, recorder, view, self._status)
        self._told_notes: set[str] = set()
        self.conversation = Conversation(system=system)
        self.refusals = Refusals(self, keys)
        self.library = Library(self, recorder, view, opening_key=keys.hint("open"), continues_last=continues_last)
        self.attaching = Attaching(self, engine, recorder, view)
        self.revisions = Revisions(self, self.library, recorder)

    @property
    def phase(self) -> Phase:
        """What is going on."""
        if self.window.is_open:
            return Phase.CHOOSING
        if self._reply is not None:
            return Phase.REPLYING
        if self._model.error:
            return Phase.FAILED
        return Phase.LOADING if self._model.is_loading else Phase.IDLE

    @property
    def fault(self) -> str:
        """Why there is no model, where it could not be loaded."""
        return self._model.error

    @property
    def facts(self) -> ModelFacts | None:
        """The model that is loaded."""
        return self._model.facts

    @property
    def active_turn_id(self) -> str | None:
        """The reply that is being written."""
        return self._reply.turn_id if self._reply is not None else None

    @property
    def conversation_now(self) -> Conversation:
        """The conversation, with the reply as far as it has come."""
        return self.conversation if self._reply is None else self.conversation.with_turn(self._reply.snapshot())

    @property
    def places(self) -> dict[str, tuple[int, int]]:
        """For each turn shown that has other versions: which it is, and of how many."""
        return places(self.conversation)

    @property
    def is_busy(self) -> bool:
        """Whether the screen should look into the mailbox often."""
        return self.phase in (Phase.LOADING, Phase.REPLYING) or self._draft_changed

    def start(self) -> None:
        """Begins to load the model and to open the conversations."""
        self._model.start()
        self._recorder.start()

    def close(self) -> None:
        """Keeps what there is, ends what runs. Waits a few seconds at most."""
        if self._reply is not None:
            self._engine.cancel(self._reply.turn_id)
            self._take_events()
        if self._reply is not None:
            state = TurnState.STOPPED if self._reply.has_begun else TurnState.PARTIAL
            self.keep_turn(self._reply.snapshot(state))
            self._reply = None
        self._save_draft()
        self._engine.close(_CLOSE_LOADING_TIMEOUT_S if self._model.is_loading else _CLOSE_TIMEOUT_S)
        self._recorder.close(_CLOSE_TIMEOUT_S)

    # What the user does.

    def submit(self, text: str) -> bool:
        """Sends a message; False (and a note that says why) where that can't be done now."""
        if not text.strip() and not self.conversation.attachments:
            return False
        if refusal := self.refusals.to_ask():
            self._view.show_note(refusal, is_warning=True)
            return False
        if not self.attaching.attach_mentioned(text):
            return False
        attachments = self.attaching.release()
        question = Turn(parent=self.conversation.leaf, role=Role.USER, text=text, attachments=attachments)
        self.revisions.remember("the message", draft=text, attachments=attachments)
        self.conversation = replace(self.conversation.with_turn(question), draft="")
        self._draft_changed = False
        self._view.add_turn(question)
        self.answer(question)
        return True

    @property
    def can_stop(self) -> bool:
        """Whether there is a question to leave, or a reply that was not told to stop yet."""
        return self.window.is_open or (self._reply is not None and not self._reply.is_stopping)

    def stop(self) -> bool:
        """Stops the reply, or leaves the window's question; False where there was nothing to stop."""
        if self.window.is_open:
            self.window.stop()
            return True
        reply = self._reply
        if reply is None:
            return False
        if self._model.is_loading:
            self._end_reply(ReplyEnd(reason=EndReason.CANCELLED))
        elif not reply.is_stopping:
            reply.is_stopping = True
            self._engine.cancel(reply.turn_id)
            self._status.tell(activity="stopping")
        return True

    def regenerate(self) -> bool:
        """Asks for another reply to the last question; the old one stays in the store as a branch."""
        if self.refusals.to_regenerate():
            return False
        self.revisions.remember("the other reply")
        self._view.remove_turn(self.conversation.turns[-1])
        self.conversation = self.conversation.without_last()
        self.answer(self.conversation.turns[-1])
        return True

    def go_on(self) -> bool:
        """Goes on with the last reply, where it did not come to its end or was edited."""
        if self.refusals.to_go_on():
            return False
        self._reply = ActiveReply(self.conversation.turns[-1])
        self._ask(self._reply)
        return True

    def load_model(self, loader: EngineLoader, name: str) -> bool:
        """Loads another model, or the same with other settings; the conversation stays. False while one replies."""
        if self.phase is Phase.REPLYING and not self._model.is_loading:
            return False
        self.window.close()
        self._model.load(loader, name)
        return True

    def set_system(self, text: str) -> None:
        """Another system prompt, for this conversation and the next ones."""
        self._system = text
        self.conversation = replace(self.conversation, system=text)
        self._recorder.save_conversation(self.conversation)

    def new_conversation(self) -> None:
        """Leaves this conversation (it is kept) and begins an empty one."""
        self.show_other(Conversation())

    # What revisions and the library need.

    def show_changed(self, conversation: Conversation) -> None:
        """The shown conversation was changed: keeps and shows it."""
        recorder, is_same = self._recorder, conversation.attachments == self.conversation.attachments
        (recorder.save_conversation if is_same else recorder.save_attachments)(conversation)
        self._show(conversation)

    def show_other(self, conversation: Conversation) -> None:
        """Another conversation has been read: leaves the one that is shown for it."""
        self._leave_conversation()
        self._show(conversation if conversation.turns else replace(conversation, system=self._system))

    def set_draft(self, text: str) -> None:
        """Takes in what stands in the input, to be kept within a second."""
        if text != self.conversation.draft:
            self.conversation = replace(self.conversation, draft=text)
            self._draft_changed = True

    def resume(self) -> None:
        """The window has room again: asks for the reply anew."""
        if self._reply is not None:
            self._ask(self._reply)

    def end_full(self) -> None:
        """The window stays full: ends the reply where it stands."""
        if self._reply is not None:
            self._end_reply(ReplyEnd(reason=EndReason.WINDOW))

    # What the threads posted.

    def tick(self) -> bool:
        """Takes in what has come, keeps what changed; False where nothing had come."""
        has_come = self._take_events()
        now_s = self._clock()
        if now_s - self._saved_at_s >= _SAVE_INTERVAL_S:
            self._saved_at_s = now_s
            if self._reply is not None and self._reply.is_changed:
                self._reply.is_changed = False
                self.keep_turn(self._reply.snapshot())
            self._save_draft()
        is_on_its_way = not self.window.is_open and not self._model.is_loading
        if self._reply is not None and is_on_its_way and now_s - self._told_at_s >= _STATUS_INTERVAL_S:
            self._told_at_s = now_s
            self._status.tell_progress(self._reply)
        return has_come

    def _take_events(self) -> bool:
        collected = self._mailbox.collect()
        for turn_id, run in groupby(collected, lambda event: isinstance(event, events.ReplyGrew) and event.turn_id):
            if not turn_id:
                for event in run:
                    self._take(event)
            elif self._reply is not None and turn_id == self._reply.turn_id:
                self._grow_reply(self._reply, cast("Iterator[events.ReplyGrew]", run))
        return bool(collected)

    def _grow_reply(self, reply: ActiveReply, run: Iterator[events.ReplyGrew]) -> None:
        """Takes in all that came since the last time at once: what the screen does a token would add up."""
        pieces = list(run)
        for piece in pieces:
            reply.grow(piece)
            self._view.follow_tokens(piece)
        text = "".join(piece.text for piece in pieces)
        thinking = "".join(piece.thinking for piece in pieces)
        self._view.grow_reply(reply.turn_id, text, thinking)

    def _take(self, event: events.Event) -> None:
        if isinstance(event, events.HistoryEvent):
            self.library.take(event)
            return
        match event:
            case events.LoadProgressed() | events.EngineReady() | events.LoadFailed():
                if self._model.take(event):
                    self._follow_load(event)
            case events.SummaryEnded():
                self.window.take(event)
            case events.DownloadEnded():
                self._view.show_note(event.sentence, is_warning=event.is_warning)
            case events.TokensCounted():
                self.attaching.take_count(event)
            case _:
                if self._reply is not None and event.turn_id == self._reply.turn_id:
                    self._take_reply_event(self._reply, event)

    def _take_reply_event(self, reply: ActiveReply, event: events.ReplyEvent) -> None:
        match event:
            case events.ReplyStarted():
                reply.begin(event.prompt_tokens)
            case events.PrefillAdvanced():
                reply.prefill = (event.done, event.total)
            case events.WindowFull():
                self.window.ask(event)
            case events.ReplyEnded():
                if event.end.reason is EndReason.WINDOW and not reply.is_stopping:
                    self._ask(reply, is_full=True)
                else:
                    self._end_reply(event.end)

    def _follow_load(self, event: events.LoadEvent) -> None:
        """What waited for the model is asked now, or fails with it."""
        if isinstance(event, events.EngineReady):
            self.conversation = replace(self.conversation, model=event.facts.name)
            if self._reply is not None:
                self._ask(self._reply)
        elif isinstance(event, events.LoadFailed) and self._reply is not None:
            self._end_reply(ReplyEnd(reason=EndReason.FAILED, error=event.sentence))

    # What follows from both.

    def answer(self, question: Turn) -> None:
        """Asks for the reply to the last turn, and keeps both."""
        facts = self.facts
        turn = Turn(
            parent=question.id,
            role=Role.ASSISTANT,
            text="",
            state=TurnState.PARTIAL,
            model=facts.name if facts else "",
            vocabulary=facts.vocabulary if facts else "",
        )
        self._reply = ActiveReply(turn)
        self.conversation = self.conversation.with_turn(turn)
        self._recorder.save_turns(self.conversation, [question, turn])
        self._view.add_turn(turn)
        self._view.mark_places(self.places)
        if facts is not None:
            self._ask(self._reply)

    def _ask(self, reply: ActiveReply, *, is_full: bool = False) -> None:
        """Asks the engine for the reply, or for more of it where some of it stands already."""
        assert self.facts is not None, "nobody asks before the model is loaded"
        shown = replace(self.conversation, turns=self.conversation.turns[:-1])
        self._engine.ask(
            ReplyRequest(
                turn_id=reply.turn_id,
                conversation=shown,
                begun=reply.ids_for(self.facts.vocabulary),
                begun_text=reply.text,
                is_full=is_full,
            )
        )
        reply.answered_by(self.facts)
        self._status.tell(activity="reading", tokens_per_s=None, ttft_s=None, reused_tokens=None)

    def _end_reply(self, end: ReplyEnd) -> None:
        reply = self._reply
        assert reply is not None, "only a reply that is being written can end"
        self._reply = None
        turn = reply.ended(end)
        self.keep_turn(turn)
        self._view.end_reply(turn, end.error)
        for note in end.notes:
            if note not in self._told_notes:
                self._told_notes.add(note)
                self._view.show_note(note)
        if end.figures.prompt_tokens:
            self._status.tell_end(end.figures)
        else:
            self._status.tell(activity=self._model.activity)

    def _leave_conversation(self) -> None:
        self.window.leave()
        if self._reply is not None:
            self._engine.cancel(self._reply.turn_id)
            self.keep_turn(self._reply.snapshot(TurnState.STOPPED))
            self._reply = None
        self._save_draft()

    def _show(self, conversation: Conversation) -> None:
        self.conversation = conversation
        self._view.show_conversation(conversation)
        self._view.set_draft(conversation.draft)
        self.attaching.show()
        last = conversation.turns[-1].figures if conversation.turns else None
        used_tokens = last.prompt_tokens + last.reply_tokens if last else None
        self._status.tell(
            activity=self._model.activity, tokens_per_s=None, ttft_s=None, used_tokens=used_tokens, reused_tokens=None
        )

    def keep_turn(self, turn: Turn) -> None:
        """Keeps a turn of the shown conversation, new or changed."""
        self.conversation = self.conversation.with_turn(turn)
        self._recorder.save_turns(self.conversation, [turn])

    def _save_draft(self) -> None:
        if self._draft_changed:
            self._draft_changed = False
            self._recorder.save_conversation(self.conversation)
