"""What can go wrong with a model, and how names from a file are shown.

Owns the error tree of this room and the escaping of text that nobody has vouched for.  Does not know who reads the
messages: the command line and the chat print them as they are.
"""

from __future__ import annotations

import unicodedata

SHOWN_CHARACTERS = 80
"""How much of a name or value a message quotes."""


def escaped(text: str) -> str:
    r"""The text with everything written out that could steer a terminal: ESC becomes \x1b, a line break \n.

    Letters of any script, marks, symbols and blanks of any width stay.  Bytes that were not UTF-8 (lone surrogates from
    the `surrogateescape` error handler) come out as \xNN.
    """
    if text.isprintable():
        return text
    return "".join(map(_escaped_character, text))


def quoted(text: str, *, limit: int | None = SHOWN_CHARACTERS) -> str:
    """The escaped text in single quotes, cut with an ellipsis when it is longer than `limit` characters."""
    if limit is not None and len(text) > limit:
        text = text[: limit - 1] + "…"
    return f"'{escaped(text)}'"


def _escaped_character(character: str) -> str:
    if character.isprintable() or unicodedata.category(character) == "Zs":
        return character
    if "\udc80" <= character <= "\udcff":
        return f"\\x{ord(character) - 0xDC00:02x}"
    return character.encode("unicode_escape").decode("ascii")


class ModelError(Exception):
    """Something is wrong with a model.  The message is one sentence for the user.

    Line breaks are kept, every other control character is escaped here too, so that a message built from a stranger's
    words cannot reach the terminal raw.
    """

    def __init__(self, message: str) -> None:
        super().__init__("\n".join(map(escaped, message.split("\n"))))


class FileError(ModelError):
    """A model file cannot be opened, is cut, is damaged, or is not what it should be."""


class TensorError(ModelError):
    """A tensor is missing, has an unexpected shape or format, or does not lie inside the file."""


class AdapterError(ModelError):
    """A LoRA adapter can't be applied, or not to this model."""


class VocabularyError(ModelError):
    """The vocabulary in the file is incomplete, inconsistent or of a kind that is not supported."""


class TemplateError(ModelError):
    """The chat template is broken, refuses the messages, or reaches for what it must not have."""


class ArchitectureError(ModelError):
    """The architecture is unknown or its hyper-parameters do not fit together."""


class DownloadError(ModelError):
    """A model could not be found, fetched or verified."""


class OfflineError(DownloadError):
    """A model is not on this machine, and downloads are off."""
