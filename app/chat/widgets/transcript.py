"""The conversation on the screen: the model's panel, then the turns; follows the end unless the user scrolled up.

Owns which turns have a view. Knows turns as values; does not know engines or stores.
"""

from __future__ import annotations

from collections.abc import Sequence

from textual.app import ComposeResult
from textual.containers import VerticalScroll
from textual.content import Content
from textual.widgets import Static

from app.chat.conversation import Conversation, Turn
from app.chat.engine_port import Role
from app.chat.widgets.model_panel import ModelPanel
from app.chat.widgets.turn_views import QuestionView, ReplyView

_SHOWN_TURNS = 40


class EarlierTurns(Static):
    """Stands for the turns that are not drawn."""

    DEFAULT_CSS = """
    EarlierTurns { height: auto; padding: 0 1; margin: 0 0 1 0; color: $text-muted; }
    """

    def __init__(self, num_turns: int, key: str) -> None:
        super().__init__(Content(f"↑ {num_turns:,} earlier turns ({key} shows them)"))


class WindowStart(Static):
    """The border between what the model no longer sees and what it does."""

    DEFAULT_CSS = """
    WindowStart { height: auto; padding: 0 1; margin: 0 0 1 0; color: $text-muted; text-align: center; }
    """

    def __init__(self) -> None:
        super().__init__(Content("─── the model sees what follows ───"))


class Transcript(VerticalScroll, can_focus=False):
    """Turns from the top, the latest at the end."""

    DEFAULT_CSS = """
    Transcript {
        height: 1fr;
        padding: 1 0 0 0;
        scrollbar-size-vertical: 1;
        scrollbar-gutter: stable;
        align: left bottom;
    }
    """

    def __init__(self, model: str, *, top_key: str) -> None:
        super().__init__()
        self._top_key = top_key
        self.model_panel = ModelPanel(model)
        self._replies: dict[str, ReplyView] = {}

    def compose(self) -> ComposeResult:
        yield self.model_panel

    def on_mount(self) -> None:
        self.anchor()

    def reply(self, turn_id: str) -> ReplyView | None:
        """The view of a reply, where it has one."""
        return self._replies.get(turn_id)

    @property
    def last_reply(self) -> ReplyView | None:
        """The view of the latest reply."""
        return next(reversed(self._replies.values()), None)

    def add_turn(self, turn: Turn) -> None:
        """Puts a new turn at the end and goes there."""
        self.mount(self._view_of(turn, is_live=turn.role is Role.ASSISTANT))
        self.anchor()

    def remove_turn(self, turn: Turn) -> None:
        """Takes a turn away."""
        view = self._replies.pop(turn.id, None)
        if view is not None:
            view.remove()

    def show(self, conversation: Conversation, *, live_turn_id: str | None = None, whole: bool = False) -> None:
        """Shows a conversation in place of the one before; of a long one the latest turns, or the whole of it."""
        first = 0 if whole else max(0, len(conversation.turns) - _SHOWN_TURNS)
        self._replies.clear()
        # Neither is awaited: a turn that is added right behind must come after these, and not be taken away.
        self.remove_children([child for child in self.children if child is not self.model_panel])
        self.mount_all(self._views(conversation.turns, first, conversation.window_start, live_turn_id))
        self.anchor()

    def mark_window_start(self, turn_id: str) -> None:
        """Draws the border of the window before this turn."""
        self.query(WindowStart).remove()
        for view in self.query(QuestionView):
            if view.turn_id == turn_id:
                self.mount(WindowStart(), before=view)

    @property
    def hides_turns(self) -> bool:
        """Whether there are turns that are not drawn."""
        return bool(self.query(EarlierTurns))

    def _views(
        self, turns: Sequence[Turn], first: int, window_start: str | None, live_turn_id: str | None
    ) -> list[QuestionView | ReplyView | EarlierTurns | WindowStart]:
        views: list[QuestionView | ReplyView | EarlierTurns | WindowStart] = []
        if first:
            views.append(EarlierTurns(first, self._top_key))
        for turn in turns[first:]:
            if turn.id == window_start:
                views.append(WindowStart())
            views.append(self._view_of(turn, is_live=turn.id == live_turn_id))
        return views

    def _view_of(self, turn: Turn, *, is_live: bool) -> QuestionView | ReplyView:
        if turn.role is not Role.ASSISTANT:
            return QuestionView(turn)
        view = ReplyView(turn, is_live=is_live)
        self._replies[turn.id] = view
        return view
