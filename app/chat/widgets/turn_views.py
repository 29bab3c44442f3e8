"""The turns of a conversation on the screen: what the user wrote, and what the model replies.

Owns how a reply's pieces reach its Markdown: they are gathered, and drawn as often as drawing is cheap. Does not know
where they come from.
"""

from __future__ import annotations

import asyncio
import os
import time

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.geometry import Size
from textual.layout import DockArrangeResult
from textual.widgets import Static

from app.chat.conversation import Turn, TurnState
from app.chat.plain_text import NeutralisingStream, neutralise, one_line
from app.chat.widgets.attachment_bar import attachment_line
from app.chat.widgets.blank_ground import BlankGround
from app.chat.widgets.plain_title import PlainTitle
from app.chat.widgets.reply_markdown import ReplyMarkdown
from app.chat.widgets.steady_layout import SteadySize, steady_size
from app.chat.widgets.thinking_fold import ThinkingFold

_FRAME_S = 1 / 30
_SPOKEN_FRAME_S = 2.0  # Whoever hears the screen hears every change of it.
# So much of the machine may drawing take: the rest is for the model, and for the keys of the user.
_SHARE_OF_MACHINE = 0.015
_REST_PER_WORK = max(1.0, 1 / (_SHARE_OF_MACHINE * (os.cpu_count() or 1)) - 1)
_LONGEST_REST_S = 0.5
_SHOWN_LINES = 60
_SHOWN_CHARS = 8000

_FOOTNOTES = {
    TurnState.STOPPED: "stopped",
    TurnState.PARTIAL: "broken off here: the program ended while this was being written",
    TurnState.LENGTH: "cut off at the most tokens a reply may have",
    TurnState.WINDOW: "ended because the window is full",
    TurnState.FAILED: "failed",
    TurnState.EDITED: "edited by you",
    TurnState.ELSEWHERE: "being written in another window",
}


class QuestionView(Static):
    """What the user wrote, as it was written; of a very long one the beginning, with a line that says so."""

    DEFAULT_CSS = """
    QuestionView {
        height: auto;
        margin: 0 0 1 0;
        padding: 0 1;
        border-left: outer $primary;
        background: $boost;
        &.-selected { border-left: outer $accent; }
    }
    """

    def __init__(self, turn: Turn) -> None:
        self.turn_id = turn.id
        self.turn = turn
        lines = [_beginning(neutralise(turn.text).strip("\n")), *map(attachment_line, turn.attachments)]
        self._text = Content("\n".join(filter(None, lines)))
        super().__init__(self._text)

    def on_mount(self) -> None:
        if self.app.has_class("-plain"):
            self._text = Content.assemble("You: ", self._text)
            self.update(self._text)

    def set_place(self, place: tuple[int, int] | None) -> None:
        """Says which of several versions this is; None: there is but one."""
        self.update(Content.assemble(self._text, "\n", (place_words(place), "dim")) if place else self._text)


def place_words(place: tuple[int, int] | None) -> str:
    """Which of several versions a turn is."""
    return f"‹ version {place[0]} of {place[1]} ›" if place is not None else ""


def _beginning(text: str) -> str:
    """The text, or so much of a very long one as can be drawn in no time."""
    lines = text.split("\n")
    shown = "\n".join(lines[:_SHOWN_LINES])[:_SHOWN_CHARS]
    num_hidden = len(text) - len(shown)
    if num_hidden <= _SHOWN_CHARS // 20:
        return text
    num_lines = len(lines) - shown.count("\n") - 1
    return f"{shown}\n… and {num_lines:,} more lines" if num_lines else f"{shown}… and {num_hidden:,} more characters"


