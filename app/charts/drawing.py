"""A drawing as data: lines, boxes and texts with their places in pixels, whatever file they end up in.

Owns the shapes.  Does not know what is drawn with them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

INK = "#222222"
PAPER = "#ffffff"


@dataclass(frozen=True, kw_only=True)
class Line:
    """A straight line; colour as #rrggbb, width in pixels."""

    x1: float
    y1: float
    x2: float
    y2: float
    colour: str = INK
    width: int = 1


@dataclass(frozen=True, kw_only=True)
class Box:
    """A filled rectangle from its upper left corner."""

    x: float
    y: float
    width: float
    height: float
    colour: str


@dataclass(frozen=True, kw_only=True)
class Text:
    """One line of text; x is where it starts, ends or has its middle, y its base line, size the letters' pixels."""

    x: float
    y: float
    text: str
    size: int
    is_bold: bool = False
    anchor: Literal["start", "middle", "end"] = "start"

    @property
    def printable(self) -> str:
        """The text without characters that no file or screen should hold."""
        return "".join(letter if letter.isprintable() else "\ufffd" for letter in self.text)


Shape = Line | Box | Text


@dataclass(frozen=True, kw_only=True)
class Drawing:
    """Shapes on white paper of so many pixels, later ones over earlier ones."""

    title: str
    width: int
    height: int
    shapes: tuple[Shape, ...]
