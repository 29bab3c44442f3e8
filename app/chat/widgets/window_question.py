"""The question that is asked when a conversation no longer fits the model's window.

Owns the wording and the keys. Posts the answer; does not carry it out. What is typed meanwhile goes to the input.
"""

from __future__ import annotations

from textual import events
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.widgets import OptionList, Static
from textual.widgets.option_list import Option

from app.chat.events import WindowFull
from app.chat.messages import PromptTyped, WindowAnswered, WindowChoice
from app.chat.window_fit import summary_tokens


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
            max-height: 12;
            border: none;
            background: transparent;
            padding: 0;
        }
    }
    """

    def __init__(self) -> None:
        super().__init__()
        self._window: WindowFull | None = None
        self._enlarging = ""
        self._can_enlarge = False

    def compose(self) -> ComposeResult:
        yield Static(Content(""))
        yield OptionList()

    def ask(self, window: WindowFull) -> None:
        """Asks, and takes the keys until there is an answer."""
        self._window, self._enlarging, self._can_enlarge = window, "Enlarge the window (reckoning…)", False
        figures = f"{window.used_tokens:,} of {window.context_size:,} tokens"
        if window.smaller is not None:
            text = f"The window is full: {figures}. The system prompt stays in any case."
        elif window.has_begun:
            text = f"The reply fills the window: {figures}, and nothing older can be left out. What stands is kept."
        else:
            text = (
                f"This needs {figures} and nothing older can be left out. Shorten the message, or enlarge the window."
            )
        self._draw()
        options = self.query_one(OptionList)
        options.highlighted = next(
            place for place in range(options.option_count) if not options.get_option_at_index(place).disabled
        )
        self.query_one(Static).update(Content(text))
        self.add_class("-shown")
        options.focus()

    def take_keys(self) -> None:
        """The keys are the question's again, where it is asked and not while a summary is written."""
        if self.has_class("-shown"):
            self.query_one(OptionList).focus()

    def offer_larger(self, words: str, *, is_possible: bool) -> None:
        """What enlarging the window comes to, or why it can't be done."""
        self._enlarging, self._can_enlarge = words, is_possible
        if self._window is not None:
            options = self.query_one(OptionList)
            chosen = options.highlighted_option.id if options.highlighted_option is not None else None
            if is_possible and self._window.smaller is None:
                chosen = WindowChoice.ENLARGE  # the only way to go on
            self._draw()
            options.highlighted = options.get_option_index(chosen) if chosen is not None else None

    def close(self) -> None:
        """There is nothing to ask any more."""
        self._window = None
        self.remove_class("-shown")

    def _draw(self) -> None:
        assert self._window is not None, "only a question that is asked is drawn"
        smaller = self._window.smaller
        rows: list[Option] = []
        if smaller is not None:
            drop = f"Go on without the oldest {smaller.num_dropped} turns (frees {smaller.freed_tokens:,} tokens)"
            rows.append(Option(Content(drop), id=WindowChoice.DROP))
            most = summary_tokens(self._window.context_size)
            summarise = f"Put them into a summary first: {smaller.freed_tokens:,} tokens become {most} at most"
            rows.append(Option(Content(summarise), id=WindowChoice.SUMMARISE))
        rows.append(Option(Content(self._enlarging), id=WindowChoice.ENLARGE, disabled=not self._can_enlarge))
        rows.append(Option(Content("Stop here (Esc)"), id=WindowChoice.LEAVE))
        options = self.query_one(OptionList)
        options.clear_options()
        options.add_options(rows)

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        event.stop()
        if event.option_id is not None:
            self.post_message(WindowAnswered(WindowChoice(event.option_id)))

    def on_key(self, event: events.Key) -> None:
        """What is written while the question stands is meant for the input."""
        if event.is_printable and event.character is not None:
            event.stop()
            event.prevent_default()
            self.post_message(PromptTyped(event.character))

    def on_paste(self, event: events.Paste) -> None:
        """The same for what is pasted."""
        event.stop()
        self.post_message(PromptTyped(event.text))
