"""Commands for whole conversations."""

from __future__ import annotations

from typing import TYPE_CHECKING

from app.chat.commands.command import Argument, Command
from app.chat.screens.search import SearchScreen
from app.chat.search import Hit

if TYPE_CHECKING:
    from app.chat.screens.chat import ChatScreen


def _new(desk: ChatScreen, argument: str) -> None:
    desk.keep_draft()
    desk.controller.new_conversation()


def _open(desk: ChatScreen, argument: str) -> None:
    desk.controller.library.list_all()


def _search(desk: ChatScreen, argument: str) -> None:
    def chosen(hit: Hit | None) -> None:
        if hit is not None:
            desk.keep_draft()
            desk.controller.library.open_at(hit.conversation_id, hit.turn_id)
            desk.wake()

    desk.app.push_screen(SearchScreen(argument, desk=desk.controller.library), chosen)


def _rename(desk: ChatScreen, argument: str) -> None:
    desk.controller.revisions.rename(argument)
    desk.show_note(f"Renamed: {desk.controller.conversation.title}")


def _pin(desk: ChatScreen, argument: str) -> None:
    conversation = desk.controller.conversation
    desk.controller.revisions.pin(conversation.id, is_pinned=not conversation.is_pinned)
    desk.show_note("No longer pinned." if conversation.is_pinned else "Pinned to the head of the list.")


def _delete(desk: ChatScreen, argument: str) -> None:
    conversation = desk.controller.conversation
    desk.controller.revisions.delete(conversation.id, conversation.title)
    desk.show_note(f"Deleted: {conversation.title or 'Untitled'}. {desk.keys.hint('undo')} brings it back.")


def _is_empty(desk: ChatScreen) -> str:
    return "" if desk.controller.conversation.all_turns else "This conversation is empty."


CONVERSATION_COMMANDS = (
    Command(name="new", title="New conversation", help="leave this one; it is kept", handler=_new, keys=("ctrl+n",)),
    Command(
        name="open",
        title="Conversations",
        help="open an earlier conversation",
        handler=_open,
        keys=("ctrl+o",),
    ),
    Command(
        name="search",
        title="Search",
        help="search in all conversations",
        handler=_search,
        argument=Argument(word="WORDS", is_optional=True),
        keys=("ctrl+f",),
    ),
    Command(
        name="rename",
        title="Rename",
        help="give this conversation another title",
        handler=_rename,
        argument=Argument(
            word="TITLE",
            question="Title of this conversation",
            initial=lambda desk: desk.controller.conversation.title,
        ),
        refusal=_is_empty,
    ),
    Command(
        name="pin",
        title="Pin",
        help="keep this conversation at the head of the list, or no longer",
        handler=_pin,
        refusal=_is_empty,
    ),
    Command(
        name="delete",
        title="Delete",
        help="delete this conversation; undo brings it back",
        handler=_delete,
        refusal=_is_empty,
    ),
)
