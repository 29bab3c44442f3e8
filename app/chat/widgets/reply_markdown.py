"""A reply as it is being written: Markdown that grows, and always stands as if it had been drawn at once.

Owns the growing: what can no longer change stays as it is, the rest is parsed anew with each piece and compared with
what stands there. Textual's own `append` loses or repeats blocks when a piece ends inside a line, so it is not used;
the blocks themselves are Textual's. Knows nothing of where the text comes from.
"""

from __future__ import annotations

from dataclasses import dataclass

from textual.await_complete import AwaitComplete
from textual.containers import Horizontal
from textual.events import Mount
from textual.geometry import Size
from textual.layout import DockArrangeResult
from textual.widgets import Markdown
from textual.widgets._markdown import (
    MarkdownBlock,
    MarkdownBullet,
    MarkdownFence,
    MarkdownHeader,
    MarkdownList,
    MarkdownParagraph,
)

from app.chat.markdown_rules import reply_parser, settled_lines
from app.chat.widgets.code_fence import CodeFence
from app.chat.widgets.growing_text import put_content
from app.chat.widgets.reply_table import ReplyTable
from app.chat.widgets.steady_layout import steady_size


@dataclass(frozen=True, kw_only=True)
class _OpenBlock:
    """A block that may still change: its widget, the lines it was drawn from, and for a list those of each item."""

    widget: MarkdownBlock
    source: str
    item_sources: tuple[str, ...] = ()


class ReplyMarkdown(Markdown):
    """Markdown to which text is appended with `extend`."""

    BLOCKS = {**Markdown.BLOCKS, "fence": CodeFence, "code_block": CodeFence, "table_open": ReplyTable}

    DEFAULT_CSS = """
    ReplyMarkdown {
        padding: 0;
        MarkdownHeader { margin: 0 0 1 0; }
        MarkdownBlockQuote { margin: 0 0 1 0; }
        MarkdownH1 { content-align: left middle; }
    }
    """

    def __init__(self, markdown: str | None = None, *, classes: str | None = None) -> None:
        super().__init__(markdown, classes=classes, parser_factory=reply_parser, open_links=False)
        self._parser = reply_parser()
        self._open: list[_OpenBlock] = []
        self._open_offset = 0

    def arrange(self, size: Size, optimal: bool = False) -> DockArrangeResult:
        """Places the blocks; those that stand are not measured again."""
        return super().arrange(steady_size(size), optimal)

    async def _on_mount(self, _: Mount) -> None:
        # Textual would clear the document here, and with it what was appended before the mount.
        _.prevent_default()
        if self._initial_markdown:
            await self.update(self._initial_markdown)
            self._initial_markdown = None

    def update(self, markdown: str) -> AwaitComplete:
        """Replaces the document."""

        async def replace() -> None:
            async with self.lock:
                with self.app.batch_update():
                    await self.remove_children()
                    self._markdown, self._open, self._open_offset = "", [], 0
                    await self._grow(markdown)

        return AwaitComplete(replace())

    async def extend(self, text: str) -> None:
        """Appends to the document; on return the widgets stand as if the whole had been drawn at once."""
        if text:
            async with self.lock:
                with self.app.batch_update():
                    await self._grow(text)

    async def _grow(self, text: str) -> None:
        source = self.source + text
        open_text = source[self._open_offset :]
        lines = open_text.split("\n")
        blocks = [
            _OpenBlock(
                widget=block,
                source=_lines_of(lines, block.source_range),
                item_sources=_item_sources(lines, block),
            )
            for block in self._parse_markdown(self._parser.parse(open_text))
        ]
        await self._replace_open(blocks)
        self._markdown = source
        if "\n" in text:
            num_settled = settled_lines(self._parser, open_text)
            self._open = [block for block in self._open if block.widget.source_range[0] >= num_settled]
            self._open_offset += sum(len(line) + 1 for line in lines[:num_settled])

    async def _replace_open(self, blocks: list[_OpenBlock]) -> None:
        """Brings the open blocks to the new state, touching only what differs."""
        kept: list[_OpenBlock] = []
        for old, new in zip(self._open, blocks, strict=False):
            kept.append(await self._replace_one(old, new))
        surplus = self._open[len(blocks) :]
        if surplus:
            await self.remove_children([block.widget for block in surplus])
        added = blocks[len(self._open) :]
        if added:
            await self.mount_all([block.widget for block in added])
        self._open = kept + added

    async def _replace_one(self, old: _OpenBlock, new: _OpenBlock) -> _OpenBlock:
        widget = old.widget
        is_same_kind = type(widget) is type(new.widget)
        widget_stays = _OpenBlock(widget=widget, source=new.source, item_sources=new.item_sources)
        if is_same_kind and old.source == new.source:
            widget.source_range = new.widget.source_range
            return widget_stays
        if is_same_kind and isinstance(widget, MarkdownFence):
            await widget._update_from_block(new.widget)
        elif is_same_kind and isinstance(widget, MarkdownParagraph | MarkdownHeader):
            widget._content = new.widget._content
            put_content(widget, new.widget._content)
        elif is_same_kind and isinstance(widget, MarkdownList):
            await self._replace_items(old, new)
        else:
            await self.mount(new.widget, after=widget)
            await widget.remove()
            return new
        widget.source_range = new.widget.source_range
        return widget_stays

    @staticmethod
    async def _replace_items(old: _OpenBlock, new: _OpenBlock) -> None:
        """Draws a list's items anew from the first one that differs."""
        rows = [row for row in old.widget.children if isinstance(row, Horizontal)]
        fresh = [row for row in new.widget.compose() if isinstance(row, Horizontal)]
        num_same = 0
        sources = zip(old.item_sources, new.item_sources, strict=False)
        for row, fresh_row, (old_source, new_source) in zip(rows, fresh, sources, strict=False):
            if old_source != new_source or _bullet_of(row) != _bullet_of(fresh_row):
                break
            num_same += 1
        if rows[num_same:]:
            await old.widget.remove_children(rows[num_same:])
        if fresh[num_same:]:
            await old.widget.mount_all(fresh[num_same:])


def _lines_of(lines: list[str], source_range: tuple[int, int]) -> str:
    return "\n".join(lines[source_range[0] : source_range[1]])


def _item_sources(lines: list[str], block: MarkdownBlock) -> tuple[str, ...]:
    if not isinstance(block, MarkdownList):
        return ()
    return tuple(_lines_of(lines, item.source_range) for item in block._blocks)


def _bullet_of(row: Horizontal) -> str:
    """The bullet in front of a list's item; a row that is not mounted yet holds its children aside."""
    first = (row._pending_children or row.children)[0]
    return first.symbol if isinstance(first, MarkdownBullet) else ""
