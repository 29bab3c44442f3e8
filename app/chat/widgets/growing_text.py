"""Text that grows in place: the screen is laid out anew only when another line is needed.

Laying out takes most of the time of drawing a reply, and most pieces of one fit the line that is there.
"""

from __future__ import annotations

from typing import cast

from textual.content import Content
from textual.css.styles import RulesMap
from textual.widgets import Static


def put_content(widget: Static, content: Content) -> None:
    """Shows the content in the widget."""
    width, height = widget.content_size
    rules = cast(RulesMap, widget.styles)  # As Textual itself passes them: both answer `get`.
    needs_layout = width <= 0 or content.get_height(rules, width) != height
    widget.update(content, layout=needs_layout)