class ReplyView(BlankGround, SteadySize, Vertical):
    """A reply: its thinking folded, its text as Markdown, and a line below it where something has to be said."""

    DEFAULT_CSS = """
    ReplyView {
        height: auto;
        padding: 0 1 0 2;
        &.-selected { border-left: outer $accent; padding: 0 1 0 1; }
        & > .footnote { height: auto; color: $text-muted; text-style: italic; margin: 0 0 1 0; display: none; }
        & > .footnote.-shown { display: block; }
        & > .footnote.-error { color: $text-error; text-style: none; }
    }
    """

    def __init__(self, turn: Turn, *, is_live: bool) -> None:
        """`is_live`: the reply is being written; otherwise it is shown as it was kept."""
        super().__init__()
        self.turn_id = turn.id
        self.turn = turn
        self._is_live = is_live
        self._stream = NeutralisingStream()
        self._pending = self._stream.feed(turn.text) if is_live else ""
        self._drawing: asyncio.Task[None] | None = None
        self._is_ready = asyncio.Event()
        self._thinking = ThinkingFold()
        self._body = ReplyMarkdown(None if is_live else neutralise(turn.text))
        self._footnote = Static(Content(""), classes="footnote")
        self._footnote_says = ("", False)
        self._place: tuple[int, int] | None = None

    def compose(self) -> ComposeResult:
        yield PlainTitle("Model:")
        yield self._thinking
        yield self._body
        yield self._footnote

    def on_mount(self) -> None:
        self._is_ready.set()
        if self.turn.thinking:
            self._thinking.grow(self.turn.thinking)
            if not self._is_live:
                self._thinking.finish(is_live=False)
        if self._pending:
            self._begin_drawing()
        if not self._is_live:
            self.set_footnote(_FOOTNOTES.get(self.turn.state, ""), is_error=self.turn.state is TurnState.FAILED)

    def arrange(self, size: Size, optimal: bool = False) -> DockArrangeResult:
        """Places the parts; those that stand are not measured again."""
        return super().arrange(steady_size(size), optimal)

    def grow(self, text: str, thinking: str) -> None:
        """More of the reply came. Returns at once; it is drawn soon."""
        self._pending += self._stream.feed(text)
        if not self.is_attached:
            return  # The chat has been left: what came last is kept, and drawn when it is opened again.
        self._thinking.grow(thinking)
        if text:
            self._thinking.finish(is_live=True)
            self.set_footnote("")
            self._begin_drawing()

    async def finish(self, turn: Turn, detail: str) -> None:
        """The reply is over: on return it stands whole, with a note on how it ended where that matters."""
        self.turn = turn
        self._pending += self._stream.finish()
        self._thinking.finish(is_live=True)
        if self._drawing is not None:
            self._drawing.cancel()
            self._drawing = None
        await self._is_ready.wait()
        self._draw_pending()
        whole = neutralise(turn.text)
        if self._body.source != whole and self.is_attached:
            self._body.update(whole)
        elif self.is_attached:
            self._body.finish()
        self.set_footnote(one_line(detail) or _FOOTNOTES.get(turn.state, ""), is_error=turn.state is TurnState.FAILED)

    def set_footnote(self, text: str, *, is_error: bool = False) -> None:
        """Says something below the reply; nothing: takes the line away."""
        if (text, is_error) != self._footnote_says:
            self._footnote_says = (text, is_error)
            self._draw_footnote()

    def set_place(self, place: tuple[int, int] | None) -> None:
        """Says which of several versions this is; None: there is but one."""
        if place != self._place:
            self._place = place
            self._draw_footnote()

    def _draw_footnote(self) -> None:
        text, is_error = self._footnote_says
        words = " · ".join(filter(None, (text, place_words(self._place))))
        self._footnote.set_class(bool(words), "-shown")
        self._footnote.set_class(is_error, "-error")
        self._footnote.update(Content(words))

    def toggle_thinking(self) -> None:
        """Opens or folds the thinking."""
        self._thinking.toggle()

    def _begin_drawing(self) -> None:
        if self._drawing is None or self._drawing.done():
            self._drawing = asyncio.create_task(self._draw_until_empty())

    async def _draw_until_empty(self) -> None:
        await self._is_ready.wait()
        while self._pending and self.is_attached:
            # Processor time of the screen's thread: how busy the rest of the machine is does not count.
            began_s = time.thread_time()
            self._draw_pending()
            await self._refreshed()
            work_s = time.thread_time() - began_s
            rest_s = min(_LONGEST_REST_S, max(_FRAME_S, _REST_PER_WORK * work_s))
            await asyncio.sleep(_SPOKEN_FRAME_S if self.app.has_class("-plain") else rest_s)

    async def _refreshed(self) -> None:
        """Waits until what was drawn has been laid out and sent: most of the work is there."""
        is_refreshed = asyncio.Event()
        self.call_after_refresh(is_refreshed.set)
        await is_refreshed.wait()

    def _draw_pending(self) -> None:
        """Draws what has come, unless the chat was left meanwhile: then nobody misses the drawing."""
        if self.is_attached:
            pending, self._pending = self._pending, ""
            self._body.extend(pending)
