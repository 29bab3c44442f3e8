"""What the chat's threads tell the screen: plain values in a mailbox that nobody waits for.

Owns the values and the mailbox. A thread posts and goes on; the screen collects what has come some thirty times a
second. Knows nothing of who posts or of what the screen does with it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from app.chat.conversation import Conversation
from app.chat.engine_port import LoadStep, ModelFacts, ReplyEnd, Spent
from app.chat.search import Hit
from app.chat.store_reading import ConversationLine


@dataclass(frozen=True, kw_only=True)
class LoadProgressed:
    """The model came a step nearer. `load` is the number of the load, here and below."""

    step: LoadStep
    load: int = 1


@dataclass(frozen=True, kw_only=True)
class EngineReady:
    """The model is loaded."""

    facts: ModelFacts
    load: int = 1


@dataclass(frozen=True, kw_only=True)
class FactsChanged:
    """The loaded model computes elsewhere than before: a card was lost."""

    facts: ModelFacts


@dataclass(frozen=True, kw_only=True)
class LoadFailed:
    """The model can't be had: what went wrong, and what to do."""

    sentence: str
    way_on: str
    load: int = 1


@dataclass(frozen=True, kw_only=True)
class ReplyStarted:
    """The prompt is on its way into the model."""

    turn_id: str
    prompt_tokens: int


@dataclass(frozen=True, kw_only=True)
class PrefillAdvanced:
    """So many of the prompt's tokens have been read."""

    turn_id: str
    done: int
    total: int


@dataclass(frozen=True, kw_only=True)
class ReplyGrew:
    """The reply got longer."""

    turn_id: str
    text: str
    thinking: str
    token_ids: tuple[int, ...]
    at_s: float
    is_guessed: bool = False
    num_drafted: int = 0
    spent: Spent | None = None


@dataclass(frozen=True, kw_only=True)
class ReplyEnded:
    """The reply is over, for whatever reason."""

    turn_id: str
    end: ReplyEnd


@dataclass(frozen=True, kw_only=True)
class SmallerWindow:
    """A way on when the window is full: the model no longer sees the turns before `start_turn_id`."""

    start_turn_id: str
    num_dropped: int
    freed_tokens: int


@dataclass(frozen=True, kw_only=True)
class WindowFull:
    """The prompt (and what the reply has so far) leaves no room in the window. `smaller` is None if nothing helps.

    `has_begun`: something of the reply stands already.
    """

    turn_id: str
    used_tokens: int
    context_size: int
    smaller: SmallerWindow | None
    has_begun: bool = False


@dataclass(frozen=True, kw_only=True)
class HistoryOpened:
    """The conversations on disk can be used; `note` says what had to be done to them."""

    prompts: tuple[str, ...]
    latest: tuple[ConversationLine, ...]
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class HistoryFailed:
    """Something could not be kept or read."""

    sentence: str
    is_warning: bool = True


@dataclass(frozen=True, kw_only=True)
class HistoryListed:
    """The list of conversations that was asked for."""

    lines: tuple[ConversationLine, ...]


@dataclass(frozen=True, kw_only=True)
class ConversationLoaded:
    """The conversation that was asked for; `is_elsewhere`: another window shows it too."""

    conversation: Conversation
    is_elsewhere: bool = False


@dataclass(frozen=True, kw_only=True)
class ConversationGrew:
    """The shown conversation as it stands in the file, now that another window came to the end of a reply in it."""

    conversation: Conversation


@dataclass(frozen=True, kw_only=True)
class KeepingChanged:
    """Whether something waits that could not be kept yet."""

    is_behind: bool


@dataclass(frozen=True, kw_only=True)
class Searched:
    """What was found of a text that was looked for."""

    text: str
    hits: tuple[Hit, ...]


@dataclass(frozen=True, kw_only=True)
class TokensCounted:
    """So many tokens a text is."""

    text: str
    num_tokens: int


@dataclass(frozen=True, kw_only=True)
class SummaryEnded:
    """The summary for the reply `turn_id` that waits for room; `fault` says why there is none."""

    turn_id: str
    text: str = ""
    num_tokens: int = 0
    fault: str = ""


@dataclass(frozen=True, kw_only=True)
class DownloadEnded:
    """A model that was downloaded beside the chat is here, or why it is not."""

    sentence: str
    is_warning: bool


LoadEvent = LoadProgressed | EngineReady | LoadFailed
ReplyEvent = ReplyStarted | PrefillAdvanced | ReplyGrew | ReplyEnded | WindowFull
HistoryEvent = (
    HistoryOpened | HistoryFailed | HistoryListed | ConversationLoaded | ConversationGrew | KeepingChanged | Searched
)
Event = ReplyEvent | HistoryEvent | LoadEvent | FactsChanged | TokensCounted | DownloadEnded | SummaryEnded


class Mailbox:
    """Events in the order they were posted. Posting never waits and may happen on any thread.

    `wake` is called, on the thread that posts, by the first event after the screen said that it sleeps.
    """

    def __init__(self, wake: Callable[[], None] | None = None) -> None:
        self._events: deque[Event] = deque()
        self._wake = wake
        self._is_asleep = False

    def post(self, event: Event) -> None:
        """Leaves an event for the screen."""
        self._events.append(event)
        if self._is_asleep and self._wake is not None:
            self._is_asleep = False
            self._wake()

    def collect(self) -> list[Event]:
        """Takes what has come since the last time."""
        events: list[Event] = []
        while self._events:
            events.append(self._events.popleft())
        return events

    def sleep(self) -> bool:
        """The screen will not look again before it is woken; False where something has come meanwhile."""
        self._is_asleep = True
        if self._events:
            self._is_asleep = False
        return self._is_asleep
