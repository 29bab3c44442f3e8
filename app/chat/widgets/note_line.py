"""The line above the input on which the chat says what has to be known now."""

from __future__ import annotations

from textual.content import Content
from textual.widgets import Static

from app.chat.plain_text import one_line


class NoteLine(Static):
    """Shows the latest note until it is cleared; takes no room while there is none."""

    DEFAULT_CSS = """
    NoteLine {
        height: auto;
        max-height: 6;
        padding: 0 1;
        color: $text-muted;
        display: none;
        &.-shown { display: block; }
        &.-warning { color: $text-warning; }
    }
    """

    def __init__(self) -> None:
        super().__init__(Content(""))

    def show(self, text: str, *, is_warning: bool = False) -> None:
        """Shows a note in place of the one before."""
        self.set_class(is_warning, "-warning")
        self.add_class("-shown")
        self.update(Content(("! " if is_warning else "") + one_line(text)))

    def clear(self) -> None:
        """Takes the note away."""
        self.remove_class("-shown")
        self.update(Content(""))
