"""The status line at the foot of the chat."""

from __future__ import annotations

from textual import events
from textual.content import Content
from textual.widgets import Static

from app.chat.status import StatusFigures, status_line


class StatusBar(Static):
    """Shows figures in the width there is."""

    DEFAULT_CSS = """
    StatusBar {
        height: 1;
        padding: 0 1;
        color: $text-muted;
        text-wrap: nowrap;
    }
    """

    def __init__(self) -> None:
        super().__init__(Content(""))
        self._figures = StatusFigures()

    def show(self, figures: StatusFigures) -> None:
        """Shows these figures from now on."""
        self._figures = figures
        self._draw()

    def on_resize(self, event: events.Resize) -> None:
        self._draw()

    def _draw(self) -> None:
        self.update(Content(status_line(self._figures, max(1, self.content_size.width))), layout=False)
