"""What a reply's Markdown consists of: blocks as values, made from the parser's tokens.

Owns the kinds of blocks, and which blank lines stand between them. Blocks at the top are handed out in small pieces (an
item of a list, some lines of code), each with the text it came from: where that has not changed, the piece need not be
drawn again. Knows nothing of widths, colours and the screen.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from markdown_it.token import Token
from textual.content import Content, Span
from textual.style import Style

from app.chat.markdown_rules import top_level_blocks

_BULLETS = ("• ", "▪ ", "‣ ", "⭑ ", "◦ ")
_PICTURE = "🖼  "
_SPACES = re.compile(r"\s+")
_INLINE_STYLES = {"em_open": ".em", "strong_open": ".strong", "s_open": ".s"}
_CODE_LINES = 32

Colours = Callable[[str, str], Content]
"""Gives code (the first text) the colours of its language (the second)."""


@dataclass(frozen=True, kw_only=True)
class Blank:
    """An empty line."""


@dataclass(frozen=True, kw_only=True)
class Words:
    """A paragraph or a heading. `style`: the name of its own style, empty for a paragraph."""

    content: Content
    style: str = ""


@dataclass(frozen=True, kw_only=True)
class Code:
    """Lines of code, and in front of them the language where one is named."""

    content: Content
    language: str = ""


@dataclass(frozen=True, kw_only=True)
class Rule:
    """A line across."""


@dataclass(frozen=True, kw_only=True)
class Grid:
    """A table: the row of headers first."""

    rows: tuple[tuple[Content, ...], ...]


@dataclass(frozen=True, kw_only=True)
class Item:
    """One item of a list, its bullet with all the blanks around it."""

    bullet: str
    blocks: tuple[Block, ...]


@dataclass(frozen=True, kw_only=True)
class Quote:
    """A quotation."""

    blocks: tuple[Block, ...]


Block = Blank | Words | Code | Rule | Grid | Item | Quote


@dataclass(frozen=True, kw_only=True)
class Piece:
    """Blocks at the top that are drawn together. Two pieces of one `key` look the same."""

    key: tuple[object, ...]
    blocks: tuple[Block, ...]


@dataclass(frozen=True, kw_only=True)
class _Place:
    """Where blocks stand: inside of a list or at the top, and in how many bulleted lists."""

    is_top: bool = False
    is_in_list: bool = False
    num_bulleted: int = 0


def pieces_of(tokens: Sequence[Token], lines: Sequence[str], colours: Colours, *, is_open: bool) -> list[Piece]:
    """One block at the top in pieces. `lines`: those that it was parsed from. `is_open`: more of it may come.

    Code that may grow is coloured some lines at a time, the whole of it once it is complete.
    """
    first = tokens[0]
    if first.type in ("fence", "code_block"):
        return [*_code_pieces(first, colours, is_open=is_open), _blank_piece()]
    if first.type in ("bullet_list_open", "ordered_list_open"):
        items = list(top_level_blocks(tokens[1:-1], level=first.level + 1))
        bullets = _bullets(first, items, _Place())
        return [*(_item_piece(*pair, lines, colours) for pair in zip(items, bullets, strict=True)), _blank_piece()]
    blocks = tuple(_blocks_of(tokens, colours, _Place(is_top=True)))
    return [Piece(key=(first.type, first.tag, _source(tokens, lines)), blocks=blocks)]


def _blank_piece() -> Piece:
    return Piece(key=("blank",), blocks=(Blank(),))


def _item_piece(item: Sequence[Token], bullet: str, lines: Sequence[str], colours: Colours) -> Piece:
    return Piece(key=("item", bullet, _source(item, lines)), blocks=(_item(item, bullet, colours, _Place()),))


def _source(tokens: Sequence[Token], lines: Sequence[str]) -> str:
    start, end = tokens[0].map or (0, 0)
    return "\n".join(lines[start:end])


def _code_pieces(token: Token, colours: Colours, *, is_open: bool) -> Iterator[Piece]:
    code, language = token.content.rstrip(), token.info
    lines = code.splitlines() or [""]
    whole = None if is_open or len(lines) <= _CODE_LINES else colours(code, language).split("\n", allow_blank=True)
    for start in range(0, len(lines), _CODE_LINES):
        part = "\n".join(lines[start : start + _CODE_LINES])
        named = language if start == 0 else ""
        content = colours(part, language) if whole is None else Content("\n").join(whole[start : start + _CODE_LINES])
        yield Piece(key=("code", language, start, whole is None, part), blocks=(Code(content=content, language=named),))


def _blocks_of(tokens: Sequence[Token], colours: Colours, place: _Place) -> Iterator[Block]:
    """The blocks that stand side by side in these tokens, with the blank lines behind them."""
    for block in top_level_blocks(tokens, level=tokens[0].level if tokens else 0):
        first, inner = block[0], block[1:-1]
        match first.type:
            case "paragraph_open":
                yield Words(content=inline_content(inner[0]))
                if place.is_top:
                    yield Blank()
                continue
            case "heading_open":
                yield Words(content=inline_content(inner[0]), style=first.tag)
            case "hr":
                yield Rule()
            case "fence" | "code_block":
                yield Code(content=colours(first.content.rstrip(), first.info), language=first.info)
            case "table_open":
                yield Grid(rows=tuple(_rows(inner)))
            case "blockquote_open":
                inside = _Place(is_in_list=place.is_in_list, num_bulleted=place.num_bulleted)
                yield Quote(blocks=tuple(_blocks_of(inner, colours, inside)))
            case "bullet_list_open" | "ordered_list_open":
                items = list(top_level_blocks(inner, level=first.level + 1))
                for item, bullet in zip(items, _bullets(first, items, place), strict=True):
                    yield _item(item, bullet, colours, place)
                if place.is_in_list:
                    continue
        yield Blank()


def _item(item: Sequence[Token], bullet: str, colours: Colours, place: _Place) -> Item:
    num_bulleted = place.num_bulleted + (not item[0].info)
    inside = _Place(is_in_list=True, num_bulleted=num_bulleted)
    return Item(bullet=bullet, blocks=tuple(_blocks_of(item[1:-1], colours, inside)))


def _bullets(opening: Token, items: Sequence[Sequence[Token]], place: _Place) -> list[str]:
    if opening.type == "bullet_list_open":
        return [_BULLETS[place.num_bulleted % len(_BULLETS)]] * len(items)
    first = int(items[0][0].info) if items and items[0][0].info.isdecimal() else 1
    numbers = [f"{number}. " for number in range(first, first + len(items))]
    width = max(map(len, numbers), default=0) + 1
    return [number.rjust(width) for number in numbers]


def _rows(tokens: Sequence[Token]) -> Iterator[tuple[Content, ...]]:
    row: list[Content] = []
    for token in tokens:
        if token.type == "tr_open":
            row = []
        elif token.type == "inline":
            row.append(inline_content(token))
        elif token.type == "tr_close":
            yield tuple(row)


def inline_content(token: Token) -> Content:
    """Text with its emphasis, code and links."""
    texts: list[str] = []
    spans: list[Span] = []
    begun: list[tuple[int, str | Style]] = []
    position = 0
    for child in token.children or ():
        text = ""
        match child.type:
            case "text":
                text = _SPACES.sub(" ", child.content)
            case "hardbreak":
                text = "\n"
            case "softbreak":
                text = " "
            case "code_inline":
                text = child.content
                spans.append(Span(position, position + len(text), ".code_inline"))
            case "image":
                text = _PICTURE + "".join(part.content for part in child.children or ())
                spans.append(Span(position, position + len(text), _link_to(child.attrs.get("src", ""))))
            case "link_open":
                begun.append((position, _link_to(child.attrs.get("href", ""))))
            case kind if kind in _INLINE_STYLES:
                begun.append((position, _INLINE_STYLES[kind]))
            case kind if kind.endswith("_close"):
                start, style = begun.pop()
                spans.append(Span(start, position, style))
            case _:
                text = child.content
        texts.append(text)
        position += len(text)
    return Content("".join(texts), spans=spans)


def _link_to(address: object) -> Style:
    return Style.from_meta({"@click": f"link({str(address)!r})"})
