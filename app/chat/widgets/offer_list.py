"""The list above the input of what can complete the word that is being written.

Owns which offer is chosen. The keys reach it through the input, which keeps the focus.
"""

from __future__ import annotations

from collections.abc import Sequence

from textual.content import Content
from textual.widgets import OptionList
from textual.widgets.option_list import Option

from app.chat.completion import Offer
from app.chat.messages import OfferTaken
from app.chat.plain_text import columns_of, one_line, shortened

_LABEL_COLUMNS = 22
_MARGIN = 6


class OfferList(OptionList, can_focus=False):
    """Hidden while there is nothing to offer."""

    DEFAULT_CSS = """
    OfferList {
        height: auto;
        max-height: 8;
        border: none;
        padding: 0 1;
        display: none;
        background: $surface;
        scrollbar-size-vertical: 1;
        &.-shown { display: block; }
        & > .option-list--option-highlighted { background: $primary; color: $text; }
    }
    """

    def __init__(self) -> None:
        super().__init__()
        self._offers: tuple[Offer, ...] = ()
        self.before = ""

    @property
    def is_open(self) -> bool:
        """Whether something is offered."""
        return bool(self._offers)

    @property
    def chosen(self) -> Offer | None:
        """The offer that the bar stands on."""
        return self._offers[self.highlighted or 0] if self._offers else None

    def offer(self, offers: Sequence[Offer], before: str = "") -> None:
        """Shows these offers in place of those before; none at all hides the list.

        before: the text before the cursor, which they complete.
        """
        self.before = before
        if tuple(offers) == self._offers:
            return
        self._offers = tuple(offers)
        self.clear_options()
        columns = self.app.size.width - _MARGIN
        self.add_options([Option(Content(_words(offer, columns))) for offer in self._offers])
        self.highlighted = 0 if self._offers else None
        self.set_class(self.is_open, "-shown")

    def close(self) -> None:
        """Offers nothing until something is written again."""
        self.offer(())

    def move(self, step: int) -> None:
        """Chooses the next or the one before, round and round."""
        if self._offers:
            self.highlighted = ((self.highlighted or 0) + step) % len(self._offers)

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        event.stop()
        self.post_message(OfferTaken(self._offers[event.option_index]))


def _words(offer: Offer, columns: int) -> str:
    label = one_line(offer.label)
    if not offer.detail:
        return shortened(label, columns)
    padding = " " * max(2, min(_LABEL_COLUMNS, columns // 2) - columns_of(label))
    return shortened(f"{label}{padding}{one_line(offer.detail)}", columns)
