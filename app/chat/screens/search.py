"""Searching in all conversations while the words are written; the chosen hit is the screen's result.

Owns the input and the list. Asks its desk; what was found is told by `show_hits`.
"""

from __future__ import annotations

import time
from typing import ClassVar, Protocol

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.timer import Timer
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option

from app.chat.engine_port import Role
from app.chat.plain_text import one_line
from app.chat.screens.answer import AnswerScreen
from app.chat.screens.conversations import when
from app.chat.search import Hit

_REST_S = 0.12
_SOURCES: dict[str, str] = {Role.USER: "you", Role.ASSISTANT: "reply"}


class SearchDesk(Protocol):
    """Where to look."""

    def search(self, text: str) -> None: ...


class SearchScreen(AnswerScreen[Hit | None]):
    """Looks for what is written."""

    CSS_PATH = "search.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,ctrl+f", "leave", "Back")]

    def __init__(self, text: str, *, desk: SearchDesk) -> None:
        super().__init__()
        self._text = text
        self._desk = desk
        self._hits: tuple[Hit, ...] = ()
        self._rest: Timer | None = None
        self._asked = ""

    def compose(self) -> ComposeResult:
        with Vertical() as frame:
            frame.border_title = "Search in all conversations"
            frame.border_subtitle = "Enter opens · Esc back"
            yield Input(value=one_line(self._text), placeholder='words, or "a whole phrase"')
            yield Static("", classes="count")
            yield OptionList()

    def on_mount(self) -> None:
        self.query_one(OptionList).can_focus = False
        self._look()

    def on_input_changed(self, event: Input.Changed) -> None:
        event.stop()
        if self._rest is not None:
            self._rest.stop()
        self._rest = self.set_timer(_REST_S, self._look)

    def _look(self) -> None:
        text = self.query_one(Input).value
        if text.strip() and text != self._asked:
            self._asked = text
            self._desk.search(text)
        elif not text.strip():
            self._asked = ""
            self.show_hits("", ())

    def show_hits(self, text: str, hits: tuple[Hit, ...]) -> None:
        """Shows what was found; what belongs to an earlier text is left aside."""
        if text != self._asked:
            return
        self._hits = hits
        now_s = time.time()
        options = self.query_one(OptionList)
        options.clear_options()
        options.add_options([Option(_words(hit, now_s)) for hit in hits])
        options.highlighted = 0 if hits else None
        found = f"{len(hits):,} found" if hits else "Nothing was found."
        self.query_one(".count", Static).update(Content(found if text else ""))

    def on_key(self, event: events.Key) -> None:
        options = self.query_one(OptionList)
        moves = {
            "up": options.action_cursor_up,
            "down": options.action_cursor_down,
            "pageup": options.action_page_up,
            "pagedown": options.action_page_down,
        }
        if event.key in moves:
            event.stop()
            moves[event.key]()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        self._choose(self.query_one(OptionList).highlighted)

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        event.stop()
        self._choose(event.option_index)

    def _choose(self, place: int | None) -> None:
        if place is not None and place < len(self._hits):
            self.dismiss(self._hits[place])

    def action_leave(self) -> None:
        """Goes back without a choice."""
        self.dismiss(None)


def _words(hit: Hit, now_s: float) -> Content:
    who = _SOURCES.get(hit.role, hit.role)
    head = f"{one_line(hit.title) or 'Untitled'} · {who} · {when(hit.created_at, now_s)}"
    return Content.assemble((head, "dim"), "\n  ", hit.before, (hit.found, "bold reverse"), hit.after)
