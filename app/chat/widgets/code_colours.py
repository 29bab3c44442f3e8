"""The colours of code in a reply, by its language.

Owns the choice of the language: what stands behind a fence's marks is text as well.
"""

from __future__ import annotations

from functools import lru_cache

from textual.content import Content
from textual.highlight import ANSIDarkHighlightTheme, ANSILightHighlightTheme, HighlightTheme, highlight

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


def coloured(code: str, info: str, *, is_ansi: bool, is_dark: bool) -> Content:
    """The code with colours, or plain where the language is not known: guessing one tries every lexer there is."""
    language = known_language(info)
    if not language:
        return Content(code.expandtabs(_TAB_SIZE))
    ansi = ANSIDarkHighlightTheme if is_dark else ANSILightHighlightTheme
    return highlight(code, language=language, theme=ansi if is_ansi else HighlightTheme)
