"""A chart as SVG: panels of horizontal bars with whiskers from the least to the most, and the machine's limit.

Owns the drawing, in plain SVG 1.1 that needs no library, script or font.  Does not know rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, floor, log10
from xml.sax.saxutils import escape

from app.bench.charts import Bar, Panel
from app.bench.numbers import rate_text

_BAR_WIDTH, _RIGHT = 420, 110
_LEAST_LEFT, _MOST_LETTERS = 200, 80
_BAR_HEIGHT, _BAR_STEP = 16, 24
_HEAD, _PANEL_HEAD, _PANEL_FOOT, _LEGEND_STEP = 44, 30, 34, 20
_COLOURS = ("#2f6fb4", "#d08a2e", "#7a9e48", "#9a6fb0", "#b3564d")
_INK, _PALE, _LIMIT = "#222222", "#d8d8d8", "#c0392b"
_LETTER = 6.6  # about, at 12 pixels
_FIGURE_WIDTH = 48
_LIMIT_REACH = 1.6  # a limit farther away than so many times the longest bar is not drawn


def svg_chart(panels: Sequence[Panel], *, title: str, subtitle: str) -> str:
    """The whole file."""
    longest = max((len(bar.label) for panel in panels for bar in panel.bars), default=0)
    left = max(_LEAST_LEFT, 24 + _LETTER * min(longest, _MOST_LETTERS))
    width = round(left + _BAR_WIDTH + _RIGHT)
    series = list(dict.fromkeys(bar.series for panel in panels for bar in panel.bars))
    colours = {name: _COLOURS[idx % len(_COLOURS)] for idx, name in enumerate(series)}
    parts: list[str] = [
        _text(16, 22, title, size=15, weight="bold"),
        _text(16, 38, _cut(subtitle, int(width / 6)), size=11),
    ]
    top = _HEAD + 8
    for panel in panels:
        parts += _panel(panel, _Scale(panel, left), top, colours)
        top += _PANEL_HEAD + _BAR_STEP * len(panel.bars) + _PANEL_FOOT
    parts += _legend(colours, top, any(bar.limit for panel in panels for bar in panel.bars))
    height = top + _LEGEND_STEP + 12
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" font-family="Helvetica, Arial, sans-serif">\n'
        f"<title>{escape(_printable(title))}</title>\n"
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>\n' + "\n".join(parts) + "\n</svg>\n"
    )


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


def _panel(panel: Panel, scale: _Scale, top: int, colours: dict[str, str]) -> list[str]:
    bottom = top + _PANEL_HEAD + _BAR_STEP * len(panel.bars)
    parts = [_text(16, top + 18, panel.title, size=13, weight="bold")]
    for number in range(scale.num_steps + 1):
        x = scale.x(number * scale.step)
        parts.append(_line(x, top + _PANEL_HEAD - 4, x, bottom, _PALE))
        parts.append(_text(x, bottom + 14, f"{number * scale.step:g}", size=10, anchor="middle"))
    for idx, bar in enumerate(panel.bars):
        parts += _bar(bar, scale, top + _PANEL_HEAD + _BAR_STEP * idx, colours[bar.series])
    return parts


def _bar(bar: Bar, scale: _Scale, top: int, colour: str) -> list[str]:
    spread, middle = bar.spread, top + _BAR_HEIGHT / 2
    least, most = scale.x(spread.least), scale.x(spread.most)
    width = scale.x(spread.median) - scale.left
    parts = [
        _text(scale.left - 8, middle + 4, _cut(bar.label, _MOST_LETTERS), size=12, anchor="end"),
        f'<rect x="{scale.left:.1f}" y="{top}" width="{width:.1f}" height="{_BAR_HEIGHT}" fill="{colour}"/>',
        _line(least, middle, most, middle, _INK),
        _line(least, middle - 4, least, middle + 4, _INK),
        _line(most, middle - 4, most, middle + 4, _INK),
    ]
    figure_at = most
    if bar.limit is not None and scale.has(bar.limit):
        x = scale.x(bar.limit)
        parts.append(_line(x, top - 3, x, top + _BAR_HEIGHT + 3, _LIMIT, width=2))
        figure_at = x if most <= x < most + _FIGURE_WIDTH else most  # beside the mark, not under it
    return [*parts, _text(figure_at + 6, middle + 4, rate_text(spread.median), size=12)]


def _legend(colours: dict[str, str], top: int, has_limit: bool) -> list[str]:
    parts, x = [], 16.0
    for name, colour in colours.items():
        parts.append(f'<rect x="{x:.1f}" y="{top}" width="12" height="12" fill="{colour}"/>')
        parts.append(_text(x + 18, top + 10, name, size=12))
        x += 40 + _LETTER * len(name)
    if has_limit:
        parts.append(_line(x + 6, top - 2, x + 6, top + 14, _LIMIT, width=2))
        parts.append(_text(x + 14, top + 10, "what memory or multiplier allow, where the scale reaches it", size=12))
    return parts


def _text(x: float, y: float, text: str, *, size: int, weight: str = "normal", anchor: str = "start") -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" font-weight="{weight}" text-anchor="{anchor}" '
        f'fill="{_INK}">{escape(_printable(text))}</text>'
    )


def _line(x1: float, y1: float, x2: float, y2: float, colour: str, *, width: int = 1) -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}" stroke-width="{width}"/>'


def _printable(text: str) -> str:
    """Without characters that XML can't hold."""
    return "".join(letter if letter.isprintable() else "\ufffd" for letter in text)


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}\u2026"
