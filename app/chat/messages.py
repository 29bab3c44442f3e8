"""What the chat's widgets tell their screen about what the user did."""

from __future__ import annotations

from enum import StrEnum

from textual.message import Message

from app.chat.completion import Offer


class PromptEdited(Message):
    """What stands in the input has changed."""


class LongTextPasted(Message):
    """The user pasted a text that is too long to stand in the input."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.text = text


class LeaveWanted(Message):
    """The user ended an input in which nothing stands, as one ends a shell."""


class WindowChoice(StrEnum):
    """A way on when the window is full."""

    DROP = "drop"
    SUMMARISE = "summarise"
    ENLARGE = "enlarge"
    LEAVE = "leave"


class PromptTyped(Message):
    """The user wrote this while something else had the keys."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.text = text


class WindowAnswered(Message):
    """The window is full, and the user chose."""

    def __init__(self, choice: WindowChoice) -> None:
        super().__init__()
        self.choice = choice


class OfferTaken(Message):
    """The user clicked on what was offered to complete a word."""

    def __init__(self, offer: Offer) -> None:
        super().__init__()
        self.offer = offer
