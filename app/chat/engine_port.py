"""What the chat asks of an engine: the protocol, and the values that cross it.

Owns names only; `engine_adapter.py` fills them with the real engine, tests with a fake one. Knows nothing of Textual,
of threads (a stream may be cancelled from any) or of what a model is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol


class Role(StrEnum):
    """Who speaks in a turn."""

    SYSTEM = "system"
    USER = "user"
    ASSISTANT = "assistant"


class EndReason(StrEnum):
    """Why a reply ended."""

    STOP = "stop"
    LENGTH = "length"
    CANCELLED = "cancelled"
    WINDOW = "window"
    FAILED = "failed"


@dataclass(frozen=True, kw_only=True)
class PromptTurn:
    """One turn as the model is to see it; `ids` are the model's own tokens of that turn where they are known."""

    role: Role
    text: str
    ids: tuple[int, ...] | None = None


@dataclass(frozen=True, kw_only=True)
class MemoryUse:
    """What a loaded model has reserved on one device.  `own_bytes`: what a card's driver and kernels take beside."""

    device: str
    weights_bytes: int = 0
    kv_bytes: int = 0
    workspace_bytes: int = 0
    draft_bytes: int = 0
    own_bytes: int = 0

    @property
    def total_bytes(self) -> int:
        """All of it."""
        return self.weights_bytes + self.kv_bytes + self.workspace_bytes + self.draft_bytes + self.own_bytes


@dataclass(frozen=True, kw_only=True)
class Spent:
    """Milliseconds since a model was loaded: computing on the CPU and on the GPU, copying between them."""

    cpu_ms: float
    gpu_ms: float
    transfer_ms: float


@dataclass(frozen=True, kw_only=True)
class ModelFacts:
    """What the chat shows of a loaded model. `vocabulary` tells whether token ids of an earlier run still hold.

    `chat_templates` are their sources, `template_names` what they are called.
    """

    name: str
    description: str
    context_size: int
    vocabulary: str
    has_chat_template: bool = True
    chat_templates: tuple[str, ...] = ()
    template_names: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    memory: tuple[MemoryUse, ...] = ()
    trained_context_size: int = 0
    uses_gpu: bool = False


@dataclass(frozen=True, kw_only=True)
class LoadStep:
    """One line of progress while a model loads. `total` is 0 while it is not known; `unit` is "bytes" or "items"."""

    title: str
    done: int = 0
    total: int = 0
    unit: str = "items"


@dataclass(frozen=True, kw_only=True)
class ReplyPiece:
    """What a few tokens added. `thinking` is text from inside a thinking block, `text` is the answer itself.

    `is_guessed`: they had been guessed ahead; `num_drafted`: so many were guessed for the pass that begins here.
    `spent`: up to now, where there is a GPU.
    """

    text: str = ""
    thinking: str = ""
    token_ids: tuple[int, ...] = ()
    is_guessed: bool = False
    num_drafted: int = 0
    spent: Spent | None = None


@dataclass(frozen=True, kw_only=True)
class ReplyFigures:
    """What a reply cost, for the status line; times in seconds."""

    prompt_tokens: int = 0
    reused_tokens: int = 0
    reply_tokens: int = 0
    ttft_s: float = 0.0
    tokens_per_s: float = 0.0


@dataclass(frozen=True, kw_only=True)
class ReplyEnd:
    """How a reply ended. `error` is one sentence where the reason is FAILED."""

    reason: EndReason
    figures: ReplyFigures = field(default_factory=ReplyFigures)
    notes: tuple[str, ...] = ()
    error: str = ""


class ReplyStream(Protocol):
    """A reply that is being written. Iterate once; `end` is there when the iteration is over."""

    def __iter__(self) -> Iterator[ReplyPiece]: ...

    def cancel(self) -> None:
        """Stops the reply, from any thread; the iteration then ends by itself."""
        ...

    @property
    def end(self) -> ReplyEnd: ...


PrefillProgress = Callable[[int, int], None]


class ChatEngine(Protocol):
    """A loaded model that answers one conversation at a time. Called from one thread."""

    @property
    def facts(self) -> ModelFacts: ...

    def prompt_size(self, turns: Sequence[PromptTurn]) -> int:
        """The number of prompt tokens these turns make, the opening of the reply included. Raises EngineFault."""
        ...

    def count_tokens(self, text: str) -> int:
        """The tokens of a text by itself. Raises EngineFault."""
        ...

    def reply(
        self,
        turns: Sequence[PromptTurn],
        *,
        begun: Sequence[int] = (),
        begun_text: str = "",
        on_prefill: PrefillProgress | None = None,
    ) -> ReplyStream:
        """Begins a reply, or goes on with one that begins with the token ids `begun`. Raises EngineFault.

        `begun_text` is its text so far, and what is gone on from where no ids are known.

        The prefill progress may be called from a thread of the engine's own.
        """
        ...

    def close(self) -> None: ...


class EngineFault(Exception):
    """The engine could not do what was asked. `sentence` says what went wrong, `way_on` what to do about it."""

    def __init__(self, sentence: str, way_on: str = "") -> None:
        super().__init__(sentence)
        self.sentence = sentence
        self.way_on = way_on


class LoadCancelled(Exception):
    """Raised from a progress callback when the chat is left while a model loads."""


class LeaveSignal(Protocol):
    """Tells a load that nobody waits for it any more; a `threading.Event` is one."""

    def is_set(self) -> bool: ...


LoadProgress = Callable[[LoadStep], None]
EngineLoader = Callable[[LoadProgress, LeaveSignal], ChatEngine]
"""Loads a model, reporting steps; what the progress callback raises ends the load. Raises EngineFault."""
