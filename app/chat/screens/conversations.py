"""The list of earlier conversations, the latest first. The screen's result: one of them, and what becomes of it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.widgets import OptionList
from textual.widgets.option_list import Option

from app.chat.plain_text import one_line
from app.chat.screens.answer import AnswerScreen
from app.chat.store_reading import ConversationLine

if TYPE_CHECKING:
    from app.chat.controller import ChatController

_WIDE = 60
_DAY_S = 24 * 3600


@dataclass(frozen=True, kw_only=True)
class ConversationChoice:
    """Which conversation was chosen, and what is to become of it. `place`: where in the list, which is shown again."""

    line: ConversationLine
    act: Callable[[ChatController], None]
    place: int | None = None

    def place_in(self, lines: tuple[ConversationLine, ...]) -> int:
        """Where the list stands when it is shown again: on the same conversation, or the one now in its place."""
        own = next((place for place, line in enumerate(lines) if line.id == self.line.id), self.place or 0)
        return min(own, len(lines) - 1)


class ConversationsScreen(AnswerScreen[ConversationChoice | None]):
    """Lets the user choose one to open, to pin or to delete."""

    CSS_PATH = "conversations.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,ctrl+o", "leave", "Back"),
        Binding("p", "pin", "Pin"),
        Binding("d,delete", "delete", "Delete"),
    ]

    def __init__(self, lines: tuple[ConversationLine, ...], *, shown: str, place: int = 0) -> None:
        """`shown`: the id of the conversation on the screen; `place`: which line is highlighted first."""
        super().__init__()
        self._lines = lines
        self._shown = shown
        self._place = place

    def compose(self) -> ComposeResult:
        with Vertical() as frame:
            frame.border_title = "Conversations"
            is_wide = self.app.size.width >= _WIDE
            frame.border_subtitle = "Enter opens · p pins · d deletes · Esc back" if is_wide else "Enter · p · d · Esc"
            now_s = time.time()
            yield OptionList(*[Option(Content(self._words(line, now_s)), id=line.id) for line in self._lines])

    def on_mount(self) -> None:
        self.query_one(OptionList).highlighted = self._place

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        event.stop()
        line = self._lines[event.option_index]
        self.dismiss(ConversationChoice(line=line, act=lambda controller: controller.library.open(line.id)))

    def _words(self, line: ConversationLine, now_s: float) -> str:
        facts = [when(line.updated_at, now_s)]
        is_shown = line.id == self._shown
        if line.num_turns:
            facts.append(f"{line.num_turns} turns")
        if line.is_broken_off:
            facts.append("broken off")
        if line.is_being_written:
            facts.append("being written")
        if line.has_draft:
            facts.append("unsent draft")
        if line.is_pinned:
            facts.insert(0, "pinned")
        if line.is_elsewhere:
            facts.append("in another window")
        if is_shown:
            facts.append("shown now")
        return f"{one_line(line.title) or 'Untitled'}\n  {' · '.join(facts)}"

    def action_pin(self) -> None:
        """Pins the conversation to the head of the list, or lets it go."""
        self._choose(lambda line, desk: desk.revisions.pin(line.id, is_pinned=not line.is_pinned))

    def action_delete(self) -> None:
        """Deletes the conversation."""
        self._choose(lambda line, desk: desk.revisions.delete(line.id, line.title))

    def _choose(self, act: Callable[[ConversationLine, ChatController], None]) -> None:
        place = self.query_one(OptionList).highlighted
        if place is None:
            return
        line = self._lines[place]

        def act_and_list(controller: ChatController) -> None:
            act(line, controller)
            controller.library.list_all()

        self.dismiss(ConversationChoice(line=line, act=act_and_list, place=place))

    def action_leave(self) -> None:
        """Goes back without a choice."""
        self.dismiss(None)


def when(moment_s: float, now_s: float) -> str:
    """A moment in few words: the time of today, or the date."""
    moment = time.localtime(moment_s)
    if 0 <= now_s - moment_s < _DAY_S and moment.tm_yday == time.localtime(now_s).tm_yday:
        return time.strftime("%H:%M", moment)
    return time.strftime("%Y-%m-%d", moment)
