"""Text as it may stand on a terminal: control characters made visible, line ends made one kind.

Owns the table of what is replaced by what. Knows nothing of Textual; what is stored and what is sent to the model
stays as it was, only what is shown (or typed and pasted) passes through here.
"""

from __future__ import annotations

from rich.cells import cell_len

_CONTROL_PICTURES = 0x2400
_DELETE = 0x7F
_REPLACEMENT = "\ufffd"
_TEXT_CONTROLS = (0x09, 0x0A)
# Embeddings, overrides and isolates reorder everything that follows them on a terminal that honours them.
_REORDERING = (*range(0x202A, 0x202F), *range(0x2066, 0x206A))


def _replacements() -> dict[int, str]:
    table = {code: chr(_CONTROL_PICTURES + code) for code in range(0x20) if code not in _TEXT_CONTROLS}
    table[_DELETE] = "\u2421"
    table |= dict.fromkeys(range(0x80, 0xA0), _REPLACEMENT)
    table |= dict.fromkeys(_REORDERING, _REPLACEMENT)
    table |= dict.fromkeys(range(0xD800, 0xE000), _REPLACEMENT)
    table |= {0x85: "\n", 0x2028: "\n", 0x2029: "\n"}
    return table


_REPLACED = _replacements()


def neutralise(text: str) -> str:
    """The text with every control character (save newline and tab) shown as a picture such as `␛`.

    Line ends of any kind become newlines; half surrogates and characters that reorder a line become U+FFFD.
    """
    return with_newlines(text).translate(_REPLACED)


def with_newlines(text: str) -> str:
    """The text with carriage returns, alone or before a newline, as newlines; everything else as it was."""
    return text.replace("\r\n", "\n").replace("\r", "\n")


def one_line(text: str) -> str:
    """Neutralised, with every run of blanks and newlines as one blank: for names, titles and errors."""
    return " ".join(neutralise(text).split())


def columns_of(text: str) -> int:
    """The columns that one line of text takes on a terminal."""
    return cell_len(text)


def shortened(text: str, limit: int) -> str:
    """The text in at most `limit` columns, the last an ellipsis where something was left out."""
    if cell_len(text) <= limit:
        return text
    kept, columns = "", 0
    for char in text:
        columns += cell_len(char)
        if columns >= limit:
            break
        kept += char
    return kept + "…"


class NeutralisingStream:
    """Neutralises a text that comes in pieces: a carriage return at the end of a piece waits for the next one."""

    def __init__(self) -> None:
        self._held_return = ""

    def feed(self, piece: str) -> str:
        """What may be shown after this piece."""
        text = self._held_return + piece
        self._held_return = "\r" if text.endswith("\r") else ""
        return neutralise(text[: len(text) - len(self._held_return)])

    def finish(self) -> str:
        """What was held back, once nothing follows."""
        held, self._held_return = self._held_return, ""
        return neutralise(held)
