"""What the keys do, on one page."""

from __future__ import annotations

import textwrap
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Static

_KEYS = (
    ("Enter", "send"),
    ("Ctrl+J", "new line (also Shift+Enter)"),
    ("Up, Down", "earlier and later prompts"),
    ("Esc", "stop the reply, keep what there is"),
    ("Ctrl+R", "another reply to the last question"),
    ("Ctrl+G", "go on with a stopped reply"),
    ("Ctrl+T", "open or fold the thinking"),
    ("Ctrl+N", "new conversation"),
    ("Ctrl+O", "earlier conversations"),
    ("PgUp, PgDn", "scroll; Ctrl+Home, Ctrl+End"),
    ("Ctrl+P", "commands and themes"),
    ("Ctrl+C", "copy what is selected, else leave"),
    ("Ctrl+Q", "leave; nothing is lost"),
)
_FRAME_WIDTH = 10


def keys_text(width: int) -> str:
    """The keys and what they do, in two columns of at most `width` together."""
    indent = " " * (max(len(key) for key, _ in _KEYS) + 2)
    return "\n".join(
        textwrap.fill(
            meaning, width=max(width, 2 * len(indent)), initial_indent=f"{key:<{len(indent)}}", subsequent_indent=indent
        )
        for key, meaning in _KEYS
    )


class KeysScreen(ModalScreen[None]):
    """Shows the keys until one is pressed."""

    CSS_PATH = "keys.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,enter,f1,q", "leave", "Back")]

    def compose(self) -> ComposeResult:
        with VerticalScroll() as frame:
            frame.border_title = "Keys"
            frame.border_subtitle = "Esc back"
            yield Static(Content(keys_text(self.app.size.width - _FRAME_WIDTH)))

    def action_leave(self) -> None:
        """Goes back."""
        self.dismiss()
