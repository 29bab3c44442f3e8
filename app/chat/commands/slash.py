"""Whether a message is a command: what its first word says.

Owns that reading. A message that is none is never changed, save that `//` at its beginning stands for `/`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from app.chat.commands.command import Command
from app.chat.commands.registry import command_called, nearest_name

# A path or a fraction is no command: a command's word is letters (or `?`), and ends with the message or a blank.
_SLASH_WORD = re.compile(r"/([A-Za-z][A-Za-z-]*|\?)(?:\s+(.*))?\s*", re.DOTALL)


@dataclass(frozen=True, kw_only=True)
class SlashCall:
    """A command with its argument."""

    command: Command
    argument: str


@dataclass(frozen=True, kw_only=True)
class PlainMessage:
    """What is to be sent."""

    text: str


@dataclass(frozen=True, kw_only=True)
class UnknownWord:
    """A word behind a slash that is no command. `sentence` says so, and what to do."""

    sentence: str


def read_message(text: str) -> SlashCall | PlainMessage | UnknownWord:
    """What the user sent: a command, a message, or what looks like a command and is none."""
    stripped = text.strip()
    if stripped.startswith("//"):
        place = text.index("//")
        return PlainMessage(text=text[:place] + text[place + 1 :])
    match = _SLASH_WORD.fullmatch(stripped)
    if match is None:
        return PlainMessage(text=text)
    word, argument = match.group(1), (match.group(2) or "").strip()
    command = command_called(word.lower())
    if command is not None:
        return SlashCall(command=command, argument=argument)
    near = nearest_name(word)
    meant = f"Did you mean /{near}? " if near else "/help lists them. "
    return UnknownWord(sentence=f"There is no command /{word}. {meant}A second slash in front sends it as a message.")
