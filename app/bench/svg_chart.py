"""A chart as SVG: panels of horizontal bars with whiskers from the least to the most, and the machine's limit.

Owns the drawing, in plain SVG 1.1 that needs no library, script or font.  Does not know rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import floor, log10
from xml.sax.saxutils import escape

from app.bench.charts import Bar, Panel
from app.bench.numbers import rate_text

_WIDTH = 860
_BAR_LEFT, _BAR_WIDTH = 330, 420
_BAR_HEIGHT, _BAR_STEP = 16, 24
_HEAD, _PANEL_HEAD, _PANEL_FOOT, _LEGEND_STEP = 44, 30, 34, 20
_COLOURS = ("#2f6fb4", "#d08a2e", "#7a9e48", "#9a6fb0", "#b3564d")
_INK, _PALE, _LIMIT = "#222222", "#d8d8d8", "#c0392b"
_LETTER = 6.6  # about, at 12 pixels


def svg_chart(panels: Sequence[Panel], *, title: str, subtitle: str) -> str:
    """The whole file."""
    series = list(dict.fromkeys(bar.series for panel in panels for bar in panel.bars))
    colours = {name: _COLOURS[idx % len(_COLOURS)] for idx, name in enumerate(series)}
    parts: list[str] = [_text(16, 22, title, size=15, weight="bold"), _text(16, 38, _cut(subtitle, 130), size=11)]
    top = _HEAD + 8
    for panel in panels:
        parts += _panel(panel, top, colours)
        top += _PANEL_HEAD + _BAR_STEP * len(panel.bars) + _PANEL_FOOT
    parts += _legend(colours, top, any(bar.limit for panel in panels for bar in panel.bars))
    height = top + _LEGEND_STEP + 12
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{height}" '
        f'viewBox="0 0 {_WIDTH} {height}" font-family="Helvetica, Arial, sans-serif">\n'
        f"<title>{escape(title)}</title>\n"
        f'<rect width="{_WIDTH}" height="{height}" fill="#ffffff"/>\n' + "\n".join(parts) + "\n</svg>\n"
    )


def _panel(panel: Panel, top: int, colours: dict[str, str]) -> list[str]:
    step = _tick_step(panel.most)
    end = step * -(-panel.most // step)
    bottom = top + _PANEL_HEAD + _BAR_STEP * len(panel.bars)
    parts = [_text(16, top + 18, panel.title, size=13, weight="bold")]
    for number in range(round(end / step) + 1):
        x = _x(number * step, end)
        parts.append(_line(x, top + _PANEL_HEAD - 4, x, bottom, _PALE))
        parts.append(_text(x, bottom + 14, f"{number * step:g}", size=10, anchor="middle"))
    for idx, bar in enumerate(panel.bars):
        parts += _bar(bar, top + _PANEL_HEAD + _BAR_STEP * idx, end, colours[bar.series])
    return parts


def _bar(bar: Bar, top: int, end: float, colour: str) -> list[str]:
    spread, middle = bar.spread, top + _BAR_HEIGHT / 2
    least, most = _x(spread.least, end), _x(spread.most, end)
    width = _x(spread.median, end) - _BAR_LEFT
    parts = [
        _text(_BAR_LEFT - 8, middle + 4, _cut(bar.label, 48), size=12, anchor="end"),
        f'<rect x="{_BAR_LEFT}" y="{top}" width="{width:.1f}" height="{_BAR_HEIGHT}" fill="{colour}"/>',
        _line(least, middle, most, middle, _INK),
        _line(least, middle - 4, least, middle + 4, _INK),
        _line(most, middle - 4, most, middle + 4, _INK),
        _text(most + 6, middle + 4, rate_text(spread.median), size=12),
    ]
    if bar.limit is not None and bar.limit <= end:
        x = _x(bar.limit, end)
        parts.append(_line(x, top - 3, x, top + _BAR_HEIGHT + 3, _LIMIT, width=2))
    return parts


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


def _x(value: float, end: float) -> float:
    return _BAR_LEFT + value / end * _BAR_WIDTH


def _tick_step(most: float) -> float:
    """1, 2 or 5 times a power of ten, so that there are four to ten ticks."""
    power = 10.0 ** floor(log10(most / 4))
    return power * max(factor for factor in (1, 2, 5) if power * factor <= most / 4)


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
