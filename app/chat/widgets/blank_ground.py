"""The ground of a container: every line of it looks the same, so one is drawn and stands for all.

Owns that one departure from Textual, which draws a container that grew anew, line by line, although its children cover
it. It fits only where neither a border above or below nor anything else tells one line from another.
"""

from __future__ import annotations

from textual.geometry import Region
from textual.strip import Strip


class BlankGround:
    """To be inherited from before the container's own class.

    No widget itself: of several bases Textual gives a widget the styles of the first one that is a widget.
    """

    def render_lines(self, crop: Region) -> list[Strip]:
        """The lines of a part of the ground."""
        line = Region(crop.x, 0, crop.width, 1)
        return super().render_lines(line) * crop.height  # pyright: ignore[reportAttributeAccessIssue]
