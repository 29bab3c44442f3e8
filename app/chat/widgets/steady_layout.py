"""What the children of a container that grows are measured for.

Owns that one departure from Textual's layout. Textual keeps what it has measured by the size of the container, so that
a reply which grows by a line would have every block of it measured again. It fits only where no child's height depends
on the container's.
"""

from __future__ import annotations

from textual.geometry import Size


def steady_size(size: Size) -> Size:
    """The size that children are told: the container's width, and no height."""
    return size.with_height(0)
