"""Placing on the screen only what can be seen of it.

Owns one departure from Textual's compositor: when something was laid out anew, Textual walks every widget there is,
also those far above the visible part, so that each new line of a reply costs more the longer the conversation is.
Here only what is visible is walked; the whole map is made when somebody asks for a widget that is out of sight.
"""

from __future__ import annotations

from textual._compositor import Compositor, CompositorMap, ReflowResult
from textual.geometry import Size
from textual.widget import Widget


class NearCompositor(Compositor):
    """Textual's, with a reflow that stays near."""

    def __init__(self) -> None:
        super().__init__()
        self._is_reflowing = False

    def reflow(self, parent: Widget, size: Size) -> ReflowResult:
        """Lays out what is visible; says what became visible, what no longer is, and what changed its size."""
        self._is_reflowing = True
        try:
            result = super().reflow(parent, size)
        finally:
            self._is_reflowing = False
        # What is visible is looked up in this map; only who is not in it asks for the whole one.
        self._visible_map = self._full_map
        self._full_map_invalidated = True
        return result

    def _arrange_root(self, root: Widget, size: Size, visible_only: bool = True) -> tuple[CompositorMap, set[Widget]]:
        return super()._arrange_root(root, size, visible_only or self._is_reflowing)
