"""An earlier turn in the input: while it is edited, the draft that stood there waits.

Owns which turn is edited. Knows the input and the rules; does not know the rest of the screen.
"""

from __future__ import annotations

from collections.abc import Callable

from app.chat.conversation import Turn
from app.chat.engine_port import Role
from app.chat.widgets.prompt import Prompt


class Editing:
    """Puts a turn into the input and takes it out again."""

    def __init__(self, prompt: Prompt, *, save: Callable[[Turn, str], bool], keep: Callable[[Turn | None, str], None]):
        """`save` is told the turn and its new text, and says whether it could be saved; `keep` is told of every change
        which turn is edited (None: no more) and the text so far."""
        self._prompt = prompt
        self._save = save
        self._keep = keep
        self._turn: Turn | None = None
        self._draft = ""

    @property
    def is_on(self) -> bool:
        """Whether a turn is being edited."""
        return self._turn is not None

    @property
    def is_changed(self) -> bool:
        """Whether a turn is being edited, and its text is another already."""
        return self._turn is not None and self._prompt.text != self._turn.text

    def begin(self, turn: Turn, text: str | None = None) -> None:
        """Puts the turn into the input; `text`: how far an edit of it had come."""
        if self._turn is None:
            self._draft = self._prompt.unsent
        self._turn = turn
        whose = "your message" if turn.role is Role.USER else "the reply"
        self._prompt.say(f"Editing {whose} · Enter saves · Esc leaves it")
        self._prompt.set_text(turn.text if text is None else text)

    def follow(self) -> None:
        """Has the text kept as it stands now."""
        if self._turn is not None:
            self._keep(self._turn if self.is_changed else None, self._prompt.text if self.is_changed else "")

    def finish(self, text: str) -> None:
        """Saves the text as the turn's, and puts the draft back; where it can't be saved now, the edit goes on."""
        turn = self._turn
        if turn is None or text == turn.text:
            self.leave()
            return
        self._keep(None, "")
        if self._save(turn, text):
            self.set_aside()
        else:
            self.follow()

    def leave(self) -> None:
        """Leaves the turn as it was, and puts the draft back."""
        self._keep(None, "")
        self.set_aside()

    def set_aside(self) -> None:
        """Puts the draft back; how far the edit had come stays kept."""
        if self._turn is not None:
            self._turn = None
            self._prompt.say("")
            self._prompt.set_text(self._draft)
