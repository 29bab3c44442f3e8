"""A chart of text: one line a bar, eighths of a character, no colours.

Owns the drawing.  Does not know rows or streams.
"""

from __future__ import annotations

from collections.abc import Sequence

from app.charts.panels import Bar, Panel
from app.figures import rate_text

_FULL = "\u2588"
_EIGHTHS = ("", "\u258f", "\u258e", "\u258d", "\u258c", "\u258b", "\u258a", "\u2589")
_LEAST_BAR, _MOST_BAR = 8, 40
_FIGURE = 8


def terminal_chart(panels: Sequence[Panel], columns: int) -> str:
    """All panels, no line wider than `columns` unless that leaves no room for bars."""
    bars = [bar for panel in panels for bar in panel.bars]
    if not bars:
        return ""
    longest = max(len(bar.label) for bar in bars)
    room = max(_LEAST_BAR, min(_MOST_BAR, columns - longest - _FIGURE - 6))
    return "\n".join("\n".join(_panel(panel, longest, room)) for panel in panels)


def _panel(panel: Panel, longest: int, room: int) -> list[str]:
    return [panel.title, *(_line(bar, panel.most, longest, room) for bar in panel.bars)]


def _line(bar: Bar, most: float, longest: int, room: int) -> str:
    drawn = _drawn(bar.spread.median / most * room)
    return f"  {bar.label.ljust(longest)}  {drawn.ljust(room)} {rate_text(bar.spread.median).rjust(_FIGURE)}".rstrip()


def _drawn(length: float) -> str:
    eighths = max(1, round(length * 8))
    return _FULL * (eighths // 8) + _EIGHTHS[eighths % 8]
