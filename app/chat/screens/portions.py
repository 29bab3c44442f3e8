"""Reading a long conversation: a portion of its turns is drawn, and another one when the user goes there.

Owns which portion comes next. A conversation of any length so costs the screen no more than a short one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from app.chat.widgets.transcript import SHOWN_TURNS

if TYPE_CHECKING:
    from app.chat.screens.chat import ChatScreen

_OVERLAP = SHOWN_TURNS // 2


class Portions:
    """Belongs to one screen."""

    def __init__(self, screen: ChatScreen) -> None:
        self._screen = screen

    def top(self) -> None:
        """Goes to the beginning."""
        transcript = self._screen.transcript
        if transcript.num_before:
            self._show(0)
        transcript.release_anchor()
        transcript.call_after_refresh(transcript.scroll_home, animate=False)

    def end(self) -> None:
        """Goes to the end, and stays there."""
        if self._screen.transcript.num_behind:
            self._show(None)
        self._screen.transcript.anchor()

    def page(self, direction: int) -> None:
        """Scrolls a page up (-1) or down (1); past the last turn that is drawn, to the portion there."""
        transcript = self._screen.transcript
        if direction < 0 and transcript.num_before and transcript.scroll_y <= 0:
            self._show_beside(transcript.num_before, max(0, transcript.num_before - _OVERLAP))
        elif direction > 0 and transcript.num_behind and transcript.scroll_y >= transcript.max_scroll_y:
            last = len(self._screen.controller.conversation.turns) - transcript.num_behind - 1
            self._show_beside(last, transcript.num_before + _OVERLAP)
        elif direction < 0:
            transcript.scroll_page_up(animate=False)
        else:
            transcript.scroll_page_down(animate=False)

    def go_to(self, turn_id: str) -> None:
        """Draws the portion around a turn where it is not drawn, and selects it."""
        if self._screen.transcript.hides(turn_id):
            ids = [turn.id for turn in self._screen.controller.conversation.turns]
            self._show(max(0, ids.index(turn_id) - _OVERLAP) if turn_id in ids else None)
        self._screen.transcript.select(turn_id)

    def select(self, direction: int) -> str | None:
        """Selects the turn before (-1) or behind (1) the one that is selected, drawn or not."""
        transcript = self._screen.transcript
        turns = self._screen.controller.conversation.turns
        place = next((place for place, turn in enumerate(turns) if turn.id == transcript.selected_turn), len(turns))
        place = max(0, place + direction)
        if place < len(turns):
            self.go_to(turns[place].id)
        else:
            transcript.select(None)
            self.end()
        return transcript.selected_turn

    def _show_beside(self, place: int, first: int) -> None:
        self._show(first)
        self._screen.transcript.scroll_to_turn(self._screen.controller.conversation.turns[place].id)

    def _show(self, first: int | None) -> None:
        controller = self._screen.controller
        self._screen.transcript.show(
            controller.conversation_now, live_turn_id=controller.active_turn_id, first=first, places=controller.places
        )
