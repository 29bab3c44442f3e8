"""What a person hears while a session measures, whatever it measures.

Owns the bars and that a note is said once.  Does not know results.
"""

from __future__ import annotations

from app.loading import stage_title
from app.output import Console
from app.progress import ProgressBars


class MeasuringReport:
    """Hears from the session, in its thread; a command's own listener adds what else its session says."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.bars = ProgressBars(console)
        self._notes: set[str] = set()

    def loading(self, title: str, stage: str, done: int, total: int) -> None:
        """What `title` names is being made ready."""
        what, unit = stage_title(stage)
        self.bars.show(f"{title}: {what}", unit, done, total)

    def noted(self, text: str) -> None:
        """Said once, though a model is loaded several times."""
        if text not in self._notes:
            self._notes.add(text)
            self.console.note(f"note: {text}")
