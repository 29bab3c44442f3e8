"""How a reply is read as Markdown: the parser's rules, and which lines can no longer change.

Owns the departures from GitHub's Markdown that keep every word of a reply on the screen: HTML, link definitions,
single line breaks, cells beyond a table's last column and nesting beyond measure are shown as they were written.
Knows nothing of widgets.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from markdown_it import MarkdownIt
from markdown_it.rules_block.table import escapedSplit
from markdown_it.rules_core import StateCore
from markdown_it.token import Token

_RULE_IN_TEXT = "─" * 12
# The parser leaves out what is nested deeper than its limit; a block that comes near it is shown as its source.
_PARSER_NESTING = 60
_SHOWN_NESTING = 18
_QUOTE_MARKS = re.compile(r"[\s>]*")


def reply_parser() -> MarkdownIt:
    """A parser of GitHub's tables, strikethrough and links, by which no text is lost."""
    parser = MarkdownIt("gfm-like", {"html": False, "maxNesting": _PARSER_NESTING})
    parser.disable("reference")
    parser.core.ruler.after("block", "keep_surplus_cells", _keep_surplus_cells)
    parser.core.ruler.after("keep_surplus_cells", "keep_the_deep", _keep_the_deep)
    parser.core.ruler.push("keep_line_breaks", _keep_line_breaks)
    parser.core.ruler.push("keep_inner_rules", _keep_inner_rules)
    return parser


def settled_lines(parser: MarkdownIt, text: str) -> int:
    """How many lines from the start belong to blocks that no text appended to `text` can change.

    A block that has begun can still change its kind (a heading underlined by `=`, a paragraph that turns out to be a
    table, a list item that continues), and so can anything that an unfinished line seems to end. So only whole lines
    count, and the last block they hold is left open.
    """
    whole_lines = text[: text.rfind("\n") + 1]
    starts = [token.map[0] for token in parser.parse(whole_lines) if token.level == 0 and token.map is not None]
    return max(starts, default=0)


def _keep_surplus_cells(state: StateCore) -> None:
    """Cells beyond the last column (a `|` in code, mostly) are put into the last column's cell."""
    lines = state.src.split("\n")
    row: list[str] = []
    cells: list[Token] = []
    for token in state.tokens:
        if token.type == "tr_open" and token.map is not None:
            row = _split_row(lines[token.map[0]])
            cells = []
        elif token.type == "inline" and row:
            cells.append(token)
        elif token.type == "tr_close":
            if cells and len(row) > len(cells):
                cells[-1].content = " | ".join(cell.strip() for cell in row[len(cells) - 1 :])
            row = []


def _split_row(line: str) -> list[str]:
    """A table's row in cells, as the parser itself splits it."""
    columns = escapedSplit(_QUOTE_MARKS.sub("", line, count=1).rstrip())
    if columns and not columns[0].strip():
        columns.pop(0)
    if columns and not columns[-1].strip():
        columns.pop()
    return columns


def _keep_the_deep(state: StateCore) -> None:
    """A block with too many levels becomes a code block of its source."""
    if all(token.level < _SHOWN_NESTING for token in state.tokens):
        return
    lines = state.src.split("\n")
    tokens: list[Token] = []
    for block in top_level_blocks(state.tokens):
        place = block[0].map
        if place is not None and any(token.level >= _SHOWN_NESTING for token in block):
            source = "\n".join(lines[place[0] : place[1]])
            block = [Token("fence", "code", 0, map=place, content=source, block=True)]
        tokens += block
    state.tokens = tokens


def top_level_blocks(tokens: Iterable[Token], *, level: int = 0) -> Iterator[list[Token]]:
    """The tokens of each block by itself; with level 1, those of each item inside a list's own two tokens."""
    block: list[Token] = []
    for token in tokens:
        block.append(token)
        if token.level == level and token.nesting <= 0:
            yield block
            block = []


def _keep_line_breaks(state: StateCore) -> None:
    """A single line break in a reply (a poem, an address) is shown as one."""
    for token in state.tokens:
        for child in token.children or ():
            if child.type == "softbreak":
                child.type = "hardbreak"


def _keep_inner_rules(state: StateCore) -> None:
    """A rule inside a list or a quotation becomes a paragraph, since the widget has no place for it there."""
    tokens: list[Token] = []
    for token in state.tokens:
        if token.type == "hr" and token.level > 0:
            tokens += _paragraph_of(_RULE_IN_TEXT, token)
        else:
            tokens.append(token)
    state.tokens = tokens


def _paragraph_of(text: str, place: Token) -> list[Token]:
    opening = Token("paragraph_open", "p", 1, level=place.level, map=place.map, block=True)
    word = Token("text", "", 0, content=text)
    inline = Token("inline", "", 0, level=place.level + 1, map=place.map, content=text, children=[word], block=True)
    closing = Token("paragraph_close", "p", -1, level=place.level, block=True)
    return [opening, inline, closing]
