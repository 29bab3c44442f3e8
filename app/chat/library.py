"""The conversations on disk, as the chat asks for them: the list, opening one, searching in all.

Owns what was asked for and has not come yet, and what happens when the file has been opened. Knows the conversation
that is shown through its desk, the file through the recorder.
"""

from __future__ import annotations

from typing import Protocol

from app.chat import events
from app.chat.branches import showing
from app.chat.conversation import Conversation
from app.chat.recorder import Recorder
from app.chat.view import ChatView

_SHARED = "Another window shows this conversation too: what both send becomes branches, and each keeps its own draft."


class Desk(Protocol):
    """What is shown, as the library changes it."""

    @property
    def conversation(self) -> Conversation: ...
    def submit(self, text: str) -> bool: ...
    def show_other(self, conversation: Conversation) -> None: ...
    def show_changed(self, conversation: Conversation) -> None: ...
    def show_grown(self, conversation: Conversation) -> None: ...
    def tell_keeping(self, *, is_behind: bool) -> None: ...


class Library:
    """Asks for conversations and shows what has come."""

    def __init__(
        self,
        desk: Desk,
        recorder: Recorder,
        view: ChatView,
        *,
        opening_key: str,
        continues_last: bool,
        first_message: str = "",
    ) -> None:
        """first_message: sent as soon as it is clear which conversation it belongs to."""
        self._desk = desk
        self._recorder = recorder
        self._view = view
        self._opening_key = opening_key
        self._continues_last = continues_last
        self._first_message = first_message
        self._wanted_turn: str | None = None
        self._note: tuple[str, bool] | None = None

    def list_all(self) -> None:
        """Asks for the list of conversations."""
        self._recorder.list_conversations()

    def open(self, conversation_id: str, *, note: str = "", is_warning: bool = False) -> None:
        """Asks for a conversation; it is shown when it has been read, and the note with it."""
        if conversation_id != self._desk.conversation.id:
            self._note = (note, is_warning) if note else None
            self._recorder.load(conversation_id)

    def open_at(self, conversation_id: str, turn_id: str | None) -> None:
        """Opens a conversation on the branch that goes through this turn, and goes there; None: as it was left."""
        if turn_id is None:
            self.open(conversation_id)
        elif conversation_id == self._desk.conversation.id:
            self._go_to(turn_id)
        else:
            self._wanted_turn = turn_id
            self._recorder.load(conversation_id)

    def search(self, text: str) -> None:
        """Looks for a text in all conversations."""
        self._recorder.search(text)

    def take(self, event: events.HistoryEvent) -> None:
        """Takes in what the recorder posted."""
        match event:
            case events.HistoryOpened():
                self._take_opened(event)
            case events.HistoryFailed():
                self._view.show_note(event.sentence, is_warning=event.is_warning)
                self._send_first_message()
            case events.HistoryListed():
                self._view.show_conversations(event.lines)
            case events.Searched():
                self._view.show_hits(event.text, event.hits)
            case events.KeepingChanged():
                self._desk.tell_keeping(is_behind=event.is_behind)
            case events.ConversationGrew():
                self._desk.show_grown(event.conversation)
            case events.ConversationLoaded():
                self._desk.show_other(event.conversation)
                if event.is_elsewhere:
                    self._view.show_note(_SHARED)
                wanted, self._wanted_turn = self._wanted_turn, None
                if wanted is not None:
                    self._go_to(wanted)
                if self._note is not None:
                    note, is_warning = self._note
                    self._note = None
                    self._view.show_note(note, is_warning=is_warning)
                self._send_first_message()

    def _send_first_message(self) -> None:
        """Once; where it can't be sent, or something was begun already, it stands in the input, behind that."""
        text, self._first_message = self._first_message, ""
        begun = self._desk.conversation
        if text and (begun.draft or begun.attachments or not self._desk.submit(text)):
            self._view.set_draft(f"{begun.draft}\n{text}" if begun.draft else text)

    def _go_to(self, turn_id: str) -> None:
        conversation = self._desk.conversation
        if all(turn.id != turn_id for turn in conversation.turns):
            self._desk.show_changed(showing(conversation, turn_id))
        self._view.go_to_turn(turn_id)

    def _take_opened(self, history: events.HistoryOpened) -> None:
        self._view.set_prompts(history.prompts)
        if history.note:
            self._view.show_note(history.note, is_warning=True)
        shown = self._desk.conversation
        if not history.latest or shown.turns:
            self._send_first_message()
            return
        latest = max(history.latest, key=lambda line: line.updated_at)
        is_draft_alone = latest.num_turns == 0 and latest.has_draft and not latest.is_elsewhere
        is_taken_up = is_draft_alone and not self._first_message
        if (self._continues_last or is_taken_up) and not shown.draft:
            self.open(latest.id, note=history.note, is_warning=True)
            return
        self._send_first_message()
        if latest.is_broken_off and not history.note:
            self._view.show_note(
                f"The last conversation broke off in the middle of a reply: {self._opening_key} opens it."
            )
