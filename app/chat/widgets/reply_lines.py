"""The blocks of a reply as lines of a width.

Owns the drawing of every kind of block, and the text that is copied when lines are selected. Every line carries where
its text stands in that: its characters are those of one line of the text, from a column on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from rich import box
from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style as RichStyle
from rich.table import Table
from rich.text import Text
from textual.content import Content
from textual.selection import Selection
from textual.strip import Strip
from textual.style import Style
from textual.visual import RenderOptions, RichVisual
from textual.widget import Widget

from app.chat.widgets.reply_blocks import Blank, Block, Code, Grid, Item, Quote, Rule, Words

_RULE = "─"
_QUOTE_EDGE = "▌"
# Of a table: lines above, below, and behind the headers; cells of each column's edge and margins, and of its text.
_FRAME_LINES, _BESIDE_CELL, _LEAST_CELL = 3, 3, 4
_TABLE_STYLES = {
    ".em": RichStyle(italic=True),
    ".strong": RichStyle(bold=True),
    ".s": RichStyle(strike=True),
    ".code_inline": RichStyle(bold=True),
}
_LINK = RichStyle(underline=True)


@dataclass(frozen=True, kw_only=True)
class Pen:
    """What is needed to draw: the style around, and the widget that knows what styles are called."""

    widget: Widget
    style: Style

    def named(self, name: str) -> Pen:
        """The pen for what has a style of its own, on top of the style around it."""
        rules = self.widget.get_component_styles(name)
        background, foreground = self.style.background, self.style.foreground
        if rules.has_rule("background"):
            background = rules.background if background is None else background + rules.background
        if rules.has_rule("auto_color") and rules.auto_color and background is not None:
            foreground = background.get_contrast_text(rules.color.a)
        elif rules.has_rule("color"):
            foreground = rules.color
        look = self.style.rich_style + rules.text_style
        style = Style(
            background, foreground, bold=look.bold, italic=look.italic, underline=look.underline, strike=look.strike
        )
        return Pen(widget=self.widget, style=style)

    @property
    def get_style(self) -> Callable[[str | Style], Style]:
        """Finds a style by its name."""
        return self.widget._get_style

    @property
    def ground(self) -> RichStyle:
        """What stands where no text does."""
        return self.style.background_style.rich_style


@dataclass(kw_only=True)
class Lines:
    """Lines as they are drawn, and the text they show. `first_text_line`: so many lines of text stand before it.

    `whole`: the lines of text that are only selected together, from .. to, counted like these.
    """

    first_text_line: int = 0
    strips: list[Strip] = field(default_factory=list)
    text: list[str] = field(default_factory=list)
    whole: list[tuple[int, int]] = field(default_factory=list)

    @property
    def next_text_line(self) -> int:
        """The number of the text's next line."""
        return self.first_text_line + len(self.text)


def draw(blocks: Sequence[Block], width: int, pen: Pen, lines: Lines, bullet: str = "") -> None:
    """Draws blocks below what stands there. `bullet` stands before them in the text that is copied."""
    for block in blocks:
        match block:
            case Blank():
                lines.strips.append(Strip([Segment(" " * width, pen.ground)], width))
                lines.text.append("")
            case Words(content=content, style=style):
                _draw_words(content, width, pen.named(style) if style else pen, lines, bullet)
            case Code():
                _draw_code(block, width, pen.named("code"), lines)
            case Rule():
                lines.strips.append(Strip([Segment(_RULE * width, pen.named("rule").style.rich_style)], width))
                lines.text.append("---")
            case Grid(rows=rows):
                _draw_grid(rows, width, pen, lines)
            case Item():
                _draw_item(block, width, pen, lines, bullet)
            case Quote(blocks=quoted):
                _draw_quote(quoted, width, pen, lines)
        bullet = " " * len(bullet)


def _draw_words(content: Content, width: int, pen: Pen, lines: Lines, bullet: str) -> None:
    first = lines.next_text_line
    for line in content._wrap_and_format(max(1, width), get_style=pen.get_style):
        if line.y == 0:
            line.x += len(bullet)
        line.y += first
        lines.strips.append(Strip(*line.to_strip(pen.style)).extend_cell_length(width, pen.ground))
    rest = content.plain.split("\n")
    lines.text += [bullet + rest[0], *rest[1:]]


def _draw_code(block: Code, width: int, pen: Pen, lines: Lines) -> None:
    inner = Lines(first_text_line=lines.next_text_line)
    if block.language:
        _draw_words(Content(block.language), width - 2, pen.named("language"), inner, "")
    _draw_words(block.content, width - 2, pen, inner, "")
    margin = [Segment(" ", pen.ground)]
    lines.strips += [Strip([*margin, *strip, *margin], width) for strip in inner.strips]
    lines.text += inner.text


