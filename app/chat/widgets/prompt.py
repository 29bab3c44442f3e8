"""The input: several lines, grows with what is written, walks through earlier prompts.

Owns the keys of writing and sending. Hands over what was sent; does not know to whom.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable
from typing import ClassVar, Protocol

from textual import events
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.widgets import TextArea
from textual.widgets.text_area import Selection

from app.chat.attachments import is_long
from app.chat.completion import Offer
from app.chat.messages import LeaveWanted, LongTextPasted, PromptEdited
from app.chat.plain_text import neutralise, one_line, shortened, with_newlines
from app.chat.prompt_history import PromptHistory

_FRAME_COLUMNS = 4
_NEWLINE_KEYS = ("shift+enter", "ctrl+j", "alt+enter", "ctrl+enter")


class Offers(Protocol):
    """What can complete the word before the cursor, as the input drives it."""

    @property
    def is_open(self) -> bool: ...
    @property
    def before(self) -> str:
        """The text before the cursor that they complete."""
        ...

    @property
    def chosen(self) -> Offer | None: ...
    def move(self, step: int) -> None: ...
    def close(self) -> None: ...


class Prompt(TextArea):
    """Enter sends, Shift+Enter or Ctrl+J begins a new line; what is pasted is only ever inserted."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "submit", "Send", show=False),
        Binding(",".join(_NEWLINE_KEYS), "newline", "New line", show=False),
        # As in a shell, where no command has these keys.
        Binding("alt+b", "cursor_word_left", "Word left", show=False),
        Binding("alt+f", "cursor_word_right", "Word right", show=False),
    ]

    def __init__(self, offers: Offers) -> None:
        super().__init__(
            soft_wrap=True,
            show_line_numbers=False,
            tab_behavior="focus",
            highlight_cursor_line=False,
            placeholder=Content("Write a message"),
        )
        self.cursor_blink = False  # A chat that waits draws nothing.
        self.earlier_prompts = PromptHistory()
        self._recalled: str | None = None
        self._offers = offers
        self._title = ""
        self._words = ""
        self.when_submitted: Callable[[str], None] | None = None

    async def _on_key(self, event: events.Key) -> None:
        # What was typed in one go may be ahead of the list: that one then completes what is no longer there.
        is_fresh = self._offers.is_open and self._offers.before == self.text_before_cursor
        if is_fresh and self._takes_offer_key(event.key):
            event.prevent_default()
            event.stop()
        elif event.key == "enter" or event.key in _NEWLINE_KEYS:
            # The text area would put a newline in before the binding is looked at.
            event.prevent_default()
            event.stop()
            if event.key == "enter":
                self.action_submit()
            else:
                self.action_newline()
        elif event.key == "ctrl+d" and not self.text:
            event.prevent_default()
            event.stop()
            self.post_message(LeaveWanted())
        elif self._is_own_key(event.key):
            # The text area would leave them to be looked up elsewhere, and what was typed behind them in one go would
            # come first.
            event.prevent_default()
            event.stop()
            await self.run_action(self._bindings.get_bindings_for_key(event.key)[0].action)
        elif event.character is not None and unicodedata.category(event.character[-1:] or " ") == "Cf":
            # Joiners and the like are no keys for the text area, but emoji and several scripts need them.
            event.prevent_default()
            event.stop()
            self.insert_text(neutralise(event.character))

    def _is_own_key(self, key: str) -> bool:
        """Whether it is bound here; the keys that only move the choice in an open list were taken already."""
        return key in self._bindings.key_to_bindings

    def _takes_offer_key(self, key: str) -> bool:
        """Whether this key was meant for the list of offers; if so, it has been done."""
        offer = self._offers.chosen
        if key in ("up", "down"):
            self._offers.move(-1 if key == "up" else 1)
        elif key == "tab" and offer is not None:
            self.take(offer)
        elif key == "enter" and offer is not None:
            self.take(offer)
            if offer.sends:
                self.action_submit()
        else:
            return False
        return True

    def take(self, offer: Offer) -> None:
        """Completes the word before the cursor."""
        row, column = self.cursor_location
        self.selection = Selection((row, column - len(offer.typed)), (row, column))
        self.insert_text(offer.text)
        self._offers.close()

    @property
    def text_before_cursor(self) -> str:
        """All that stands before the cursor."""
        return self.get_text_range((0, 0), self.cursor_location)

    async def _on_paste(self, event: events.Paste) -> None:
        event.prevent_default()
        event.stop()
        text = with_newlines(event.text)  # Terminals paste every line end as the Enter key has it.
        if is_long(text):
            self.post_message(LongTextPasted(text))
        else:
            self.insert_text(neutralise(text))

    def on_text_area_changed(self, event: TextArea.Changed) -> None:
        event.stop()
        if self.text != self._recalled:
            self.earlier_prompts.leave()
        self.post_message(PromptEdited())

    def insert_text(self, text: str) -> None:
        """Puts text where the cursor is, in place of what is selected."""
        if (result := self._replace_via_keyboard(text, *self.selection)) is not None:
            self.move_cursor(result.end_location)

    def set_text(self, text: str) -> None:
        """Replaces everything and puts the cursor at the end."""
        self.load_text(neutralise(text))
        self.move_cursor(self.document.end)

    def show_title(self, title: str) -> None:
        """Says in the frame which conversation this is, unless more has to be said there."""
        self._title = one_line(title)
        self._draw_frame()

    def say(self, words: str) -> None:
        """Says something in the frame; nothing: which conversation this is, again."""
        self._words = words
        self._draw_frame()

    def on_resize(self) -> None:
        self._draw_frame()

    def _draw_frame(self) -> None:
        room = self.size.width - _FRAME_COLUMNS
        words = self._words or (shortened(self._title, room) if room > 0 else "")
        self.border_title = Content(words) if words else None  # a text would be read as markup

    def action_submit(self) -> None:
        """Sends, at once: what was typed behind it in one go belongs to the next message."""
        if self.when_submitted is not None:
            self.when_submitted(self.text)

    def action_newline(self) -> None:
        """Begins a new line."""
        self.insert_text("\n")

    @property
    def unsent(self) -> str:
        """What the user is writing: while earlier prompts are walked, what was left for them."""
        draft = self.earlier_prompts.draft
        return self.text if draft is None or self.text != self._recalled else draft

    def sent(self) -> None:
        """What stood here was taken; what was left for it is here again."""
        draft = self.unsent if self.text == self._recalled else ""
        if self.text.strip():
            self.earlier_prompts.add(self.text)
        self._recalled = None
        if draft:
            self.set_text(draft)
        else:
            self.clear()

    def action_cursor_up(self, select: bool = False) -> None:
        """Up a line; from the first line to the earlier prompt."""
        if select or not self.cursor_at_first_line:
            super().action_cursor_up(select)
            return
        self._recall(self.earlier_prompts.earlier(self.text))

    def action_cursor_down(self, select: bool = False) -> None:
        """Down a line; from the last line to the later prompt."""
        if select or not self.cursor_at_last_line:
            super().action_cursor_down(select)
            return
        self._recall(self.earlier_prompts.later())

    def _recall(self, prompt: str | None) -> None:
        if prompt is not None:
            self._recalled = neutralise(prompt)
            self.set_text(prompt)
