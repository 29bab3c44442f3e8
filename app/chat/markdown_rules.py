"""How a reply is read as Markdown: the parser's rules, and which lines can no longer change.

Owns the departures from GitHub's Markdown that keep every word of a reply on the screen: HTML, link definitions and
single line breaks are shown as they were written. Knows nothing of widgets.
"""

from __future__ import annotations

from markdown_it import MarkdownIt
from markdown_it.rules_core import StateCore
from markdown_it.token import Token

_RULE_IN_TEXT = "─" * 12


def reply_parser() -> MarkdownIt:
    """A parser of GitHub's tables, strikethrough and links, by which no text is lost."""
    parser = MarkdownIt("gfm-like", {"html": False})
    parser.disable("reference")
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