def _draw_item(item: Item, width: int, pen: Pen, lines: Lines, before: str) -> None:
    size = cell_len(item.bullet)
    inner = Lines(first_text_line=lines.next_text_line)
    draw(item.blocks, max(1, width - size), pen, inner, before + item.bullet)
    if not inner.strips:
        draw([Words(content=Content(""))], max(1, width - size), pen, inner, before + item.bullet)
    bullet = [Segment(item.bullet, pen.named("bullet").style.rich_style)]
    indent = [Segment(" " * size, pen.ground)]
    for number, strip in enumerate(inner.strips):
        lines.strips.append(Strip([*(indent if number else bullet), *strip]).crop(0, width))
    lines.text += inner.text
    lines.whole += inner.whole


def _draw_quote(blocks: Sequence[Block], width: int, pen: Pen, lines: Lines) -> None:
    inside = pen.named("quote")
    inner = Lines(first_text_line=lines.next_text_line)
    draw(blocks, max(1, width - 3), inside, inner)
    edge = [Segment(_QUOTE_EDGE, inside.named("edge").style.rich_style), Segment(" ", inside.ground)]
    lines.strips += [Strip([*edge, *strip]).extend_cell_length(width, inside.ground) for strip in inner.strips]
    lines.text += inner.text
    lines.whole += inner.whole


def _draw_grid(rows: Sequence[Sequence[Content]], width: int, pen: Pen, lines: Lines) -> None:
    num_columns = len(rows[0])
    if len(rows) > 1 and width - _BESIDE_CELL * num_columns - 1 < _LEAST_CELL * num_columns:
        drawn = _render(_records(rows), width, pen)
    else:
        drawn = _render(_columns(rows), width, pen)
        if len(drawn) > len(rows) + _FRAME_LINES:  # A cell takes several lines: where its row ends should be seen.
            drawn = _render(_columns(rows, are_rows_parted=True), width, pen)
    first = lines.next_text_line
    for number, strip in enumerate(drawn):
        row = number * len(rows) // len(drawn)
        segments = [
            Segment(text, (style or RichStyle.null()) + RichStyle.from_meta({"offset": (0, first + row)}))
            for text, style, _ in strip
        ]
        lines.strips.append(Strip(segments).extend_cell_length(width, pen.ground))
    lines.text += ["\t".join(cell.plain for cell in row) for row in rows]
    lines.whole.append((first, lines.next_text_line))


def _columns(rows: Sequence[Sequence[Content]], *, are_rows_parted: bool = False) -> Table:
    table = Table(box=box.SQUARE, show_lines=are_rows_parted, header_style=RichStyle(bold=True), pad_edge=True)
    for header in rows[0]:
        table.add_column(_rich_text(header), overflow="fold")
    for row in rows[1:]:
        table.add_row(*map(_rich_text, row))
    return table


def _records(rows: Sequence[Sequence[Content]]) -> Table:
    """Row by row a list of its cells behind their headers: for more columns than there is room for side by side."""
    table = Table(box=box.SQUARE, show_header=False, pad_edge=True)
    table.add_column(style=RichStyle(bold=True), overflow="fold")
    table.add_column(overflow="fold")
    for row in rows[1:]:
        for number, (header, cell) in enumerate(zip(rows[0], row, strict=False), 1):
            table.add_row(_rich_text(header), _rich_text(cell), end_section=number == len(row))
    return table


def _render(table: Table, width: int, pen: Pen) -> list[Strip]:
    """A table in its frame, as wide as it must be."""
    visual = RichVisual(pen.widget, table)
    rules = pen.widget.styles
    table_width = min(width, visual.get_optimal_width(rules, width))  # pyright: ignore[reportArgumentType]
    return visual.render_strips(table_width, None, pen.style, RenderOptions(pen.get_style, rules))  # pyright: ignore[reportArgumentType]


def _rich_text(content: Content) -> Text:
    """The content as Rich knows text, links and emphasis kept."""
    text = Text(content.plain, overflow="fold")
    for span in content.spans:
        if isinstance(span.style, Style):
            text.stylize(span.style.rich_style + _LINK, span.start, span.end)
        else:
            text.stylize(_TABLE_STYLES.get(span.style, RichStyle.null()), span.start, span.end)
    return text


def marked(strip: Strip, selection: Selection, style: RichStyle) -> Strip:
    """The line with what is selected of it in this style."""
    segments: list[Segment] = []
    for segment in strip:
        shown = segment.style
        place = shown.meta.get("offset") if shown is not None and shown._meta else None
        span = selection.get_span(place[1]) if place is not None else None
        if shown is None or place is None or span is None:
            segments.append(segment)
            continue
        start, end = (bound - place[0] for bound in span)
        end = len(segment.text) if span[1] == -1 else max(0, end)
        start = min(max(0, start), end)
        for text, extra in ((segment.text[:start], None), (segment.text[start:end], style), (segment.text[end:], None)):
            if text:
                segments.append(Segment(text, shown + extra if extra is not None else shown))
    return Strip(segments, strip.cell_length)
