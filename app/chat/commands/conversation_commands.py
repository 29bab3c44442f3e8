"""Commands for whole conversations."""

from __future__ import annotations

from typing import TYPE_CHECKING

from app.chat.commands.command import Command

if TYPE_CHECKING:
    from app.chat.screens.chat import ChatScreen


def _new(desk: ChatScreen, argument: str) -> None:
    desk.keep_draft()
    desk.controller.new_conversation()


def _open(desk: ChatScreen, argument: str) -> None:
    desk.controller.list_conversations()


CONVERSATION_COMMANDS = (
    Command(name="new", title="New conversation", help="leave this one; it is kept", handler=_new, keys=("ctrl+n",)),
    Command(
        name="open",
        title="Conversations",
        help="open an earlier conversation",
        handler=_open,
        keys=("ctrl+o",),
    ),
)
