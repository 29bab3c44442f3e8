"""What the threads posted, taken out of the mailbox and handed to whom it concerns.

Owns who that is for each kind of event, and nothing of what follows from it.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from typing import cast

from app.chat import events
from app.chat.attaching import Attaching
from app.chat.library import Library
from app.chat.model_keeper import ModelKeeper
from app.chat.reply_keeper import ReplyKeeper
from app.chat.view import ChatView
from app.chat.window_keeper import WindowKeeper


class Intake:
    """Belongs to one chat window; driven from the screen's thread."""

    def __init__(
        self,
        mailbox: events.Mailbox,
        *,
        view: ChatView,
        model: ModelKeeper,
        replies: ReplyKeeper,
        window: WindowKeeper,
        library: Library,
        attaching: Attaching,
    ) -> None:
        self._mailbox = mailbox
        self._view = view
        self._model = model
        self._replies = replies
        self._window = window
        self._library = library
        self._attaching = attaching

    def take_all(self) -> bool:
        """Takes in what has come; False where nothing had come."""
        collected = self._mailbox.collect()
        for turn_id, run in groupby(collected, _grown_turn):
            if turn_id:
                self._replies.grow(turn_id, list(cast("Iterator[events.ReplyGrew]", run)))
            else:
                for event in run:
                    self._take(event)
        return bool(collected)

    def _take(self, event: events.Event) -> None:
        match event:
            case events.LoadProgressed() | events.EngineReady() | events.LoadFailed():
                if self._model.take(event):
                    self._replies.follow_load(event)
            case events.FactsChanged():
                self._model.take_change(event.facts)
            case events.ReplyStarted() | events.PrefillAdvanced() | events.ReplyEnded():
                self._replies.take(event)
            case events.WindowFull():
                if event.turn_id == self._replies.turn_id:
                    self._window.ask(event)
            case events.SummaryEnded():
                self._window.take(event)
            case events.DownloadEnded():
                self._view.show_note(event.sentence, is_warning=event.is_warning)
            case events.TokensCounted():
                self._attaching.take_count(event)
            case events.ReplyGrew():
                raise AssertionError("these are taken in together")
            case _:
                self._library.take(event)


def _grown_turn(event: events.Event) -> str:
    """The turn of a reply that got longer; nothing for any other event."""
    return event.turn_id if isinstance(event, events.ReplyGrew) else ""
