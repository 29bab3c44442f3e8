"""A chart as a drawing: panels of horizontal bars with whiskers from the least to the most, and the machine's limit.

Owns where everything lies.  Does not know rows, nor the kind of file that a drawing becomes.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, floor, log10

from app.charts.drawing import Box, Drawing, Line, Shape, Text
from app.charts.panels import Bar, Panel
from app.figures import rate_text

_BAR_WIDTH, _RIGHT = 420, 110
_LEAST_LEFT, _MOST_LETTERS = 200, 80
_BAR_HEIGHT, _BAR_STEP = 16, 24
_HEAD, _PANEL_HEAD, _PANEL_FOOT, _LEGEND_STEP = 44, 30, 34, 20
_COLOURS = ("#2f6fb4", "#d08a2e", "#7a9e48", "#9a6fb0", "#b3564d")
_PALE, _LIMIT = "#d8d8d8", "#c0392b"
_LIMIT_LEGEND = "what memory or multiplier allow, where the scale reaches it"
_LETTER = 6.6  # about, at 12 pixels
_FIGURE_WIDTH = 48
_LIMIT_REACH = 1.6  # a limit farther away than so many times the longest bar is not drawn


def draw_chart(panels: Sequence[Panel], *, title: str, subtitle: str) -> Drawing:
    """The whole chart; a legend where there is more than one kind of bar or line."""
    longest = max((len(bar.label) for panel in panels for bar in panel.bars), default=0)
    left = max(_LEAST_LEFT, 24 + _LETTER * min(longest, _MOST_LETTERS))
    width = round(left + _BAR_WIDTH + _RIGHT)
    series = list(dict.fromkeys(bar.series for panel in panels for bar in panel.bars))
    colours = {name: _COLOURS[idx % len(_COLOURS)] for idx, name in enumerate(series)}
    parts: list[Shape] = [
        Text(x=16, y=22, text=title, size=15, is_bold=True),
        Text(x=16, y=38, text=_cut(subtitle, int(width / 6)), size=11),
    ]
    top = _HEAD + 8
    for panel in panels:
        parts += _panel(panel, _Scale(panel, left), top, colours)
        top += _PANEL_HEAD + _BAR_STEP * len(panel.bars) + _PANEL_FOOT
    has_limit = any(bar.limit for panel in panels for bar in panel.bars)
    if has_limit or len(colours) > 1:
        parts += _legend(colours, top, has_limit)
        top += _LEGEND_STEP
    height = top + 12
    return Drawing(title=title, width=width, height=height, shapes=tuple(parts))


class _Scale:
    """Where a value lies; the end is a whole number of ticks, 1, 2 or 5 times a power of ten apart."""

    def __init__(self, panel: Panel, left: float) -> None:
        limits = [bar.limit for bar in panel.bars if bar.limit is not None and bar.limit < _LIMIT_REACH * panel.most]
        most = max([panel.most, *limits])
        power = 10.0 ** floor(log10(most / 4))
        self.left, self.step = left, power * max(factor for factor in (1, 2, 5) if power * factor <= most / 4)
        self.num_steps = ceil(most / self.step)

    def has(self, value: float) -> bool:
        """Whether it is drawn."""
        return value <= self.step * self.num_steps

    def x(self, value: float) -> float:
        """Pixels from the left."""
        return self.left + value / (self.step * self.num_steps) * _BAR_WIDTH


def _panel(panel: Panel, scale: _Scale, top: int, colours: dict[str, str]) -> list[Shape]:
    bottom = top + _PANEL_HEAD + _BAR_STEP * len(panel.bars)
    parts: list[Shape] = [Text(x=16, y=top + 18, text=panel.title, size=13, is_bold=True)]
    for number in range(scale.num_steps + 1):
        x = scale.x(number * scale.step)
        parts.append(Line(x1=x, y1=top + _PANEL_HEAD - 4, x2=x, y2=bottom, colour=_PALE))
        parts.append(Text(x=x, y=bottom + 14, text=f"{number * scale.step:g}", size=10, anchor="middle"))
    for idx, bar in enumerate(panel.bars):
        parts += _bar(bar, scale, top + _PANEL_HEAD + _BAR_STEP * idx, colours[bar.series])
    return parts


def _bar(bar: Bar, scale: _Scale, top: int, colour: str) -> list[Shape]:
    spread, middle = bar.spread, top + _BAR_HEIGHT / 2
    least, most = scale.x(spread.least), scale.x(spread.most)
    width = scale.x(spread.median) - scale.left
    parts: list[Shape] = [
        Text(x=scale.left - 8, y=middle + 4, text=_cut(bar.label, _MOST_LETTERS), size=12, anchor="end"),
        Box(x=scale.left, y=top, width=width, height=_BAR_HEIGHT, colour=colour),
    ]
    if spread.least < spread.most:  # nothing is known of how a single figure varies
        parts.append(Line(x1=least, y1=middle, x2=most, y2=middle))
        parts += [Line(x1=x, y1=middle - 4, x2=x, y2=middle + 4) for x in (least, most)]
    figure_at = most
    if bar.limit is not None and scale.has(bar.limit):
        x = scale.x(bar.limit)
        parts.append(Line(x1=x, y1=top - 3, x2=x, y2=top + _BAR_HEIGHT + 3, colour=_LIMIT, width=2))
        figure_at = x if most <= x < most + _FIGURE_WIDTH else most  # beside the mark, not under it
    figure = bar.figure if bar.figure is not None else rate_text(spread.median)
    return [*parts, Text(x=figure_at + 6, y=middle + 4, text=figure, size=12)]


def _legend(colours: dict[str, str], top: int, has_limit: bool) -> list[Shape]:
    parts, x = [], 16.0
    for name, colour in colours.items():
        parts.append(Box(x=x, y=top, width=12, height=12, colour=colour))
        parts.append(Text(x=x + 18, y=top + 10, text=name, size=12))
        x += 40 + _LETTER * len(name)
    if has_limit:
        parts.append(Line(x1=x + 6, y1=top - 2, x2=x + 6, y2=top + 14, colour=_LIMIT, width=2))
        parts.append(Text(x=x + 14, y=top + 10, text=_LIMIT_LEGEND, size=12))
    return parts


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}\u2026"
