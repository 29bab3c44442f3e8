"""What keeps a reply that grows from being measured and laid out more often than it must be.

Owns two departures from Textual's layout. Textual keeps what it has measured by the size of the container, so that a
reply which grows by a line would have every part of it measured again; and it lays out the screen a second time
whenever a layout changed the size of a widget. Both fit only where no child's height depends on the container's.
"""

from __future__ import annotations

from textual.geometry import Size


def steady_size(size: Size) -> Size:
    """The size that children are told: the container's width, and no height."""
    return size.with_height(0)


class SteadySize:
    """A widget that is laid out once, whatever size comes of it. To be inherited from before the widget's class.

    No widget itself: of several bases Textual gives a widget the styles of the first one that is a widget.
    """

    def _size_updated(self, size: Size, virtual_size: Size, container_size: Size, layout: bool = True) -> bool:
        return super()._size_updated(size, virtual_size, container_size, layout=False)  # pyright: ignore[reportAttributeAccessIssue]
