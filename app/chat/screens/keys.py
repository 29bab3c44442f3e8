"""What the keys and the slash words do, on one page."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.widgets import Static

from app.chat.commands.key_table import KeyTable
from app.chat.commands.registry import COMMANDS
from app.chat.screens.answer import AnswerScreen

_FRAME_SHARE = 0.9
_FRAME_COLUMNS = 6
_WIDE = 62


@dataclass(frozen=True, kw_only=True)
class _Row:
    """A key, a slash word with its argument, and what they do; either of the first two may be missing."""

    key: str = ""
    usage: str = ""
    help: str


_WRITING = (
    _Row(key="Enter", help="send"),
    _Row(key="Ctrl+J", help="new line (also Shift+Enter)"),
    _Row(key="Up, Down", help="earlier and later prompts"),
    _Row(key="Tab", help="complete a /command or an @file"),
    _Row(usage="@FILE", help="put a text file beside the message"),
    _Row(key="Ctrl+C", help="copy what is selected, else stop the reply; twice: leave"),
    _Row(key="Ctrl+D", help="leave, where nothing is written"),
    _Row(usage="//text", help="send /text as a message"),
)


def keys_text(keys: KeyTable, width: int) -> str:
    """Every key and command in columns of at most `width` together: key, slash word, meaning."""
    rows = [
        *_WRITING,
        *(_Row(key=keys.shown(command), usage=command.usage, help=command.help) for command in COMMANDS),
    ]
    return "\n".join(_lines(rows, width))


def _lines(rows: Sequence[_Row], width: int) -> list[str]:
    key_columns = max(len(row.key) for row in rows) + 2
    usage_columns = max(len(row.usage) for row in rows) + 2
    if width < _WIDE:
        return [_narrow(row, key_columns, width) for row in rows]
    indent = " " * (key_columns + usage_columns)
    return [
        textwrap.fill(
            row.help,
            width=width,
            initial_indent=f"{row.key:<{key_columns}}{row.usage:<{usage_columns}}",
            subsequent_indent=indent,
        )
        for row in rows
    ]


def _narrow(row: _Row, key_columns: int, width: int) -> str:
    words = f"{row.usage}: {row.help}" if row.usage else row.help
    return textwrap.fill(
        words,
        width=max(width, 2 * key_columns),
        initial_indent=f"{row.key:<{key_columns}}",
        subsequent_indent=" " * key_columns,
    )


class KeysScreen(AnswerScreen[None]):
    """Shows the keys until one is pressed."""

    CSS_PATH = "keys.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,enter,f1,q", "leave", "Back")]

    def __init__(self, keys: KeyTable) -> None:
        super().__init__()
        self._keys = keys

    def compose(self) -> ComposeResult:
        with VerticalScroll() as frame:
            frame.border_title = "Keys and commands"
            frame.border_subtitle = "Esc back"
            yield Static(Content(keys_text(self._keys, int(_FRAME_SHARE * self.app.size.width) - _FRAME_COLUMNS)))

    def action_leave(self) -> None:
        """Goes back."""
        self.dismiss()
