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
        self._told: CompositorMap = {}

    def reflow(self, parent: Widget, size: Size) -> ReflowResult:
        """Lays out what is visible; says what became visible, what no longer is, and what changed its size.

        Compares with what it told last. Textual compares with the whole map, which may be newer: whoever asks for it
        after a change and before its reflow has it made with the change in it, and the change would never be drawn.
        """
        self._full_map = self._told
        self._is_reflowing = True
        try:
            result = super().reflow(parent, size)
        finally:
            self._is_reflowing = False
        # What is visible is looked up in this map; only who is not in it asks for the whole one.
        self._told = self._visible_map = self._full_map
        self._full_map_invalidated = True
        return result

    def reflow_visible(self, parent: Widget, size: Size) -> set[Widget]:
        """Lays out what is visible after scrolling; says what came into sight."""
        exposed = super().reflow_visible(parent, size)
        self._told = self._visible_map or {}
        return exposed

    def update_widgets(self, widgets: set[Widget]) -> None:
        """Marks what these have to be drawn anew.

        One that was hidden for a moment, while somebody asked for the whole map, is not among the visible ones; it
        stands where it was told to stand all the same.
        """
        super().update_widgets(widgets)
        for widget in widgets - self.visible_widgets.keys():
            geometry = self._told.get(widget)
            if geometry is not None and (region := geometry.clip.intersection(geometry.region)):
                self._dirty_regions.add(region)

    def _arrange_root(self, root: Widget, size: Size, visible_only: bool = True) -> tuple[CompositorMap, set[Widget]]:
        return super()._arrange_root(root, size, visible_only or self._is_reflowing)
