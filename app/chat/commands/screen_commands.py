"""Commands for the screen itself: help, scrolling, leaving."""

from __future__ import annotations

from typing import TYPE_CHECKING

from app.chat.commands.command import Command

if TYPE_CHECKING:
    from app.chat.screens.chat import ChatScreen


def _help(desk: ChatScreen, argument: str) -> None:
    desk.show_keys()


def _palette(desk: ChatScreen, argument: str) -> None:
    desk.app.action_command_palette()


def _quit(desk: ChatScreen, argument: str) -> None:
    desk.keep_draft()
    desk.app.exit()


def _redraw(desk: ChatScreen, argument: str) -> None:
    desk.redraw()


def _up(desk: ChatScreen, argument: str) -> None:
    desk.portions.page(-1)


def _down(desk: ChatScreen, argument: str) -> None:
    desk.portions.page(1)


def _top(desk: ChatScreen, argument: str) -> None:
    desk.portions.top()


def _bottom(desk: ChatScreen, argument: str) -> None:
    desk.portions.end()


SCREEN_COMMANDS = (
    Command(name="help", title="Help", help="commands and keys, on one page", handler=_help, keys=("f1",)),
    Command(
        name="palette",
        title="Command palette",
        help="find a command or a theme by its name",
        handler=_palette,
        keys=("ctrl+p",),
        in_palette=False,
    ),
    Command(name="up", title="Up a page", help="scroll up", handler=_up, keys=("pageup",), in_palette=False),
    Command(name="down", title="Down a page", help="scroll down", handler=_down, keys=("pagedown",), in_palette=False),
    Command(name="top", title="To the beginning", help="scroll to the beginning", handler=_top, keys=("ctrl+home",)),
    Command(name="end", title="To the end", help="scroll to the end and stay", handler=_bottom, keys=("ctrl+end",)),
    Command(
        name="redraw",
        title="Draw anew",
        help="draw the screen anew, where something else wrote on it",
        handler=_redraw,
        keys=("ctrl+l",),
        in_palette=False,
    ),
    Command(
        name="quit",
        title="Leave",
        help="leave; nothing is lost",
        handler=_quit,
        keys=("ctrl+q",),
        is_global=True,
        in_palette=False,
    ),
)
