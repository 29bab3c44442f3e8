"""Commands for one turn: select, edit, branch, remove, walk the branches, undo.

A turn is the one that is selected, or the one whose number is given, or else the latest that suits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from app.chat.commands.command import Argument, Command
from app.chat.conversation import Turn
from app.chat.engine_port import Role
from app.chat.screens.branches import BranchChoice, BranchesScreen

if TYPE_CHECKING:
    from app.chat.screens.chat import ChatScreen

NUMBER = Argument(word="N", is_optional=True)


def number_of(argument: str) -> int:
    """The number that was typed; 0 where it is none."""
    return int(argument) if argument.isascii() and argument.isdigit() else 0


def turn_of(desk: ChatScreen, argument: str, role: Role | None = None) -> Turn | None:
    """The turn that is meant: number `argument`, the selected one, or the latest of the role. None (told): none is."""
    turns = desk.controller.conversation.turns
    if argument:
        number = number_of(argument)
        if not 1 <= number <= len(turns):
            desk.show_note(f"There is no turn {argument}: turns are counted from 1 to {len(turns)}.", is_warning=True)
            return None
        return turns[number - 1]
    selected = desk.transcript.selected_turn
    suited = [turn for turn in turns if turn.id == selected] or [turn for turn in turns if role in (None, turn.role)]
    return suited[-1] if suited else None


def _edit(desk: ChatScreen, argument: str) -> None:
    if desk.editing.is_changed:
        desk.show_note("A turn is being edited already: Enter saves it, Esc leaves it as it was.", is_warning=True)
    elif (turn := turn_of(desk, argument, Role.USER)) is not None:
        desk.editing.begin(turn)


def _branch(desk: ChatScreen, argument: str) -> None:
    turn = turn_of(desk, argument)
    if turn is None:
        return
    if turn.id == desk.controller.conversation.leaf:
        desk.show_note("This is the last turn: what you send next follows it already.")
        return
    desk.controller.revisions.branch(turn.id)
    desk.show_note(f"What you send next follows turn {_number(desk, turn)}. {desk.keys.hint('undo')} takes that back.")


def _remove(desk: ChatScreen, argument: str) -> None:
    turn = turn_of(desk, argument)
    if turn is None:
        return
    turns = desk.controller.conversation.turns
    number = _number(desk, turn)
    whose = "your message" if turn.role is Role.USER else "reply"
    follows = ""
    if number < len(turns):
        before = f"follows turn {number - 1}" if number > 1 else "is the beginning"
        follows = f" What came behind it {before} now."
    desk.controller.revisions.remove(turn)
    desk.show_note(f"Removed turn {number}, {whose}.{follows} {desk.keys.hint('undo')} brings it back.")


def _tree(desk: ChatScreen, argument: str) -> None:
    def chosen(choice: BranchChoice | None) -> None:
        if choice is None:
            return
        if choice.ends_there:
            desk.controller.revisions.branch(choice.turn_id)
        else:
            desk.controller.revisions.show(choice.turn_id)
        desk.portions.go_to(choice.turn_id)
        desk.wake()

    desk.app.push_screen(BranchesScreen(desk.controller.conversation), chosen)


def _step(desk: ChatScreen, argument: str, direction: int) -> None:
    turns = {turn.id: turn for turn in desk.controller.conversation.turns}
    forked = [turns[turn_id] for turn_id in desk.controller.places]
    turn = turns.get(desk.transcript.selected_turn or "") or (forked[-1] if forked else None)
    if turn is None or not desk.controller.revisions.step(turn, direction):
        desk.show_note("There is only one version here.")


def _select(desk: ChatScreen, argument: str, direction: int) -> None:
    turn_id = desk.portions.select(direction)
    turn = next((turn for turn in desk.controller.conversation.turns if turn.id == turn_id), None)
    if turn is None:
        desk.note.clear()
        return
    hints = " · ".join(
        f"{desk.keys.hint(name)} {word}"
        for name, word in (("edit", "edit"), ("branch", "branch"), ("remove", "remove"))
    )
    who = "your message" if turn.role is Role.USER else "reply"
    desk.show_note(f"Turn {_number(desk, turn)}, {who}: {hints} · {desk.keys.hint('stop')} back")


def _number(desk: ChatScreen, turn: Turn) -> int:
    return [other.id for other in desk.controller.conversation.turns].index(turn.id) + 1


def _undo(desk: ChatScreen, argument: str) -> None:
    undone = desk.controller.revisions.undo()
    desk.show_note(f"Taken back: {undone}." if undone else "There is nothing to take back here.")


def _busy(desk: ChatScreen) -> str:
    return desk.controller.refusals.to_change()


def _no_turn(desk: ChatScreen) -> str:
    return _busy(desk) or ("" if desk.controller.conversation.turns else "There is no turn yet.")


TURN_COMMANDS = (
    Command(
        name="edit",
        title="Edit",
        help="edit a turn, yours or the model's; the old one stays as a branch",
        handler=_edit,
        argument=NUMBER,
        keys=("alt+e",),
        refusal=_no_turn,
    ),
    Command(
        name="branch",
        title="Branch",
        help="go on from an earlier turn; what followed stays as a branch",
        handler=_branch,
        argument=NUMBER,
        keys=("alt+b",),
        refusal=_no_turn,
    ),
    Command(
        name="remove",
        title="Remove a turn",
        help="take one turn out, yours or the model's; what followed it stays",
        handler=_remove,
        argument=NUMBER,
        keys=("alt+x",),
        refusal=_no_turn,
    ),
    Command(
        name="tree",
        title="Branches",
        help="the tree of this conversation's branches",
        handler=_tree,
        keys=("ctrl+b",),
        refusal=lambda desk: _busy(desk) or ("" if desk.controller.conversation.all_turns else "There is no turn yet."),
    ),
    Command(
        name="older",
        title="Version before",
        help="show the version before, where a turn has several",
        handler=lambda desk, argument: _step(desk, argument, -1),
        keys=("alt+left",),
        refusal=_no_turn,
    ),
    Command(
        name="newer",
        title="Version after",
        help="show the version after, where a turn has several",
        handler=lambda desk, argument: _step(desk, argument, 1),
        keys=("alt+right",),
        refusal=_no_turn,
    ),
    Command(
        name="previous",
        title="Select the turn before",
        help="select the turn before, for edit, branch and copy",
        handler=lambda desk, argument: _select(desk, argument, -1),
        keys=("alt+up",),
        in_palette=False,
    ),
    Command(
        name="next",
        title="Select the turn after",
        help="select the turn after",
        handler=lambda desk, argument: _select(desk, argument, 1),
        keys=("alt+down",),
        in_palette=False,
    ),
    Command(
        name="undo",
        title="Undo",
        help="take back the last message, edit, branch, renaming, removal or deletion",
        handler=_undo,
        keys=("alt+u",),
        refusal=_busy,
    ),
)
