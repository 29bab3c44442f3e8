"""An earlier turn in the input: while it is edited, the draft that stood there waits.

Owns which turn is edited. Knows the input and the rules; does not know the rest of the screen.
"""

from __future__ import annotations

from collections.abc import Callable

from app.chat.conversation import Turn
from app.chat.engine_port import Role
from app.chat.widgets.prompt import Prompt


class Editing:
    """Puts a turn into the input and takes it out again. `save` is told the turn and its new text."""

    def __init__(self, prompt: Prompt, save: Callable[[Turn, str], None]) -> None:
        self._prompt = prompt
        self._save = save
        self._turn: Turn | None = None
        self._draft = ""

    @property
    def is_on(self) -> bool:
        """Whether a turn is being edited."""
        return self._turn is not None

    def begin(self, turn: Turn) -> None:
        """Puts the turn into the input."""
        if self._turn is None:
            self._draft = self._prompt.text
        self._turn = turn
        whose = "your message" if turn.role is Role.USER else "the reply"
        self._prompt.border_title = f"Editing {whose} · Enter saves · Esc leaves it"
        self._prompt.set_text(turn.text)

    def finish(self, text: str) -> None:
        """Saves the text as the turn's, and puts the draft back."""
        turn = self._turn
        self.leave()
        if turn is not None and text != turn.text:
            self._save(turn, text)

    def leave(self) -> None:
        """Leaves the turn as it was, and puts the draft back."""
        if self._turn is not None:
            self._turn = None
            self._prompt.border_title = None
            self._prompt.set_text(self._draft)
