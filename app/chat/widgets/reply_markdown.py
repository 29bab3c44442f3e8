"""A reply as it is being written: Markdown that grows, and always stands as if it had been drawn at once.

Owns the growing: what can no longer change stays as it is, the rest is parsed anew with each piece and compared with
what stands there; only what differs is drawn. All of it is one widget: a widget for every block would have to be made,
styled and placed, which takes many times as long as drawing it. Knows nothing of where the text comes from.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field
from urllib.parse import unquote

from textual.content import Content
from textual.geometry import Offset, Region, Size
from textual.message import Message
from textual.selection import Selection
from textual.strip import Strip
from textual.widget import Widget

from app.chat.markdown_rules import reply_parser, settled_lines, top_level_blocks
from app.chat.widgets.code_colours import coloured
from app.chat.widgets.reply_blocks import Piece, pieces_of
from app.chat.widgets.reply_lines import Lines, Pen, draw, marked
from app.chat.widgets.steady_layout import SteadySize


@dataclass(kw_only=True)
class _Standing:
    """A piece that is shown: its lines, once they are drawn, and where they begin; those that were shown already."""

    piece: Piece
    lines: Lines
    first_line: int
    ready: dict[int, Strip] = field(default_factory=dict)


class ReplyMarkdown(SteadySize, Widget):
    """Markdown to which text is appended with `extend`."""

    COMPONENT_CLASSES = {
        *("em", "strong", "s", "code_inline", "h1", "h2", "h3", "h4", "h5", "h6"),
        *("rule", "quote", "edge", "bullet", "code", "language"),
    }

    DEFAULT_CSS = """
    ReplyMarkdown {
        width: 1fr;
        height: auto;
        color: $foreground;
        & > .em { text-style: italic; }
        & > .strong { text-style: bold; }
        & > .s { text-style: strike; }
        &:dark > .code_inline { background: $warning 10%; color: $text-warning 95%; }
        &:light > .code_inline { background: $error 5%; color: $text-error 95%; }
        &:ansi > .code_inline { background: ansi_default; }
        & > .h1 {
            color: $markdown-h1-color;
            background: $markdown-h1-background;
            text-style: $markdown-h1-text-style;
        }
        & > .h2 {
            color: $markdown-h2-color;
            background: $markdown-h2-background;
            text-style: $markdown-h2-text-style;
        }
        & > .h3 {
            color: $markdown-h3-color;
            background: $markdown-h3-background;
            text-style: $markdown-h3-text-style;
        }
        & > .h4 {
            color: $markdown-h4-color;
            background: $markdown-h4-background;
            text-style: $markdown-h4-text-style;
        }
        & > .h5 {
            color: $markdown-h5-color;
            background: $markdown-h5-background;
            text-style: $markdown-h5-text-style;
        }
        & > .h6 {
            color: $markdown-h6-color;
            background: $markdown-h6-background;
            text-style: $markdown-h6-text-style;
        }
        & > .rule { color: $secondary; }
        & > .quote { background: $boost; }
        &:dark > .edge { color: $text-primary 50%; }
        &:light > .edge { color: $text-secondary; }
        &:dark > .bullet { color: $text-primary; }
        &:light > .bullet { color: $text-secondary; }
        & > .code { color: rgb(210,210,210); background: $surface; }
        & > .language { color: $text-muted; text-style: italic; }
    }
    """

    class LinkClicked(Message):
        """A link in the reply was clicked."""

        def __init__(self, href: str) -> None:
            super().__init__()
            self.href = unquote(href)

    def __init__(self, markdown: str | None = None, *, classes: str | None = None) -> None:
        super().__init__(classes=classes)
        self.source = ""
        self._parser = reply_parser()
        self._standing: list[_Standing] = []
        self._num_settled = 0
        self._open_offset = 0
        self._width = 0
        self._is_stale = False
        self._begins_with = markdown or ""

    def on_mount(self) -> None:
        """Shows what it begins with: colours are known now."""
        if self._begins_with:
            self.update(self._begins_with)

    def update(self, markdown: str) -> None:
        """Replaces the document."""
        self.source, self._open_offset, self._num_settled = markdown, 0, 0
        self._standing.clear()
        self.finish()
        self.refresh(layout=True)

    def extend(self, text: str) -> None:
        """Appends to the document; on return it stands as if the whole had been drawn at once."""
        if text:
            self.source += text
            self._parse_open(can_settle="\n" in text)

    def finish(self) -> None:
        """Nothing comes any more: what had to stay open gets its last colours."""
        self._parse_open(is_whole=True)

    @property
    def pieces(self) -> list[Piece]:
        """What stands, from the top."""
        return [standing.piece for standing in self._standing]

    def _parse_open(self, *, can_settle: bool = False, is_whole: bool = False) -> None:
        open_text = self.source[self._open_offset :]
        lines = open_text.split("\n")
        blocks = list(top_level_blocks(self._parser.parse(open_text)))
        num_settled = settled_lines(self._parser, open_text) if can_settle and len(blocks) > 1 else 0
        settled: list[Piece] = []
        still_open: list[Piece] = []
        for place, block in enumerate(blocks):
            start = (block[0].map or (0, 0))[0]
            pieces = pieces_of(block, lines, self._coloured, is_open=not is_whole and place == len(blocks) - 1)
            (settled if start < num_settled else still_open).extend(pieces)
        self._replace_open([*settled, *still_open])
        self._num_settled += len(settled)
        self._open_offset += sum(len(line) + 1 for line in lines[:num_settled])

    def _coloured(self, code: str, language: str) -> Content:
        return coloured(code, language, is_ansi=self.app.native_ansi_color, is_dark=self.app.current_theme.dark)

    def _replace_open(self, pieces: list[Piece]) -> None:
        """Brings the open pieces to the new state: from the first one that differs they are drawn anew."""
        num_same = 0
        for standing, piece in zip(self._standing[self._num_settled :], pieces, strict=False):
            if standing.piece.key != piece.key:
                break
            num_same += 1
        first = self._num_settled + num_same
        before = self._num_lines
        changed_from = self._standing[first].first_line if first < len(self._standing) else before
        del self._standing[first:]
        self._add(pieces[num_same:])
        if self._num_lines != before:
            self.refresh(layout=True)
        elif changed_from < before:
            self.refresh(Region(0, changed_from, max(1, self._width), before - changed_from))

    def _add(self, pieces: list[Piece]) -> None:
        """Draws pieces below what stands; their widths are those that were laid out last."""
        if not self._width:  # Nothing was laid out yet: they are drawn then.
            self._standing += [_Standing(piece=piece, lines=Lines(), first_line=0) for piece in pieces]
            return
        pen = Pen(widget=self, style=self.visual_style)
        for piece in pieces:
            before = self._standing[-1].lines if self._standing else Lines()
            lines = Lines(first_text_line=before.next_text_line)
            first_line = self._num_lines
            draw(piece.blocks, self._width, pen, lines)
            self._standing.append(_Standing(piece=piece, lines=lines, first_line=first_line))

    @property
    def _num_lines(self) -> int:
        last = self._standing[-1] if self._standing else None
        return last.first_line + len(last.lines.strips) if last is not None else 0

    def _draw_stale(self) -> None:
        """Draws everything anew, should its width or its colours be others now."""
        if self._is_stale:
            self._is_stale = False
            pieces = self.pieces
            self._standing.clear()
            self._add(pieces)

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        """The lines it takes in this width."""
        if width > 0 and width != self._width:
            self._width, self._is_stale = width, True
        self._draw_stale()
        return self._num_lines

    def notify_style_update(self) -> None:
        """The theme has changed, perhaps."""
        super().notify_style_update()
        self._is_stale = True  # The colours of what is around may still change: it is drawn when it is shown.

    def render_lines(self, crop: Region) -> list[Strip]:
        """The lines of a part. Ready ones are kept: Textual would make all of them anew whenever one is added."""
        if not self.is_attached:  # Just removed, while what still shows it is drawn once more.
            return [Strip.blank(crop.width)] * crop.height
        if self.text_selection is not None or self.hover_style.link_id or self.opacity < 1 or crop.x:
            return super().render_lines(crop)
        self._draw_stale()
        filters = self.get_line_filters()
        _, background = self.background_colors
        strips: list[Strip] = []
        for y in range(crop.y, crop.bottom):
            standing = self._standing_at(y)
            strip = standing.ready.get(y) if standing is not None else None
            if strip is None:
                strip = self.render_line(y).adjust_cell_length(crop.width)
                for line_filter in filters:
                    strip = strip.apply_filter(line_filter, background)
                if standing is not None:
                    standing.ready[y] = strip
            strips.append(strip.adjust_cell_length(crop.width))
        return strips

    def render_line(self, y: int) -> Strip:
        """One line, the selected part of it marked."""
        self._draw_stale()
        standing = self._standing_at(y)
        if standing is None:
            return Strip.blank(self.size.width, self.visual_style.rich_style)
        strip = standing.lines.strips[y - standing.first_line]
        if (selection := self.text_selection) is not None:
            strip = marked(strip, self._widened(selection), self.screen.get_component_rich_style("screen--selection"))
        return strip._apply_link_style(self.link_style) if self.auto_links else strip

    def _standing_at(self, y: int) -> _Standing | None:
        place = bisect_right(self._standing, y, key=lambda standing: standing.first_line) - 1
        return self._standing[place] if place >= 0 and y < self._num_lines else None

    # What is selected.

    def get_selection(self, selection: Selection) -> tuple[str, str] | None:
        """The text that is selected: as it was written, not as it is broken into lines; a table by tabs."""
        text = "\n".join(line for standing in self._standing for line in standing.lines.text)
        return self._widened(selection).extract(text).rstrip(), "\n"

    def _widened(self, selection: Selection) -> Selection:
        """The selection with the whole of each table that it begins or ends in."""
        start, end = selection
        for standing in self._standing:
            for first, behind in standing.lines.whole:
                if start is not None and first <= start.y < behind:
                    start = Offset(0, first)
                if end is not None and first <= end.y < behind:
                    end = Offset(len(standing.lines.text[behind - 1 - standing.lines.first_text_line]), behind - 1)
        return Selection(start, end)

    def selection_updated(self, selection: Selection | None) -> None:
        """Another part is selected."""
        self.refresh()

    async def action_link(self, href: str) -> None:
        """A link was clicked."""
        self.post_message(self.LinkClicked(href))
