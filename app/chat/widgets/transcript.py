"""The conversation on the screen: the model's panel, then the turns; follows the end unless the user scrolled up.

Owns which turns have a view. Knows turns as values; does not know engines or stores.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from textual.app import ComposeResult
from textual.containers import VerticalScroll
from textual.content import Content
from textual.widgets import Static

from app.chat.conversation import Conversation, Turn
from app.chat.engine_port import Role
from app.chat.widgets.blank_ground import BlankGround
from app.chat.widgets.model_panel import ModelPanel
from app.chat.widgets.steady_layout import SteadySize
from app.chat.widgets.turn_views import QuestionView, ReplyView

SHOWN_TURNS = 40


class HiddenTurns(Static):
    """Stands for the turns that are not drawn."""

    DEFAULT_CSS = """
    HiddenTurns { height: auto; padding: 0 1; margin: 0 0 1 0; color: $text-muted; }
    """


class WindowStart(Static):
    """The border between what the model no longer sees and what it does."""

    DEFAULT_CSS = """
    WindowStart { height: auto; padding: 0 1; margin: 0 0 1 0; color: $text-muted; text-align: center; }
    """

    def __init__(self) -> None:
        super().__init__(Content("─── the model sees what follows ───"))


class Transcript(BlankGround, SteadySize, VerticalScroll, can_focus=False):
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

    def __init__(self, model: str, *, top_key: str, end_key: str) -> None:
        super().__init__()
        self._top_key = top_key
        self._end_key = end_key
        self.num_before = self.num_behind = 0  # turns that are not drawn, before and behind those that are
        self.model_panel = ModelPanel(model)
        self._views_by_id: dict[str, QuestionView | ReplyView] = {}
        self._selected: str | None = None

    def compose(self) -> ComposeResult:
        yield self.model_panel

    def on_mount(self) -> None:
        self.anchor()

    def reply(self, turn_id: str) -> ReplyView | None:
        """The view of a reply, where it has one."""
        view = self._views_by_id.get(turn_id)
        return view if isinstance(view, ReplyView) else None

    @property
    def last_reply(self) -> ReplyView | None:
        """The view of the latest reply."""
        return next((view for view in reversed(self._views_by_id.values()) if isinstance(view, ReplyView)), None)

    def begin_load(self, model: str) -> None:
        """Another model is being loaded: behind the turns there are, or in place of the panel at the head."""
        earlier, self.model_panel = self.model_panel, ModelPanel(model)
        if not self._views_by_id:
            earlier.remove()
        self.mount(self.model_panel)
        self.anchor()

    def add_turn(self, turn: Turn) -> None:
        """Puts a new turn at the end and goes there."""
        self.mount(self._view_of(turn, is_live=turn.role is Role.ASSISTANT))
        self.anchor()

    def remove_turn(self, turn: Turn) -> None:
        """Takes a turn away."""
        view = self._views_by_id.pop(turn.id, None)
        if view is not None:
            view.remove()

    def show(
        self,
        conversation: Conversation,
        *,
        live_turn_id: str | None = None,
        first: int | None = None,
        places: Mapping[str, tuple[int, int]] | None = None,
    ) -> None:
        """Shows a conversation in place of the one before; of a long one the latest turns, or those from `first` on.

        What stands already and stays the same is left alone, so that going to another branch is quick.
        """
        turns = conversation.turns
        is_end = first is None
        latest = max(0, len(turns) - SHOWN_TURNS)
        first = latest if first is None else min(first, latest)
        is_plain = is_end and not self.query(WindowStart) and not conversation.window_start
        num_same = self._num_same(turns, first) if is_plain else 0
        self.num_before, self.num_behind = first, max(0, len(turns) - first - SHOWN_TURNS)
        self.select(None)
        gone = list(self._views_by_id.values())[num_same:]
        self._views_by_id = dict(list(self._views_by_id.items())[:num_same])
        # Neither is awaited: a turn that is added right behind must come after these, and not be taken away.
        if num_same:
            self.remove_children(gone)
        else:
            self.remove_children([child for child in self.children if child is not self.model_panel])
        self.mount_all(self._views(turns, first, num_same, conversation.window_start, live_turn_id))
        self.mark_places(places or {})
        if is_end:
            self.anchor()
        else:
            self.release_anchor()

    def _num_same(self, turns: Sequence[Turn], first: int) -> int:
        """How many of the views that stand from the top are those of the turns to be shown."""
        if first or self.query(HiddenTurns):
            return 0
        num_same = 0
        for turn, view in zip(turns, self._views_by_id.values(), strict=False):
            if view.turn != turn:
                break
            num_same += 1
        return num_same

    @property
    def selected_turn(self) -> str | None:
        """The id of the turn that is selected."""
        return self._selected

    def select(self, turn_id: str | None) -> None:
        """Marks a turn and goes there; None: marks none."""
        if self._selected in self._views_by_id:
            self._views_by_id[self._selected].remove_class("-selected")
        self._selected = turn_id if turn_id in self._views_by_id else None
        if self._selected is not None:
            view = self._views_by_id[self._selected]
            view.add_class("-selected")
            self.scroll_to_turn(self._selected)

    def scroll_to_turn(self, turn_id: str) -> None:
        """Goes to a turn that is drawn."""
        if (view := self._views_by_id.get(turn_id)) is not None:
            self.release_anchor()
            self.call_after_refresh(self.scroll_to_widget, view, animate=False, top=True)

    def hides(self, turn_id: str) -> bool:
        """Whether the turn is one of those that are not drawn."""
        return bool(self.num_before or self.num_behind) and turn_id not in self._views_by_id

    def mark_places(self, places: Mapping[str, tuple[int, int]]) -> None:
        """Says of each turn which of several versions it is."""
        for turn_id, view in self._views_by_id.items():
            view.set_place(places.get(turn_id))

    def mark_window_start(self, turn_id: str) -> None:
        """Draws the border of the window before this turn."""
        self.query(WindowStart).remove()
        for view in self.query(QuestionView):
            if view.turn_id == turn_id:
                self.mount(WindowStart(), before=view)

    def _views(
        self, turns: Sequence[Turn], first: int, num_same: int, window_start: str | None, live_turn_id: str | None
    ) -> list[QuestionView | ReplyView | HiddenTurns | WindowStart]:
        views: list[QuestionView | ReplyView | HiddenTurns | WindowStart] = []
        if first:
            words = f"↑ {first:,} earlier turns ({self._top_key} goes to the first)"
            views.append(HiddenTurns(Content(words)))
        for turn in turns[first + num_same : first + SHOWN_TURNS]:
            if turn.id == window_start:
                views.append(WindowStart())
            views.append(self._view_of(turn, is_live=turn.id == live_turn_id))
        if self.num_behind:
            words = f"↓ {self.num_behind:,} later turns ({self._end_key} goes to the last)"
            views.append(HiddenTurns(Content(words)))
        return views

    def _view_of(self, turn: Turn, *, is_live: bool) -> QuestionView | ReplyView:
        view = ReplyView(turn, is_live=is_live) if turn.role is Role.ASSISTANT else QuestionView(turn)
        self._views_by_id[turn.id] = view
        return view
