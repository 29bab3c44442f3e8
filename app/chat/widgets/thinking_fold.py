"""A reply's thinking, folded to one line that shows where it is; opened by a click or a key.

Owns the folding. The text is shown as it is: what a model thinks is rarely Markdown that was meant to be read.
"""

from __future__ import annotations

import time

from textual import events
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.timer import Timer
from textual.widgets import Static

from app.chat.plain_text import NeutralisingStream, one_line
from app.chat.widgets.growing_text import put_content

_LIVE_CHARS = 200
# Tokens come faster than anybody reads; what is long is drawn less often.
_REST_S = 0.08
_CHARS_PER_REST_S = 40_000


class ThinkingFold(Vertical):
    """Hidden until there is thinking."""

    DEFAULT_CSS = """
    ThinkingFold {
        height: auto;
        display: none;
        color: $text-muted;
        margin: 0 0 1 0;
        &.-shown { display: block; }
        & > .headline { height: 1; text-wrap: nowrap; text-overflow: ellipsis; text-style: italic; }
        & > .thoughts { height: auto; display: none; padding: 0 0 0 2; }
        &.-open > .thoughts { display: block; }
    }
    """

    def __init__(self) -> None:
        super().__init__()
        self._stream = NeutralisingStream()
        self._shown = ""
        self._began_s: float | None = None
        self._is_over = False
        self._headline_when_over = ""
        self._has_lines = False
        self._next_drawing: Timer | None = None

    def compose(self) -> ComposeResult:
        yield Static(Content(""), classes="headline")
        yield Static(Content(""), classes="thoughts")

    def on_mount(self) -> None:
        self._has_lines = True
        self._draw()

    def on_click(self, event: events.Click) -> None:
        event.stop()
        self.toggle()

    def grow(self, text: str) -> None:
        """The model thought on."""
        if text:
            self._began_s = time.monotonic() if self._began_s is None else self._began_s
            self._shown += self._stream.feed(text)
            if self._has_lines and self._next_drawing is None:
                rest_s = _REST_S + len(self._shown) / _CHARS_PER_REST_S
                self._next_drawing = self.set_timer(rest_s, self._draw_next)

    def _draw_next(self) -> None:
        self._next_drawing = None
        self._draw()

    def finish(self, *, is_live: bool) -> None:
        """The thinking is over; with `is_live` it was seen while it happened, so that its time is known."""
        if self._is_over or not self._shown:
            return
        self._is_over = True
        self._shown += self._stream.finish()
        if not is_live:
            self._began_s = None
        elapsed = f" for {time.monotonic() - self._began_s:.0f} s" if self._began_s is not None else ""
        self._headline_when_over = f"Thought{elapsed}, {len(self._shown.split()):,} words"
        self._draw()

    def toggle(self) -> None:
        """Opens what is folded, folds what is open."""
        self.toggle_class("-open")
        self._draw()

    def _draw(self) -> None:
        self.set_class(bool(self._shown.strip()), "-shown")
        if not self._has_lines:
            return
        is_open = self.has_class("-open")
        tail = one_line(self._shown[-_LIVE_CHARS:].rpartition("\n")[2] or self._shown[-_LIVE_CHARS:])
        words = self._headline_when_over if self._is_over else f"Thinking: {tail}"
        self.query_one(".headline", Static).update(Content(f"{'▾' if is_open else '▸'} {words}"), layout=False)
        if is_open:
            put_content(self.query_one(".thoughts", Static), Content(self._shown.strip("\n")))
