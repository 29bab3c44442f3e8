"""The thread that keeps conversations: writes in the order it was told, reads when asked, never in the screen's way.

Owns the thread and the store it opens. What can't be kept is told once through the mailbox, and the chat goes on; it
is written with the next thing that can be, so that a disk that was full for a while costs nothing.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from app.chat.conversation import Conversation, Turn
from app.chat.events import ConversationLoaded, HistoryFailed, HistoryListed, HistoryOpened, Mailbox, Searched
from app.chat.salvage import open_store
from app.chat.store import Store, StoreError

_LATEST = 10


@dataclass(kw_only=True)
class _Owed:
    """What of a conversation is not written yet: itself, some turns by their ids, what is attached to the draft."""

    conversation: Conversation
    turns: dict[str, Turn] = field(default_factory=dict)
    has_attachments: bool = False

    def write(self, store: Store) -> None:
        """Writes it."""
        if self.turns or not self.has_attachments:
            store.save_turns(self.conversation, tuple(self.turns.values()))
        if self.has_attachments:
            store.save_attachments(self.conversation)


class Recorder:
    """Keeps conversations beside the screen. All methods return at once, save `close`."""

    def __init__(self, path: Path, mailbox: Mailbox) -> None:
        self._path = path
        self._mailbox = mailbox
        self._jobs: queue.SimpleQueue[Callable[[Store], None] | None] = queue.SimpleQueue()
        self._told: set[str] = set()
        self._owed: dict[str, _Owed] = {}
        self._is_behind = False
        self._thread = threading.Thread(target=self._run, name="chat-recorder", daemon=True)

    def start(self) -> None:
        """Opens the conversations; how that went comes through the mailbox."""
        self._thread.start()

    def save_conversation(self, conversation: Conversation) -> None:
        """Keeps everything but the turns: the draft, the title, the window."""
        self._save(_Owed(conversation=conversation))

    def save_attachments(self, conversation: Conversation) -> None:
        """Keeps what is attached to the draft."""
        self._save(_Owed(conversation=conversation, has_attachments=True))

    def save_turns(self, conversation: Conversation, turns: Sequence[Turn]) -> None:
        """Keeps turns, new or changed, and the conversation they belong to."""
        self._save(_Owed(conversation=conversation, turns={turn.id: turn for turn in turns}))

    def _save(self, new: _Owed) -> None:
        def save(store: Store) -> None:
            owed = self._owed.setdefault(new.conversation.id, _Owed(conversation=new.conversation))
            owed.conversation = new.conversation
            owed.turns |= new.turns
            owed.has_attachments |= new.has_attachments
            try:
                self._pay(store)
            except StoreError:
                if len(owed.turns) > len(new.turns):  # should an earlier one be the reason, these are kept all the same
                    new.write(store)
                raise

        self._jobs.put(save)

    def remove_turn(self, conversation: Conversation, turn_id: str, moved: Sequence[Turn]) -> None:
        """Takes a turn away, and keeps the conversation without it and the turns that stand elsewhere now."""
        self._jobs.put(lambda store: store.remove_turn(conversation, turn_id, moved))

    def list_conversations(self) -> None:
        """Asks for the list of conversations."""
        self._jobs.put(lambda store: self._mailbox.post(HistoryListed(lines=tuple(store.conversations()))))

    def load(self, conversation_id: str) -> None:
        """Asks for a conversation."""

        def read(store: Store) -> None:
            conversation = store.load(conversation_id)
            if conversation is None:
                self._mailbox.post(HistoryFailed(sentence="That conversation is no longer there."))
            else:
                self._mailbox.post(ConversationLoaded(conversation=conversation))

        self._jobs.put(read)

    def set_deleted(self, conversation_id: str, *, is_deleted: bool) -> None:
        """Takes a conversation out of the lists, or brings it back."""
        self._jobs.put(lambda store: store.set_deleted(conversation_id, is_deleted=is_deleted))

    def set_pinned(self, conversation_id: str, *, is_pinned: bool) -> None:
        """Puts a conversation at the head of the list, or lets it go."""
        self._jobs.put(lambda store: store.set_pinned(conversation_id, is_pinned=is_pinned))

    def search(self, text: str) -> None:
        """Asks for the turns that hold the text."""
        self._jobs.put(lambda store: self._mailbox.post(Searched(text=text, hits=tuple(store.search(text)))))

    def close(self, timeout_s: float) -> bool:
        """Writes what is still waiting and closes the file; False where that took longer than `timeout_s`.

        Where it was never started, because the chat was left at once, the file is opened only for what waits.
        """
        if self._thread.ident is None:
            if self._jobs.empty():
                return True
            self._thread.start()
        self._jobs.put(None)
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        try:
            opened = open_store(self._path)
            store = opened.store
            prompts, latest = tuple(store.prompts()), tuple(store.conversations(_LATEST))
        except StoreError as fault:
            self._mailbox.post(HistoryFailed(sentence=f"Conversations are not kept: {fault}"))
            return
        self._mailbox.post(HistoryOpened(prompts=prompts, latest=latest, note=opened.note))
        try:
            while (job := self._jobs.get()) is not None:
                self._do(job, store)
            self._do(self._pay, store)
        finally:
            store.close()

    def _pay(self, store: Store) -> None:
        """Writes all that is not written yet, in the order in which it came."""
        for identity, owed in list(self._owed.items()):
            owed.write(store)
            del self._owed[identity]
        if self._is_behind:
            self._is_behind = False
            self._told.clear()
            self._mailbox.post(HistoryFailed(sentence="The conversations are kept again.", is_warning=False))

    def _do(self, job: Callable[[Store], None], store: Store) -> None:
        try:
            job(store)
        except StoreError as fault:
            self._is_behind = bool(self._owed)
            again = " What is missing is written as soon as it can be." if self._owed else ""
            self._tell(f"{fault}.{again}")
        except Exception as fault:  # A bug here must not end the thread: the next turn may well be kept.
            self._tell(f"Something of the conversation could not be kept: {fault}")

    def _tell(self, sentence: str) -> None:
        if sentence not in self._told:
            self._told.add(sentence)
            self._mailbox.post(HistoryFailed(sentence=sentence))
