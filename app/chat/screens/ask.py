"""A question that is answered by one line of text; the answer is the screen's result, None where it was left."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.widgets import Input

from app.chat.plain_text import one_line
from app.chat.screens.answer import AnswerScreen


class AskScreen(AnswerScreen[str | None]):
    """Asks."""

    CSS_PATH = "ask.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "leave", "Back")]

    def __init__(self, question: str, *, initial: str = "") -> None:
        super().__init__()
        self._question = question
        self._initial = initial

    def compose(self) -> ComposeResult:
        with Vertical() as frame:
            frame.border_title = one_line(self._question).replace("[", "\\[")
            frame.border_subtitle = "Enter · Esc back"
            yield Input(value=one_line(self._initial))

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        if event.value.strip():
            self.dismiss(event.value.strip())

    def action_leave(self) -> None:
        """Goes back without an answer."""
        self.dismiss(None)
