"""A conversation as a file for other programs and for people: Markdown of what is shown, JSON of all there is.

Owns both forms and the writing, which never replaces a file. Does not know the screen.
"""

from __future__ import annotations

import json
import re
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from app.chat.attachments import place_of, prompt_text
from app.chat.conversation import Conversation, Turn, TurnState
from app.chat.engine_port import Role
from app.chat.plain_text import neutralise, one_line

FORMAT_VERSION = 1
_NAME_CHARS = 50


class ExportError(Exception):
    """A file can't be written; the message is one sentence for the screen."""


def as_markdown(conversation: Conversation) -> str:
    """The branch that is shown, each turn under a heading, texts as they were written."""
    parts = [f"# {one_line(conversation.title) or 'Untitled'}"]
    if conversation.system:
        parts.append(f"## System\n\n{conversation.system}")
    for turn in conversation.turns:
        parts.append(f"## {_heading(turn)}")
        if turn.thinking.strip():
            parts.append(_quoted(f"Thinking:\n\n{turn.thinking.strip()}"))
        if words := prompt_text(turn.text, turn.attachments).strip():
            parts.append(words)
    return "\n\n".join(parts) + "\n"


def _quoted(text: str) -> str:
    return "\n".join(f"> {line}".rstrip() for line in text.split("\n"))


def _heading(turn: Turn) -> str:
    if turn.role is Role.USER:
        return "You"
    name = one_line(turn.model) or "Reply"
    return name if turn.state is TurnState.FINISHED else f"{name} ({turn.state})"


def as_json(conversation: Conversation) -> str:
    """Every turn of every branch, in the order they were written, with all that is known of it."""
    turns = [_without_nothing(asdict(turn)) for turn in conversation.all_turns]
    content = {
        "format": "tandem-conversation",
        "version": FORMAT_VERSION,
        "id": conversation.id,
        "title": conversation.title,
        "system": conversation.system,
        "model": conversation.model,
        "created_at": conversation.created_at,
        "shown": [turn.id for turn in conversation.turns],
        "turns": turns,
    }
    return json.dumps(content, ensure_ascii=False, indent=1) + "\n"


def _without_nothing(fields: dict[str, object]) -> dict[str, object]:
    return {name: value for name, value in fields.items() if value not in (None, "", ())}


_FORMS = {".md": as_markdown, ".markdown": as_markdown, ".json": as_json}


def export(conversation: Conversation, name: str, folder: Path) -> Path:
    """Writes the conversation and returns where. name: a file whose ending says the form, or nothing: a Markdown file
    named after the conversation. Raises ExportError."""
    path = place_of(name, folder) if name else _free(folder / f"{_file_stem(conversation)}.md")
    form = _FORMS.get(path.suffix.lower())
    if form is None:
        raise ExportError(f"{path.name} says no form: end the name in .md or .json.")
    write_new(path, form(conversation))
    return path


def rescue(conversations: Sequence[Conversation], reason: str) -> str:
    """Writes conversations that could not be kept into a new folder for temporary files, in both forms, and says
    where; where even that fails, what it says is the conversations themselves."""
    texts = [f"{as_markdown(conversation)}{_unsent(conversation)}" for conversation in conversations]
    try:
        folder = Path(tempfile.mkdtemp(prefix="tandem-conversations-"))
        for conversation, text in zip(conversations, texts, strict=True):
            path = _free(folder / f"{_file_stem(conversation)}.md")
            write_new(path, text)
            write_new(path.with_suffix(".json"), as_json(conversation))
    except (OSError, ExportError):
        return "\n\n".join([f"{reason}. This is the conversation:", *map(neutralise, texts)])
    return f"{reason}. The conversation was written to {folder} instead; move it, that is a folder for temporary files."


def _unsent(conversation: Conversation) -> str:
    words = prompt_text(conversation.draft, conversation.attachments).strip()
    return f"\n## Not sent\n\n{words}\n" if words else ""


def write_new(path: Path, text: str) -> None:
    """Writes a file that must not be there yet. Raises ExportError."""
    try:
        file = open(path, "x", encoding="utf-8", errors="replace", newline="")  # noqa: SIM115 (closed below)
        try:
            with file:
                file.write(text)
        except BaseException:  # A part of it would stand in the way of the next try.
            path.unlink(missing_ok=True)
            raise
    except FileExistsError as fault:
        raise ExportError(f"{path} exists already and is left alone: give another name.") from fault
    except FileNotFoundError as fault:
        raise ExportError(f"{path} can't be written: there is no folder {path.parent}.") from fault
    except (OSError, ValueError) as fault:
        raise ExportError(f"{path} can't be written: {getattr(fault, 'strerror', None) or fault}.") from fault


def _file_stem(conversation: Conversation) -> str:
    words = re.sub(r"[^\w]+", "-", conversation.title.lower()).strip("-")[:_NAME_CHARS].strip("-")
    return words or time.strftime("conversation-%Y%m%d-%H%M%S", time.localtime(conversation.created_at))


def _free(path: Path) -> Path:
    """This path, or the first with a number behind its name that is not there."""
    candidate, number = path, 1
    while candidate.exists():
        number += 1
        candidate = path.with_stem(f"{path.stem}-{number}")
    return candidate
