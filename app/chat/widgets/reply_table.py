"""A table of a reply as one widget: cheap to draw again while it grows, every cell whole at any width.

Owns the drawing. Cells are content that was parsed already: nothing in them is read as markup.
"""

from __future__ import annotations

from rich import box
from rich.style import Style as RichStyle
from rich.table import Table
from rich.text import Text
from textual.app import ComposeResult
from textual.content import Content
from textual.selection import Selection
from textual.style import Style
from textual.widgets import Markdown, Static
from textual.widgets._markdown import MarkdownTable

_RICH_STYLES = {
    ".em": RichStyle(italic=True),
    ".strong": RichStyle(bold=True),
    ".s": RichStyle(strike=True),
    ".code_inline": RichStyle(bold=True),
}
_LINK = RichStyle(underline=True)


def rich_text(content: Content) -> Text:
    """The content as Rich knows text, links and emphasis kept."""
    text = Text(content.plain, overflow="fold")
    for span in content.spans:
        if isinstance(span.style, Style):
            text.stylize(span.style.rich_style + _LINK, span.start, span.end)
        else:
            text.stylize(_RICH_STYLES.get(span.style, RichStyle.null()), span.start, span.end)
    return text


class TableGrid(Static):
    """Headers and rows, ruled."""

    DEFAULT_CSS = """
    TableGrid {
        width: auto;
        max-width: 100%;
        height: auto;
    }
    """

    def __init__(self, headers: list[Content], rows: list[list[Content]]) -> None:
        grid = Table(box=box.SQUARE, show_lines=False, header_style=RichStyle(bold=True), pad_edge=True)
        for header in headers:
            grid.add_column(rich_text(header), overflow="fold")
        for row in rows:
            grid.add_row(*map(rich_text, row))
        self.cells = [[cell.plain for cell in row] for row in [headers, *rows]]
        super().__init__(grid)

    def get_selection(self, selection: Selection) -> tuple[str, str] | None:
        """The whole table, cells parted by tabs: a spreadsheet takes it as it is."""
        return "\n".join("\t".join(row) for row in self.cells), "\n"

    async def action_link(self, href: str) -> None:
        """Passes a click on a link on to the document."""
        self.post_message(Markdown.LinkClicked(self.query_ancestor(Markdown), href))


class ReplyTable(MarkdownTable):
    """The block of a table."""

    def compose(self) -> ComposeResult:
        headers, rows = self._get_headers_and_rows()
        yield TableGrid(headers, rows)
