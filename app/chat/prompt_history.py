"""The prompts that were sent, to be walked through with the arrow keys.

Owns the place in the list and the draft that was left for it. Knows nothing of keys or widgets.
"""

from __future__ import annotations

from collections.abc import Sequence


class PromptHistory:
    """Prompts, the oldest first; behind the last stands what was being written."""

    def __init__(self) -> None:
        self._prompts: list[str] = []
        self._place: int | None = None
        self._draft = ""

    @property
    def draft(self) -> str | None:
        """What was being written, while earlier prompts are walked; None while none is."""
        return None if self._place is None else self._draft

    def set_prompts(self, prompts: Sequence[str]) -> None:
        """Puts the prompts of earlier conversations before those of this one."""
        self._prompts = [*prompts, *self._prompts]
        if self._place is not None:
            self._place += len(prompts)

    def add(self, prompt: str) -> None:
        """A prompt was sent; a repeat of the last one is not listed twice."""
        if not self._prompts or self._prompts[-1] != prompt:
            self._prompts.append(prompt)
        self._place = None

    def earlier(self, current: str) -> str | None:
        """The prompt before the one shown; None at the oldest. Remembers what was being written."""
        place = len(self._prompts) if self._place is None else self._place
        if place == 0:
            return None
        if self._place is None:
            self._draft = current
        self._place = place - 1
        return self._prompts[self._place]

    def later(self) -> str | None:
        """The prompt behind the one shown, at last what was being written; None where nothing is being walked."""
        if self._place is None:
            return None
        self._place += 1
        if self._place < len(self._prompts):
            return self._prompts[self._place]
        self._place = None
        return self._draft

    def leave(self) -> None:
        """What is shown was changed: it is a draft of its own from now on, and what was being written a prompt."""
        if self._place is not None and self._draft.strip():
            self.add(self._draft)
        self._place = None
