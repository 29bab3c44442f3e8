"""A list to choose from that keeps the chosen line in sight when what stands below it takes room from it."""

from __future__ import annotations

from textual import events
from textual.widgets import OptionList


class ChoiceList(OptionList):
    """As its base, for lists whose height changes."""

    def on_resize(self, event: events.Resize) -> None:
        """The chosen line may have been cut off."""
        self.call_after_refresh(self.scroll_to_highlight)
