"""The tree of a conversation's branches, one line a turn; the chosen turn is the screen's result."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.widgets import OptionList
from textual.widgets.option_list import Option

from app.chat.branches import TreeLine, tree_lines
from app.chat.conversation import Conversation
from app.chat.engine_port import Role
from app.chat.plain_text import columns_of, one_line, shortened
from app.chat.screens.answer import AnswerScreen

_EXCERPT_CHARS = 400
_BEGINNING_COLUMNS = 24
_FRAME_COLUMNS = 6
_FRAME_SHARE = 0.9
_MAX_COLUMNS = 100
_MAX_INDENT = 8


@dataclass(frozen=True, kw_only=True)
class BranchChoice:
    """Which turn was chosen. `ends_there`: the branch is to end with it, so that the next message follows it."""

    turn_id: str
    ends_there: bool


class BranchesScreen(AnswerScreen[BranchChoice | None]):
    """Lets the user walk the tree."""

    CSS_PATH = "branches.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,ctrl+b", "leave", "Back"),
        Binding("b", "branch", "Branch here"),
    ]

    def __init__(self, conversation: Conversation) -> None:
        super().__init__()
        self._lines = tree_lines(conversation)

    def compose(self) -> ComposeResult:
        columns = min(int(_FRAME_SHARE * self.app.size.width), _MAX_COLUMNS) - _FRAME_COLUMNS
        with Vertical() as frame:
            frame.border_title = "Branches"
            frame.border_subtitle = "Enter shows · b goes on from there · Esc" if columns > 44 else "Enter · b · Esc"
            yield OptionList(*[Option(Content(_words(line, columns))) for line in self._lines])

    def on_mount(self) -> None:
        shown = [place for place, line in enumerate(self._lines) if line.is_shown]
        self.query_one(OptionList).highlighted = shown[-1] if shown else 0

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        event.stop()
        self.dismiss(BranchChoice(turn_id=self._lines[event.option_index].turn.id, ends_there=False))

    def action_branch(self) -> None:
        """Chooses the turn as the last of its branch."""
        place = self.query_one(OptionList).highlighted
        if place is not None:
            self.dismiss(BranchChoice(turn_id=self._lines[place].turn.id, ends_there=True))

    def action_leave(self) -> None:
        """Goes back without a choice."""
        self.dismiss(None)


def _words(line: TreeLine, columns: int) -> str:
    turn = line.turn
    indent = "│ " * min(line.depth, _MAX_INDENT)
    mark = "●" if line.is_shown else "○"
    who = "you" if turn.role is Role.USER else "reply"
    head = f"{indent}{mark} {who:<5} "
    return head + _excerpt(line, columns - columns_of(head))


def _excerpt(line: TreeLine, columns: int) -> str:
    """The beginning of a turn; of one that begins like another in its place, where it goes another way too."""
    turn, words = line.turn, line.words
    if not words:
        names = ", ".join(one_line(attachment.name) for attachment in turn.attachments)
        return shortened(names or f"({turn.state})", columns)
    if line.num_shared == len(words):  # another goes on from where this one ends, if not the same
        end = " (again)" if line.is_repeated else " (ends)"
        return shortened(words, columns - columns_of(end)) + end
    start = words.rfind(" ", 0, line.num_shared) + 1
    while columns_of(words[start : line.num_shared]) > columns // 3:
        start += 1
    if columns_of(words[: line.num_shared + 1]) < columns or not start:
        return shortened(words[:_EXCERPT_CHARS], columns)
    beginning = shortened(words[:start], min(_BEGINNING_COLUMNS, columns // 3))
    return shortened(f"{beginning} {words[start:][:_EXCERPT_CHARS]}", columns)
