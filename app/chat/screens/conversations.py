"""The list of earlier conversations, the latest first; the chosen one's id is the screen's result."""

from __future__ import annotations

import time
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import OptionList
from textual.widgets.option_list import Option

from app.chat.plain_text import one_line
from app.chat.store import ConversationLine

_DAY_S = 24 * 3600


class ConversationsScreen(ModalScreen[str | None]):
    """Lets the user choose."""

    CSS_PATH = "conversations.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,ctrl+o", "leave", "Back")]

    def __init__(self, lines: tuple[ConversationLine, ...], *, shown: str) -> None:
        super().__init__()
        self._lines = lines
        self._shown = shown

    def compose(self) -> ComposeResult:
        with Vertical() as frame:
            frame.border_title = "Conversations"
            frame.border_subtitle = "Enter opens · Esc back"
            now_s = time.time()
            yield OptionList(
                *[
                    Option(Content(_words(line, now_s=now_s, is_shown=line.id == self._shown)), id=line.id)
                    for line in self._lines
                ]
            )

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        event.stop()
        self.dismiss(event.option_id)

    def action_leave(self) -> None:
        """Goes back without a choice."""
        self.dismiss(None)


def _words(line: ConversationLine, *, now_s: float, is_shown: bool) -> str:
    facts = [when(line.updated_at, now_s)]
    if line.num_turns:
        facts.append(f"{line.num_turns} turns")
    if line.is_broken_off:
        facts.append("broken off")
    if line.has_draft:
        facts.append("unsent draft")
    if is_shown:
        facts.append("shown now")
    return f"{one_line(line.title) or 'Untitled'}\n  {' · '.join(facts)}"


def when(moment_s: float, now_s: float) -> str:
    """A moment in few words: the time of today, or the date."""
    moment = time.localtime(moment_s)
    if 0 <= now_s - moment_s < _DAY_S and moment.tm_yday == time.localtime(now_s).tm_yday:
        return time.strftime("%H:%M", moment)
    return time.strftime("%Y-%m-%d", moment)
