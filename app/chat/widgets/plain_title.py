"""What a frame's border says otherwise, as a line of text: for people who hear the screen."""

from __future__ import annotations

from textual.content import Content
from textual.widgets import Static


class PlainTitle(Static):
    """Shown only where frames are not."""

    DEFAULT_CSS = """
    PlainTitle { display: none; height: auto; }
    """

    def __init__(self, text: str) -> None:
        super().__init__(Content(text))
