"""The model of a chat window: being loaded, loaded, or not to be had; and another one in its place.

Owns these states and what the screen is told of them. Knows the screen through `ChatView` only, and nothing of
conversations.
"""

from __future__ import annotations

from app.chat import events
from app.chat.engine_port import EngineLoader, LoadStep, ModelFacts
from app.chat.engine_thread import EngineThread
from app.chat.status_keeper import StatusKeeper
from app.chat.view import ChatView

NONE_CHOSEN = "none was chosen yet."


class ModelKeeper:
    """Driven from the screen's thread. `error` says why there is no model, where there is none."""

    def __init__(self, view: ChatView, engine: EngineThread, status: StatusKeeper) -> None:
        self._view = view
        self._engine = engine
        self._status = status
        self._load = 0
        self.facts: ModelFacts | None = None
        self.is_loading = True
        self.error = ""
        self._counted_by = ""  # the vocabulary whose tokens the status line counts

    @property
    def activity(self) -> str:
        """What the status line says while nothing is written."""
        return "no model" if self.error else "loading" if self.is_loading else ""

    def start(self) -> None:
        """Begins to load the first model, if there is one."""
        self._load = self._engine.start()
        if not self._load:
            self.is_loading, self.error = False, NONE_CHOSEN
        self._status.tell(activity=self.activity)

    def load(self, loader: EngineLoader, name: str) -> None:
        """Gives the model that is there back and loads another, or the same with other settings."""
        self.facts, self.is_loading, self.error = None, True, ""
        self._load = self._engine.load(loader)
        self._view.begin_load(name)
        self._status.tell(
            activity=self.activity, model="", context_size=None, tokens_per_s=None, ttft_s=None, reused_tokens=None
        )

    def take(self, event: events.LoadEvent) -> bool:
        """Takes in what became of a load; False where it was given up since."""
        if event.load != self._load:
            return False
        match event:
            case events.LoadProgressed():
                self._view.show_load_step(event.step)
                self._tell_step(event.step)
            case events.EngineReady():
                self.facts, self.is_loading = event.facts, False
                self._view.show_ready(event.facts)
                if event.facts.vocabulary != self._counted_by:
                    self._status.tell(used_tokens=None)
                self._counted_by = event.facts.vocabulary
                self._status.tell(activity="", model=event.facts.name, context_size=event.facts.context_size)
            case events.LoadFailed():
                self.is_loading, self.error = False, event.sentence
                self._view.show_load_failure(event.sentence, event.way_on)
                self._status.tell(activity=self.activity)
        return True

    def take_change(self, facts: ModelFacts) -> None:
        """The model that is loaded computes elsewhere than before."""
        if self.facts is not None:
            self.facts = facts
            self._view.show_change(facts)

    def _tell_step(self, step: LoadStep) -> None:
        """The first load stands on the screen; what comes later may be scrolled out of sight."""
        if self._load > 1 and step.total > 0:
            self._status.tell(activity=f"loading {100 * min(step.done, step.total) // step.total} %")
