"""A code block of a reply: coloured by its language, wrapped where the terminal is narrow.

Owns the choice of the language, and the line that names it: what stands behind the fence's marks is text as well.
Knows nothing of streaming: it is given the whole code each time.
"""

from __future__ import annotations

from contextlib import suppress
from functools import lru_cache

from textual.app import ComposeResult
from textual.content import Content
from textual.css.query import NoMatches
from textual.widgets import Label
from textual.widgets.markdown import MarkdownFence

from app.chat.widgets.growing_text import put_content

_TAB_SIZE = 4


@lru_cache(maxsize=256)
def known_language(info: str) -> str:
    """The language that a fence names, as Pygments calls it; empty where it names none or an unknown one.

    Looking up a name that nobody knows searches every installed plug-in, which is too slow to repeat while streaming.
    """
    from pygments.lexers import get_lexer_by_name
    from pygments.util import ClassNotFound

    words = info.split()
    if not words:
        return ""
    try:
        get_lexer_by_name(words[0])
    except ClassNotFound:
        return ""
    return words[0]


class CodeFence(MarkdownFence):
    """A fence that never guesses a language (guessing tries every lexer there is) and shows long lines whole."""

    DEFAULT_CSS = """
    CodeFence {
        margin: 0 0 1 0;
        background: $surface;
        overflow: hidden hidden;
        & > Label {
            padding: 0 1;
            width: 1fr;
            text-wrap: wrap;
        }
        & > .language {
            color: $text-muted;
            text-style: italic;
            display: none;
        }
        &.-named > .language {
            display: block;
        }
    }
    """

    def compose(self) -> ComposeResult:
        yield Label(Content(self.lexer), classes="language")
        yield from super().compose()

    def on_mount(self) -> None:
        self.set_class(bool(self.lexer), "-named")

    def set_content(self, content: Content) -> None:
        self._content = content
        self.set_class(bool(self.lexer), "-named")
        with suppress(NoMatches):
            put_content(self.query_one("#code-content", Label), content)
            put_content(self.query_one(".language", Label), Content(self.lexer))

    @classmethod
    def highlight(cls, code: str, language: str, ansi: bool = False, dark: bool = False) -> Content:
        """The code with colours, or plain where the language is not known."""
        known = known_language(language)
        if not known:
            return Content(code.expandtabs(_TAB_SIZE))
        return super().highlight(code, known, ansi=ansi, dark=dark)
