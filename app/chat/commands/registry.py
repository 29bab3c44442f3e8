"""All commands of the chat, in the order in which help lists them.

Owns the list and how a word finds its command. Another part of the chat adds its commands as one more tuple here.
"""

from __future__ import annotations

import difflib

from app.chat.commands.command import Command
from app.chat.commands.conversation_commands import CONVERSATION_COMMANDS
from app.chat.commands.copy_commands import COPY_COMMANDS
from app.chat.commands.model_commands import MODEL_COMMANDS
from app.chat.commands.reply_commands import REPLY_COMMANDS
from app.chat.commands.screen_commands import SCREEN_COMMANDS
from app.chat.commands.turn_commands import TURN_COMMANDS

COMMANDS: tuple[Command, ...] = (
    CONVERSATION_COMMANDS + REPLY_COMMANDS + TURN_COMMANDS + COPY_COMMANDS + MODEL_COMMANDS + SCREEN_COMMANDS
)
_BY_NAME = {command.name: command for command in COMMANDS}
# What other programs call it. Not offered and not in the help, only understood.
_ELSEWHERE = {
    "bye": "quit",
    "exit": "quit",
    "clear": "new",
    "reset": "new",
    "retry": "regen",
    "regenerate": "regen",
    "load": "model",
    "list": "models",
    "history": "open",
    "read": "attach",
    "?": "help",
}


def command_of(name: str) -> Command | None:
    """The command of this name."""
    return _BY_NAME.get(name)


def command_called(word: str) -> Command | None:
    """The command that this slash word calls: its name, or what another program calls the same thing."""
    return _BY_NAME.get(word) or _BY_NAME.get(_ELSEWHERE.get(word, ""))


def commands_beginning(text: str) -> list[Command]:
    """The commands whose name begins with the text; where none does, those that hold it."""
    word = text.lower()
    beginning = [command for command in COMMANDS if command.name.startswith(word)]
    return beginning or [command for command in COMMANDS if word in command.name]


def nearest_name(word: str) -> str | None:
    """The name that someone who wrote this word may have meant."""
    near = difflib.get_close_matches(word.lower(), _BY_NAME, 1, cutoff=0.6)
    return near[0] if near else None
