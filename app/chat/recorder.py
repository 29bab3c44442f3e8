"""The thread that keeps conversations: writes what is owed, reads when asked, never in the screen's way.

Owns the thread and the file it opens. What can't be kept is told once through the mailbox, and the chat goes on; it
is tried again every few seconds, and told when it has come right. What is owed in the end is handed back.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import reduce
from pathlib import Path

from app.chat.changes import Changes
from app.chat.conversation import Conversation, Turn, TurnState
from app.chat.events import (
    ConversationGrew,
    ConversationLoaded,
    HistoryEvent,
    HistoryFailed,
    HistoryListed,
    HistoryOpened,
    KeepingChanged,
    Mailbox,
    Searched,
)
from app.chat.owed import Owed
from app.chat.salvage import open_store
from app.chat.store import Store
from app.chat.store_file import DamagedStoreError, MovedStoreError, StoreError
from app.chat.store_reading import ReadingStore

_LATEST = 10
_RETRY_S = 2.0
_LOOK_S = 1.0
_BUG = "Something of the conversation could not be kept"


@dataclass(frozen=True, kw_only=True)
class Unkept:
    """Conversations that could not be kept, as they stand, and why."""

    reason: str
    conversations: tuple[Conversation, ...]


class Recorder:
    """Keeps conversations beside the screen. All methods return at once, save `close`."""

    def __init__(self, path: Path, mailbox: Mailbox) -> None:
        self._path = path
        self._mailbox = mailbox
        self._jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._owed = Owed()
        self._store: Store | None = None
        self._reader: ReadingStore | None = None
        self._told: set[str] = set()
        self._fault = ""
        self._is_opened = False
        self._is_damaged = False
        self._shown = ""
        self._awaited: set[str] = set()
        self._thread = threading.Thread(target=self._run, name="chat-recorder", daemon=True)

    def start(self) -> None:
        """Opens the conversations; how that went comes through the mailbox."""
        self._thread.start()

    # What is to be kept.

    def save_conversation(self, conversation: Conversation) -> None:
        """Keeps everything but the turns: the draft, the title, the window."""
        self._save(Changes(conversation_id=conversation.id, conversation=conversation))

    def save_attachments(self, conversation: Conversation) -> None:
        """Keeps what is attached to the draft."""
        self._save(Changes(conversation_id=conversation.id, conversation=conversation, has_attachments=True))

    def save_turns(self, conversation: Conversation, turns: Sequence[Turn]) -> None:
        """Keeps turns, new or changed, and the conversation they belong to."""
        by_id = {turn.id: turn for turn in turns}
        self._save(Changes(conversation_id=conversation.id, conversation=conversation, turns=by_id))

    def remove_turn(self, conversation: Conversation, turn_id: str, moved: Sequence[Turn]) -> None:
        """Takes a turn away, and keeps the conversation without it and the turns that stand elsewhere now."""
        by_id = {turn.id: turn for turn in moved}
        removed = frozenset({turn_id})
        self._save(Changes(conversation_id=conversation.id, conversation=conversation, turns=by_id, removed=removed))

    def set_deleted(self, conversation_id: str, *, is_deleted: bool) -> None:
        """Takes a conversation out of the lists, or brings it back."""
        self._save(Changes(conversation_id=conversation_id, is_deleted=is_deleted))

    def set_pinned(self, conversation_id: str, *, is_pinned: bool) -> None:
        """Puts a conversation at the head of the list, or lets it go."""
        self._save(Changes(conversation_id=conversation_id, is_pinned=is_pinned))

    def show(self, conversation: Conversation) -> None:
        """This conversation is on the screen now, and no other."""
        self._awaited = {turn.id for turn in conversation.all_turns if turn.state is TurnState.ELSEWHERE}
        self._shown = conversation.id
        self._jobs.put(lambda: self._store.show(conversation.id) if self._store is not None else None)

    def _save(self, changes: Changes) -> None:
        self._owed.add(changes)
        self._jobs.put(self._pay)

    # What is asked for.

    def list_conversations(self) -> None:
        """Asks for the list of conversations."""
        self._ask(lambda store: HistoryListed(lines=tuple(store.conversations())))

    def load(self, conversation_id: str) -> None:
        """Asks for a conversation."""

        def read(store: ReadingStore) -> HistoryEvent:
            is_elsewhere = store.claims.is_elsewhere(conversation_id)
            conversation = store.load(conversation_id)
            if conversation is None:
                return HistoryFailed(sentence="That conversation is no longer there.")
            return ConversationLoaded(conversation=conversation, is_elsewhere=is_elsewhere)

        self._ask(read)

    def search(self, text: str) -> None:
        """Asks for the turns that hold the text."""
        self._ask(lambda store: Searched(text=text, hits=tuple(store.search(text))))

    def _ask(self, read: Callable[[ReadingStore], HistoryEvent]) -> None:
        def answer() -> None:
            if self._reader is None:
                self._open()
            if self._reader is None:
                self._mailbox.post(HistoryFailed(sentence=f"Earlier conversations can't be read: {self._fault}."))
            else:
                self._mailbox.post(self._read(self._reader, read))

        self._jobs.put(answer)

    def _read(self, reader: ReadingStore, read: Callable[[ReadingStore], HistoryEvent]) -> HistoryEvent:
        try:
            return read(reader)
        except DamagedStoreError:
            if self._store is None:
                raise
            self._store, self._is_damaged = None, True
            self._open()
            return read(self._reader or reader)

    # The thread.

    def close(self, timeout_s: float) -> Unkept | None:
        """Writes what is still waiting and closes the file; what can't be kept is handed back.

        Where it was never started, because the chat was left at once, the file is opened only for what waits.
        """
        if self._thread.ident is None:
            if not self._owed.all:
                return None
            self._thread.start()
        self._jobs.put(None)
        self._thread.join(timeout_s)
        owed = [changes.conversation for changes in self._owed.all if changes.conversation is not None]
        if not owed:
            return None
        reason = f"{self._path} did not answer in time" if self._thread.is_alive() else self._fault
        return Unkept(reason=reason, conversations=tuple(owed))

    def _run(self) -> None:
        self._do(self._open)
        try:
            while True:
                try:
                    job = self._jobs.get(timeout=self._patience_s)
                except queue.Empty:
                    job = self._pay if self._owed.all else self._look
                if job is None:
                    break
                self._do(job)
            self._do(self._pay)
        finally:
            if self._reader is not None:
                self._reader.close()

    @property
    def _patience_s(self) -> float | None:
        """How long to wait for something to do before looking what has changed outside; None: for ever."""
        if self._owed.all:
            return _RETRY_S
        return _LOOK_S if self._awaited else None

    def _do(self, job: Callable[[], object]) -> None:
        try:
            job()
        except StoreError as fault:
            self._tell(f"{fault}.")
        except Exception as fault:  # A bug here must not end the thread: the next turn may well be kept.
            self._tell(f"{_BUG}: {fault}")

    def _open(self) -> None:
        """Opens the file for reading and writing, or else for reading alone."""
        try:
            opened = open_store(self._path, is_damaged=self._is_damaged)
        except StoreError as fault:
            sentence = f"Conversations are not kept: {fault}."
            if self._reader is None:
                with suppress(StoreError):
                    self._reader = ReadingStore(self._path)
                    self._tell_opened(self._reader)
                    sentence += " Earlier ones can be read."
            self._fall_behind(str(fault), sentence)
            return
        if self._reader is not None:
            self._reader.close()
        self._reader = self._store = opened.store
        self._is_damaged = False
        opened.store.show(self._shown)
        self._tell_opened(opened.store, opened.note)

    def _tell_opened(self, store: ReadingStore, note: str = "") -> None:
        if not self._is_opened:
            self._is_opened = True
            latest = tuple(store.conversations(_LATEST))
            self._mailbox.post(HistoryOpened(prompts=tuple(store.prompts()), latest=latest, note=note))
        elif note:
            self._tell(note)

    def _pay(self) -> None:
        """Writes all that is owed; what can't be written stays owed, and holds up nothing else."""
        passed_over: set[str] = set()
        is_new_file = False
        while (changes := self._owed.take(passed_over)) is not None:
            if self._store is None:
                self._open()
            if self._store is None:
                self._owed.settle(changes)
                return
            try:
                left, fault = _write(self._store, changes)
            except (MovedStoreError, DamagedStoreError) as lost:  # All of it goes into another file.
                left, fault = changes.whole, str(lost)
                self._store, self._is_damaged = None, isinstance(lost, DamagedStoreError)
            self._owed.settle(left)
            if self._store is None and not is_new_file:
                is_new_file = True
            elif left is not None:
                passed_over.add(changes.conversation_id)
                self._fall_behind(fault, f"{fault}. What is missing is written as soon as it can be.")
        if self._fault and self._store is not None and not self._owed.all:
            self._fault = ""
            self._told.clear()
            self._mailbox.post(KeepingChanged(is_behind=False))
            self._mailbox.post(HistoryFailed(sentence="The conversations are kept again.", is_warning=False))

    def _look(self) -> None:
        """Whether another window has come to the end of a reply that is shown here."""
        reader = self._reader
        if reader is None or all(map(reader.claims.is_elsewhere, self._awaited)):
            return
        if (conversation := reader.read(self._shown)) is not None:
            self._mailbox.post(ConversationGrew(conversation=conversation))

    def _fall_behind(self, fault: str, sentence: str) -> None:
        self._fault = fault
        self._mailbox.post(KeepingChanged(is_behind=True))
        self._tell(sentence)

    def _tell(self, sentence: str) -> None:
        if sentence not in self._told:
            self._told.add(sentence)
            self._mailbox.post(HistoryFailed(sentence=sentence))


def _write(store: Store, changes: Changes) -> tuple[Changes | None, str]:
    """Writes what can be written; what is left, and why. Raises MovedStoreError and DamagedStoreError."""
    try:
        store.write(changes)
        return None, ""
    except (MovedStoreError, DamagedStoreError):
        raise
    except StoreError as fault:
        reason = str(fault)
    except Exception as fault:  # a bug, maybe of one turn's
        reason = f"{_BUG}: {fault}"
    pieces = changes.pieces
    if len(pieces) == 1:
        return changes, reason
    left = [piece for piece in pieces if _write(store, piece)[0] is not None]
    return (reduce(Changes.followed_by, left) if left else None), reason
