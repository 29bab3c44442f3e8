"""What the chat's widgets tell their screen about what the user did."""

from __future__ import annotations

from textual.message import Message

from app.chat.completion import Offer


class PromptSubmitted(Message):
    """The user sent what stands in the input."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.text = text


class PromptEdited(Message):
    """What stands in the input has changed."""


class LongTextPasted(Message):
    """The user pasted a text that is too long to stand in the input."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.text = text


class WindowAnswered(Message):
    """The window is full, and the user chose."""

    def __init__(self, *, drops_oldest: bool) -> None:
        super().__init__()
        self.drops_oldest = drops_oldest


class OfferTaken(Message):
    """The user clicked on what was offered to complete a word."""

    def __init__(self, offer: Offer) -> None:
        super().__init__()
        self.offer = offer
