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
        """Lays out what is visible; says what became visible, what no longer is, and what changed its size."""
        self._is_reflowing = True
        try:
            result = super().reflow(parent, size)
        finally:
            self._is_reflowing = False
        result = self._with_missed(result)
        # What is visible is looked up in this map; only who is not in it asks for the whole one.
        self._visible_map = self._full_map
        self._full_map_invalidated = True
        return result

    def _with_missed(self, result: ReflowResult) -> ReflowResult:
        """The result with what changed since the last one, though the whole map was made between the two.

        Whoever asks for that map after a change and before its reflow has it made with the change in it: Textual
        compares with that one, and would find that nothing became larger or smaller.
        """
        told, self._told = self._told, self._full_map
        resized = set(result.resized)
        for widget, (region, _, clip, *_) in self._full_map.items():
            before = told.get(widget)
            if before is not None and (before.region, before.clip) != (region, clip):
                self._dirty_regions.update(
                    filter(None, (before.clip.intersection(before.region), clip.intersection(region)))
                )
                if before.region.size != region.size:
                    resized.add(widget)
        return result._replace(resized=resized)

    def _arrange_root(self, root: Widget, size: Size, visible_only: bool = True) -> tuple[CompositorMap, set[Widget]]:
        return super()._arrange_root(root, size, visible_only or self._is_reflowing)
