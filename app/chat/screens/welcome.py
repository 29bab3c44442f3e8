"""The first start: what this machine is, and a model to begin with.

Owns the wording and the choice; the chosen name is the screen's result, `ANOTHER` where the user wants to see all.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.geometry import Region
from textual.widgets import OptionList, Static
from textual.widgets.option_list import Option

from app.chat.beside import run_beside
from app.chat.first_run import Offer, offers
from app.chat.model_desk import ModelDesk
from app.chat.model_port import Bill, MachineFacts, ModelLine, ModelPlace, ShelfFault
from app.chat.model_words import machine_words, model_facts, model_head
from app.chat.plain_text import one_line
from app.chat.screens.answer import AnswerScreen
from app.chat.widgets.plain_title import PlainTitle

ANOTHER = "?"


class OfferChoice(OptionList):
    """As high as its lines: what scrolls so that the chosen one is seen is what it stands in."""

    def scroll_to_highlight(self, top: bool = False) -> None:
        super().scroll_to_highlight(top)
        frame, place = self.parent, self.highlighted
        if not isinstance(frame, VerticalScroll) or place not in self._index_to_line:
            return
        if place == 0:
            frame.scroll_home(animate=False, immediate=True)
        lines = Region(0, self._index_to_line[place], 1, self._heights[place])
        frame.scroll_to_region(lines.translate(self.virtual_region.offset), animate=False, immediate=True)


class WelcomeScreen(AnswerScreen[str | None]):
    """Lets the user choose a model to begin with."""

    CSS_PATH = "welcome.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "leave", "Later")]

    def __init__(self, desk: ModelDesk, *, fault: str = "") -> None:
        """`fault`: why the model that was chosen before could not be had."""
        super().__init__()
        self._desk = desk
        self._fault = fault

    def compose(self) -> ComposeResult:
        with VerticalScroll(can_focus=False) as frame:
            frame.border_title = "Welcome to Tandem"
            frame.border_subtitle = "Esc later"
            yield PlainTitle("Welcome to Tandem. Enter begins, Esc leaves this for later.")
            yield Static(Content("Looking at this machine…"), classes="machine")
            yield Static(Content(one_line(self._fault)), classes="fault")
            yield Static(Content(""), classes="words")
            yield OfferChoice(Option(Content("Looking for models that suit it…"), disabled=True))

    def on_mount(self) -> None:
        self.query_one(OfferChoice).focus()
        desk = self._desk

        def look() -> tuple[MachineFacts, list[Offer], bool]:
            shelf = desk.shelf
            machine = shelf.machine()
            priced = [(line, _bill_of(desk, line)) for line in (*shelf.on_disk(), *shelf.in_catalog())]
            found = offers(priced, shelf.default_name(), has_card=bool(machine.devices))
            return machine, found, shelf.is_offline()

        run_beside(self, look, self._take, self._fail)

    def _take(self, looked: tuple[MachineFacts, list[Offer], bool]) -> None:
        machine, found, is_offline = looked
        self.query_one(".machine", Static).update(Content("\n".join(machine_words(machine))))
        if is_offline:
            found = [offer for offer in found if offer.line.place is ModelPlace.DISK]
        self._say(_words(found, machine, is_offline=is_offline, has_failed=bool(self._fault)))
        self._offer(found)

    def _fail(self, sentence: str) -> None:
        self.query_one(".machine", Static).update(Content(""))
        self._say(one_line(sentence))
        self._offer(())

    def _offer(self, found: Sequence[Offer]) -> None:
        options = self.query_one(OfferChoice)
        options.clear_options()
        options.add_options([Option(_prompt(offer), id=offer.line.name) for offer in found])
        options.add_option(Option(Content("Another model…"), id=ANOTHER))
        options.highlighted = 0
        options.call_after_refresh(options.scroll_to_highlight)
        self.query_one(VerticalScroll).border_subtitle = "Enter begins · Esc later"

    def _say(self, text: str) -> None:
        self.query_one(".words", Static).update(Content(text))

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        event.stop()
        self.dismiss(event.option_id)

    def action_leave(self) -> None:
        """Goes to the chat without a model."""
        self.dismiss(None)


def _bill_of(desk: ModelDesk, line: ModelLine) -> Bill:
    try:
        return desk.bill(line)
    except ShelfFault as fault:
        return Bill(needed_bytes=line.size_bytes, available_bytes=None, fits=False, sentence=str(fault))


def _words(found: Sequence[Offer], machine: MachineFacts, *, is_offline: bool, has_failed: bool) -> str:
    by_hand = (
        f"Without a network: copy a GGUF file into {one_line(machine.models_folder)}, or start with "
        "tandem chat /path/to/model.gguf."
    )
    if is_offline:
        return f"Downloads are off (--offline or HF_HUB_OFFLINE). {by_hand}"
    if has_failed:
        return f"{by_hand} With one, the download goes on where it stopped."
    return (
        "Choose a model to begin with. It is downloaded once and kept; what you type never leaves this machine."
        if any(offer.line.place is not ModelPlace.DISK for offer in found)
        else "Choose a model to begin with. What you type never leaves this machine."
    )


def _prompt(offer: Offer) -> Content:
    head = f"{model_head(offer.line, is_loaded=False)} ({offer.reason})"
    where = " · on this disk" if offer.line.place is ModelPlace.DISK else " · download"
    facts = model_facts(offer.line, offer.bill, None)
    return Content.assemble(head, Content.styled(f"\n  {facts}{where}", "dim"))
