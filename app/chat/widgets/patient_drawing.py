"""Drawing that waits for a slow terminal.

Owns when a screen may draw. Knows of the terminal whether it is behind.
"""

from __future__ import annotations

from textual.screen import Screen


class PatientDrawing(Screen):
    """Mixed into a screen: what changes while the terminal is behind is drawn in one go, once it has caught up.

    Otherwise the screen's thread would have to wait for a slow terminal, and keys with it.
    """

    def _on_timer_update(self) -> None:
        """Textual's: draws what has changed. Where it does not, the timer goes on."""
        if not getattr(self.app._driver, "is_behind", False):
            super()._on_timer_update()
