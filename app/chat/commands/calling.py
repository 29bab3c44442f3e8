"""Carrying out a command, from wherever it was called: a slash word, a key, the palette.

Owns what comes first: whether it can be done now, and an argument that is missing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from app.chat.commands.command import Command
from app.chat.screens.ask import AskScreen

if TYPE_CHECKING:
    from app.chat.screens.chat import ChatScreen


def call_command(desk: ChatScreen, command: Command, argument: str) -> None:
    """Does what a command says, or says why it can't be done now; asks for an argument that is missing."""
    if sentence := command.refusal(desk):
        desk.show_note(sentence, is_warning=True)
    elif command.needs_argument and not argument:
        _ask_argument(desk, command)
    else:
        command.handler(desk, argument)


def _ask_argument(desk: ChatScreen, command: Command) -> None:
    assert command.argument is not None, "only a command with an argument needs one"

    def answered(argument: str | None) -> None:
        if argument is not None:
            desk.run(command, argument)

    question = command.argument.question or command.title
    desk.app.push_screen(AskScreen(question, initial=command.argument.initial(desk)), answered)
