"""A reply as it is being written: Markdown that grows, and always stands as if it had been drawn at once.

Owns the growing: what can no longer change stays as it is, the rest is parsed anew with each piece and compared with
what stands there; widgets are made only for what differs. Textual's own `append` loses or repeats blocks when a piece
ends inside a line, so it is not used; the blocks themselves are Textual's. Knows nothing of where the text comes from.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from markdown_it.token import Token
from textual.await_complete import AwaitComplete
from textual.containers import Horizontal
from textual.events import Mount
from textual.geometry import Size
from textual.layout import DockArrangeResult
from textual.widget import Widget
from textual.widgets import Markdown
from textual.widgets._markdown import (
    MarkdownBlock,
    MarkdownBullet,
    MarkdownFence,
    MarkdownHeader,
    MarkdownList,
    MarkdownParagraph,
)

from app.chat.markdown_rules import reply_parser, settled_lines, top_level_blocks
from app.chat.widgets.blank_ground import BlankGround
from app.chat.widgets.code_fence import CodeFence
from app.chat.widgets.growing_text import put_content
from app.chat.widgets.reply_table import ReplyTable
from app.chat.widgets.steady_layout import steady_size


@dataclass(frozen=True, kw_only=True)
class _Part:
    """A block as it was parsed: its tokens and the lines it came from, and for a list those of each item."""

    tokens: list[Token]
    source: str
    items: tuple[list[Token], ...] = ()
    item_sources: tuple[str, ...] = ()

    @property
    def source_range(self) -> tuple[int, int]:
        """The lines, counted from the first open one."""
        return _range_of(self.tokens)

    @property
    def kind(self) -> str:
        """The name by which Textual knows the class of its widget."""
        first = self.tokens[0]
        return first.tag if first.type == "heading_open" else first.type

    def items_from(self, number: int) -> list[Token]:
        """The tokens of the list without its first items, those behind them numbered as they were."""
        opening, closing = self.tokens[0], self.tokens[-1]
        kept = [token for item in self.items[number:] for token in item]
        if kept[0].info:  # of a numbered list only the first number counts
            kept[0] = kept[0].copy(info=str(int(self.items[0][0].info) + number))
        return [opening, *kept, closing]


@dataclass(frozen=True, kw_only=True)
class _OpenBlock:
    """A block that may still change: its widget, and what it was drawn from."""

    widget: MarkdownBlock
    part: _Part


class ReplyMarkdown(BlankGround, Markdown):
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
        await self._replace_open(
            [_part_of(tokens, lines) for tokens in top_level_blocks(self._parser.parse(open_text))]
        )
        self._markdown = source
        if "\n" in text:
            num_settled = settled_lines(self._parser, open_text)
            self._open = [block for block in self._open if block.part.source_range[0] >= num_settled]
            self._open_offset += sum(len(line) + 1 for line in lines[:num_settled])

    async def _replace_open(self, parts: list[_Part]) -> None:
        """Brings the open blocks to the new state; only what differs is made anew."""
        kept = [await self._replace_one(old, new) for old, new in zip(self._open, parts, strict=False)]
        surplus = self._open[len(parts) :]
        if surplus:
            await self.remove_children([block.widget for block in surplus])
        added = [_OpenBlock(widget=self._built(part), part=part) for part in parts[len(self._open) :]]
        if added:
            await self.mount_all([block.widget for block in added])
        self._open = kept + added

    def _built(self, part: _Part, tokens: list[Token] | None = None) -> MarkdownBlock:
        """A widget for the block, or for the tokens that are wanted of it."""
        (widget,) = self._parse_markdown(tokens or part.tokens)
        return _as_built(widget)

    async def _replace_one(self, old: _OpenBlock, new: _Part) -> _OpenBlock:
        widget = old.widget
        is_same_kind = type(widget) is self.get_block_class(new.kind)
        if not is_same_kind or not (old.part.source == new.source or await self._change(old, new)):
            fresh = self._built(new)
            await self.mount(fresh, after=widget)
            await widget.remove()
            return _OpenBlock(widget=fresh, part=new)
        widget.source_range = new.source_range
        return _OpenBlock(widget=widget, part=new)

    async def _change(self, old: _OpenBlock, new: _Part) -> bool:
        """Changes a widget to a block of its own kind; False where it has to be made anew."""
        if isinstance(old.widget, MarkdownList):
            return await self._change_items(old, new)
        return await _change_text(old.widget, lambda: self._built(new))

    async def _change_items(self, old: _OpenBlock, new: _Part) -> bool:
        """Draws a list's items from the first one that differs; that one is changed in place where it can be."""
        rows = [row for row in old.widget.children if isinstance(row, Horizontal)]
        num_same = 0
        for old_source, new_source, _ in zip(old.part.item_sources, new.item_sources, rows, strict=False):
            if old_source != new_source:
                break
            num_same += 1
        if num_same == len(new.items):
            return len(rows) == num_same
        fresh = [row for row in self._built(new, new.items_from(num_same)).compose() if isinstance(row, Horizontal)]
        if rows and len(_bullet_of(rows[0])) != len(_bullet_of(fresh[0])):
            return False  # All bullets get another width.
        changed = rows[num_same:]
        if changed and _bullet_of(changed[0]) == _bullet_of(fresh[0]) and await _change_row(changed[0], fresh[0]):
            changed, fresh = changed[1:], fresh[1:]
        if changed:
            await old.widget.remove_children(changed)
        if fresh:
            await old.widget.mount_all(fresh)
        return True


