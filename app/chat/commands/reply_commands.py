"""Commands for the reply that is being written, or was."""

from __future__ import annotations

from typing import TYPE_CHECKING

from app.chat.commands.command import Command
from app.chat.engine_port import Role

if TYPE_CHECKING:
    from app.chat.screens.chat import ChatScreen


def _stop(desk: ChatScreen, argument: str) -> None:
    if desk.offers.is_open:
        desk.offers.close()
        return
    if desk.editing.is_on:
        desk.editing.leave()
        return
    desk.note.clear()
    if not desk.controller.stop():
        desk.transcript.select(None)


def _regenerate(desk: ChatScreen, argument: str) -> None:
    desk.note.clear()
    desk.controller.regenerate()


def _go_on(desk: ChatScreen, argument: str) -> None:
    desk.note.clear()
    desk.controller.go_on()


def _think(desk: ChatScreen, argument: str) -> None:
    if (reply := desk.transcript.last_reply) is not None:
        reply.toggle_thinking()


def _no_reply(desk: ChatScreen) -> str:
    turns = desk.controller.conversation.turns
    return "" if any(turn.role is Role.ASSISTANT for turn in turns) else "There is no reply yet."


REPLY_COMMANDS = (
    Command(
        name="stop",
        title="Stop",
        help="stop the reply, keep what there is",
        handler=_stop,
        keys=("escape",),
    ),
    Command(
        name="regen",
        title="Another reply",
        help="another reply to the last question",
        handler=_regenerate,
        keys=("ctrl+r",),
        refusal=lambda desk: desk.controller.refusals.to_regenerate(),
    ),
    Command(
        name="continue",
        title="Go on",
        help="go on with a reply that was stopped or cut off",
        handler=_go_on,
        keys=("ctrl+g",),
        refusal=lambda desk: desk.controller.refusals.to_go_on(),
    ),
    Command(
        name="think",
        title="Thinking",
        help="open or fold the thinking of the latest reply",
        handler=_think,
        keys=("ctrl+t",),
        refusal=_no_reply,
    ),
)
