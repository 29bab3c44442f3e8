"""What is attached to the message that is being written.

Owns adding, taking out and counting. The attachments themselves are part of the conversation, so that they are kept
with the draft. Knows the engine's thread for the counting, and the screen through `ChatView`.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Protocol

from app.chat.attachments import (
    Attachment,
    AttachmentError,
    mentioned_files,
    missing_files,
    names_behind_at,
    read_file,
)
from app.chat.conversation import Conversation
from app.chat.engine_thread import EngineThread
from app.chat.events import TokensCounted
from app.chat.recorder import Recorder
from app.chat.view import ChatView


class Desk(Protocol):
    """Where the conversation lies."""

    conversation: Conversation


class Attaching:
    """The attachments of the draft."""

    def __init__(self, desk: Desk, engine: EngineThread, recorder: Recorder, view: ChatView) -> None:
        self._desk = desk
        self._engine = engine
        self._recorder = recorder
        self._view = view

    def attach_file(self, name: str) -> bool:
        """Attaches a file, once; False (and a note that says why) where it can't be had."""
        if any(known.name == name for known in self._desk.conversation.attachments):
            return True
        try:
            self._put((*self._desk.conversation.attachments, read_file(name, Path.cwd())))
        except AttachmentError as fault:
            self._view.show_note(str(fault), is_warning=True)
            return False
        return True

    def follow(self, text: str) -> None:
        """The message reads so now: what it names behind an @ is attached, what it no longer names is not.

        A file that is named and no longer there (the draft was begun in another folder) stays as it was read.
        """
        attachments = self._desk.conversation.attachments
        if "@" not in text and not any(known.is_mentioned for known in attachments):
            return
        names = mentioned_files(text, Path.cwd())
        named = names_behind_at(text) | set(names)
        kept = tuple(known for known in attachments if not known.is_mentioned or known.name in named)
        present = {known.name for known in kept}
        read = [found for name in names if name not in present and (found := _read_quietly(name)) is not None]
        if read or kept != attachments:
            self._put((*kept, *(replace(attachment, is_mentioned=True) for attachment in read)))

    def attach_mentioned(self, text: str) -> bool:
        """Attaches the files that a message names behind an @, as they read now; False where one can't be read."""
        self.follow(text)
        if not all(self.attach_file(name) for name in mentioned_files(text, Path.cwd())):
            return False
        before = self._desk.conversation.attachments
        now = tuple(map(_as_it_reads_now, before))
        if now != before:
            self._put(now)
        if missing := missing_files(text, Path.cwd(), {known.name for known in now}):
            self._view.show_note(f"{' '.join(missing)} The message was sent without it.", is_warning=True)
        return True

    def release(self) -> tuple[Attachment, ...]:
        """Hands over what is attached: it is sent."""
        attachments = self._desk.conversation.attachments
        if attachments:
            self._put(())
        return attachments

    def attach_paste(self, text: str) -> None:
        """Attaches what was pasted."""
        names = {known.name for known in self._desk.conversation.attachments}
        number = next(number for number in range(1, len(names) + 2) if f"Pasted text {number}" not in names)
        attachment = Attachment(name=f"Pasted text {number}", text=text)
        self._put((*self._desk.conversation.attachments, attachment))

    def drop(self, number: int) -> Attachment | None:
        """Takes the attachment of this number (from 1) out; None where there is none."""
        attachments = self._desk.conversation.attachments
        if not 1 <= number <= len(attachments):
            return None
        self._put(attachments[: number - 1] + attachments[number:])
        return attachments[number - 1]

    def show(self) -> None:
        """Shows what is attached, and asks for counts that are missing."""
        attachments = self._desk.conversation.attachments
        self._view.show_attachments(attachments)
        for attachment in attachments:
            if attachment.num_tokens is None:
                self._engine.count(attachment.text)

    def take_count(self, event: TokensCounted) -> None:
        """The engine counted a text."""
        attachments = self._desk.conversation.attachments
        counted = tuple(
            replace(attachment, num_tokens=event.num_tokens) if attachment.text == event.text else attachment
            for attachment in attachments
        )
        if counted != attachments:
            self._desk.conversation = replace(self._desk.conversation, attachments=counted)
            self._view.show_attachments(counted)

    def _put(self, attachments: tuple[Attachment, ...]) -> None:
        self._desk.conversation = replace(self._desk.conversation, attachments=attachments)
        self._recorder.save_attachments(self._desk.conversation)
        self.show()


def _read_quietly(name: str) -> Attachment | None:
    """The file; None where it can't be had, which is told when the message is sent."""
    try:
        return read_file(name, Path.cwd())
    except AttachmentError:
        return None


def _as_it_reads_now(attachment: Attachment) -> Attachment:
    """A named file may have been changed since the message named it first."""
    found = _read_quietly(attachment.name) if attachment.is_mentioned else None
    return attachment if found is None or found.text == attachment.text else replace(found, is_mentioned=True)