async def _change_text(widget: Widget, built: Callable[[], Widget]) -> bool:
    """Changes what a block of code or a single text says; False where it is neither."""
    if isinstance(widget, MarkdownFence):
        fresh = built()
        assert isinstance(fresh, MarkdownFence), "it is of the same kind"
        await widget._update_from_block(fresh)
    elif isinstance(widget, MarkdownParagraph | MarkdownHeader):
        fresh = built()
        assert isinstance(fresh, MarkdownBlock), "it is of the same kind"
        widget._content = fresh._content
        put_content(widget, fresh._content)
    else:
        return False
    return True


async def _change_row(row: Horizontal, fresh: Horizontal) -> bool:
    """Changes an item of a list to one of the same parts; False where they differ in kind, or hold others in turn."""
    parts = list(row.children[1].children)
    fresh_parts = list(fresh._pending_children[1]._pending_children)
    if list(map(type, parts)) != list(map(type, fresh_parts)):
        return False
    if not all(isinstance(part, MarkdownFence | MarkdownParagraph | MarkdownHeader) for part in parts):
        return False
    for part, fresh_part in zip(parts, fresh_parts, strict=True):
        await _change_text(part, lambda fresh_part=fresh_part: fresh_part)
    return True


def _part_of(tokens: list[Token], lines: list[str]) -> _Part:
    is_list = tokens[0].type in ("bullet_list_open", "ordered_list_open")
    items = tuple(top_level_blocks(tokens[1:-1], level=1)) if is_list else ()
    return _Part(
        tokens=tokens,
        source=_lines_of(lines, _range_of(tokens)),
        items=items,
        item_sources=tuple(_lines_of(lines, _range_of(item)) for item in items),
    )


def _range_of(tokens: list[Token]) -> tuple[int, int]:
    first, last = tokens[0].map or (0, 0)
    return first, last


def _as_built(block: MarkdownBlock) -> MarkdownBlock:
    """The block without its wish to be laid out: mounting it does that, and once is enough."""
    block._layout_required = False
    for part in block._blocks:
        _as_built(part)
    return block


def _lines_of(lines: list[str], source_range: tuple[int, int]) -> str:
    return "\n".join(lines[source_range[0] : source_range[1]])


def _bullet_of(row: Horizontal) -> str:
    """The bullet in front of a list's item; a row that is not mounted yet holds its children aside."""
    first = (row._pending_children or row.children)[0]
    return first.symbol if isinstance(first, MarkdownBullet) else ""
