"""What the chat does: the rules between what the user asks, what the engine answers, and what is kept.

Owns the conversation that is shown, and what the user may do to it when. Knows the screen through `ChatView` only, and
is driven from the screen's thread alone: by what the user did, and by `tick`. The reply that is being written, the
model and a full window have a keeper each.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

from app.chat.attaching import Attaching
from app.chat.branches import places, with_turns_of
from app.chat.commands.key_table import KeyTable
from app.chat.conversation import Conversation, Turn, TurnState
from app.chat.engine_port import EngineLoader, ModelFacts, Role
from app.chat.engine_thread import EngineThread
from app.chat.events import Mailbox
from app.chat.intake import Intake
from app.chat.library import Library
from app.chat.model_keeper import ModelKeeper
from app.chat.recorder import Recorder, Unkept
from app.chat.refusals import Refusals
from app.chat.reply_keeper import ReplyKeeper
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
        mailbox: Mailbox,
        keys: KeyTable,
        system: str = "",
        continues_last: bool = False,
        first_message: str = "",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._view = view
        self._engine = engine
        self._recorder = recorder
        self._system = system
        self._clock = clock
        self._saved_at_s = 0.0
        self._told_at_s = 0.0
        self._told_title = ""
        self._draft_changed = False
        self._status = StatusKeeper(view)
        self._model = ModelKeeper(view, engine, self._status)
        self._replies = ReplyKeeper(self, self._model, engine, recorder, view, self._status)
        self.window = WindowKeeper(self, self._replies, engine, recorder, view, self._status)
        self.conversation = Conversation(system=system)
        self.refusals = Refusals(self, keys)
        self.library = Library(
            self,
            recorder,
            view,
            opening_key=keys.hint("open"),
            continues_last=continues_last,
            first_message=first_message,
        )
        self.attaching = Attaching(self, engine, recorder, view)
        self.revisions = Revisions(self, self.library, recorder)
        self._intake = Intake(
            mailbox,
            view=view,
            model=self._model,
            replies=self._replies,
            window=self.window,
            library=self.library,
            attaching=self.attaching,
        )

    @property
    def phase(self) -> Phase:
        """What is going on."""
        if self.window.is_open:
            return Phase.CHOOSING
        if self.active_turn_id is not None:
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
        return self._replies.turn_id

    @property
    def conversation_now(self) -> Conversation:
        """The conversation, with the reply as far as it has come."""
        return self._replies.shown_in(self.conversation)

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
        self._recorder.show(self.conversation)
        self._recorder.start()

    def close(self) -> Unkept | None:
        """Keeps what there is, ends what runs; what can't be kept is handed back. Waits a few seconds at most."""
        if self.active_turn_id is not None:
            self._replies.cancel()
            self._intake.take_all()
        self._replies.leave(unbegun=TurnState.PARTIAL)
        self.save_draft()
        self._engine.close(_CLOSE_LOADING_TIMEOUT_S if self._model.is_loading else _CLOSE_TIMEOUT_S)
        return self._recorder.close(_CLOSE_TIMEOUT_S)

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
        return self.window.is_open or (self.active_turn_id is not None and not self._replies.is_stopping)

    def stop(self) -> bool:
        """Stops the reply, or leaves the window's question; False where there was nothing to stop."""
        if self.window.is_open:
            self.window.stop()
            return True
        return self._replies.stop()

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
        self._replies.go_on(self.conversation.turns[-1])
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

    # What the other parts need.

    def show_changed(self, conversation: Conversation) -> None:
        """The shown conversation was changed: keeps and shows it."""
        recorder, is_same = self._recorder, conversation.attachments == self.conversation.attachments
        (recorder.save_conversation if is_same else recorder.save_attachments)(conversation)
        self._show(conversation)

    def show_other(self, conversation: Conversation) -> None:
        """Another conversation has been read: leaves the one that is shown for it."""
        self._leave_conversation()
        self._show(conversation if conversation.turns else replace(conversation, system=self._system))

    def show_grown(self, conversation: Conversation) -> None:
        """Another window came to the end of a reply in this conversation, which stands so in the file now."""
        if conversation.id == self.conversation.id and self.active_turn_id is None:
            self._show(with_turns_of(self.conversation, conversation))

    def tell_keeping(self, *, is_behind: bool) -> None:
        """Something could not be kept yet, or all is kept again."""
        self._status.tell(is_behind=is_behind)

    def answer(self, question: Turn) -> None:
        """Asks for the reply to the last turn, and keeps both."""
        self._replies.begin(question)

    def keep_turn(self, turn: Turn) -> None:
        """Keeps a turn of the shown conversation, new or changed."""
        self.conversation = self.conversation.with_turn(turn)
        self._recorder.save_turns(self.conversation, [turn])

    def set_draft(self, text: str) -> None:
        """Takes in what stands in the input, to be kept within a second."""
        if text != self.conversation.draft:
            self.conversation = replace(self.conversation, draft=text)
            self._draft_changed = True

    def set_edit(self, turn_id: str | None, text: str) -> None:
        """Takes in how far an edit of a turn has come, to be kept within a second; None: there is none."""
        if (turn_id, text) != (self.conversation.edited, self.conversation.edit):
            self.conversation = replace(self.conversation, edited=turn_id, edit=text)
            self._draft_changed = True

    # What goes on.

    def tick(self) -> bool:
        """Takes in what has come, keeps what changed; False where nothing had come."""
        has_come = self._intake.take_all()
        if self.conversation.title != self._told_title:
            self._told_title = self.conversation.title
            self._view.show_title(self._told_title)
        now_s = self._clock()
        if now_s - self._saved_at_s >= _SAVE_INTERVAL_S:
            self._saved_at_s = now_s
            self._replies.save()
            self.save_draft()
        is_on_its_way = self.phase is Phase.REPLYING and not self._model.is_loading
        if is_on_its_way and now_s - self._told_at_s >= _STATUS_INTERVAL_S:
            self._told_at_s = now_s
            self._replies.tell_progress()
        return has_come

    def _leave_conversation(self) -> None:
        self.window.leave()
        self._replies.cancel()
        self._replies.leave()
        self.save_draft()

    def _show(self, conversation: Conversation) -> None:
        self.conversation = conversation
        self._recorder.show(conversation)
        self._view.show_conversation(conversation)
        self._view.set_draft(conversation.draft)
        self.attaching.show()
        if (edited := next((turn for turn in conversation.turns if turn.id == conversation.edited), None)) is not None:
            self._view.resume_edit(edited, conversation.edit)
        last = conversation.turns[-1].figures if conversation.turns else None
        used_tokens = last.prompt_tokens + last.reply_tokens if last else None
        self._status.tell(
            activity=self._model.activity, tokens_per_s=None, ttft_s=None, used_tokens=used_tokens, reused_tokens=None
        )

    def save_draft(self) -> None:
        """Keeps what is being written, without waiting."""
        if self._draft_changed:
            self._draft_changed = False
            self._recorder.save_conversation(self.conversation)
