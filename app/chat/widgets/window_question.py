"""The question that is asked when a conversation no longer fits the model's window.

Owns the wording and the keys. Posts the answer; does not carry it out.
"""

from __future__ import annotations

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.widgets import OptionList, Static
from textual.widgets.option_list import Option

from app.chat.events import WindowFull
from app.chat.messages import WindowAnswered

_DROP, _LEAVE = "drop", "leave"


class WindowQuestion(Vertical):
    """Hidden until a window is full."""

    DEFAULT_CSS = """
    WindowQuestion {
        height: auto;
        display: none;
        border: round $warning;
        padding: 0 1;
        &.-shown { display: block; }
        & > OptionList, & > OptionList:focus {
            height: auto;
            max-height: 6;
            border: none;
            background: transparent;
            padding: 0;
        }
    }
    """

    def compose(self) -> ComposeResult:
        yield Static(Content(""))
        yield OptionList()

    def ask(self, window: WindowFull) -> None:
        """Asks, and takes the keys until there is an answer."""
        figures = f"{window.used_tokens:,} of {window.context_size:,} tokens"
        options = self.query_one(OptionList)
        options.clear_options()
        smaller = window.smaller
        if smaller is not None:
            text = f"The window is full: {figures}. The system prompt stays in any case."
            drop = f"Go on without the oldest {smaller.num_dropped} turns (frees {smaller.freed_tokens:,} tokens)"
            options.add_option(Option(Content(drop), id=_DROP))
        else:
            text = (
                f"This needs {figures} and nothing older can be left out. "
                "Shorten the message, or start with a larger window: -c SIZE."
            )
        options.add_option(Option(Content("Stop here (Esc)"), id=_LEAVE))
        options.highlighted = 0
        self.query_one(Static).update(Content(text))
        self.add_class("-shown")
        options.focus()

    def close(self) -> None:
        """There is nothing to ask any more."""
        self.remove_class("-shown")

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        event.stop()
        self.post_message(WindowAnswered(drops_oldest=event.option_id == _DROP))
