"""What a command is: a declaration, and the function that carries it out.

Owns the declaration's fields. Does not know which commands there are (`registry.py`) or which keys the user chose
(`key_table.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from app.chat.screens.chat import ChatScreen

Handler = Callable[["ChatScreen", str], None]
Refusal = Callable[["ChatScreen"], str]


def _always(desk: ChatScreen) -> str:
    return ""


def _nothing(desk: ChatScreen) -> str:
    return ""


@dataclass(frozen=True, kw_only=True)
class Argument:
    """What may stand behind the slash word, up to the end of the message.

    `word` is how help names it (TITLE). A required one is asked for where the command comes from a key or the
    palette; `initial` is what then stands in the question. `choices` completes it while it is typed.
    """

    word: str
    is_optional: bool = False
    question: str = ""
    initial: Callable[[ChatScreen], str] = _nothing
    choices: Callable[[ChatScreen], tuple[str, ...]] | None = None

    @property
    def shown(self) -> str:
        """As help writes it."""
        return f"[{self.word}]" if self.is_optional else self.word


@dataclass(frozen=True, kw_only=True)
class Command:
    """One thing that the user can tell the chat to do.

    `name` is the slash word, and the key of the settings' [keys]. `title` is the palette's line, `help` one sentence
    without a full stop. `keys` are the default keys. `refusal` says in one sentence why it can't be done now, or
    nothing where it can. `handler` gets the screen and the argument ("" without one).
    """

    name: str
    title: str
    help: str
    handler: Handler
    argument: Argument | None = None
    keys: tuple[str, ...] = ()
    refusal: Refusal = _always
    is_global: bool = False
    in_palette: bool = True

    @property
    def usage(self) -> str:
        """The slash word with its argument."""
        return f"/{self.name} {self.argument.shown}" if self.argument else f"/{self.name}"

    @property
    def needs_argument(self) -> bool:
        """Whether it can't be done without one."""
        return self.argument is not None and not self.argument.is_optional

    def choices(self, desk: ChatScreen) -> tuple[str, ...]:
        """What its argument may be just now."""
        return self.argument.choices(desk) if self.argument is not None and self.argument.choices is not None else ()
