"""A screen that lies over the chat until it has one answer.

Owns the rule that there is only one: keys that were pressed on, or a click, may come behind the one that closed it.
"""

from __future__ import annotations

from textual.await_complete import AwaitComplete
from textual.screen import ModalScreen, ScreenResultType

from app.chat.widgets.patient_drawing import PatientDrawing


class AnswerScreen(ModalScreen[ScreenResultType], PatientDrawing):
    """What every screen over the chat is."""

    def dismiss(self, result: ScreenResultType | None = None) -> AwaitComplete:
        """Closes with this answer; does nothing where it is closed already, or lies under another."""
        return super().dismiss(result) if self.is_active else AwaitComplete()
