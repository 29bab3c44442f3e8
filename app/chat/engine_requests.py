"""What the engine's thread can be asked for: plain values in a queue.

Owns the values. Knows nothing of who asks or of how it is done.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass

from app.chat.conversation import Conversation
from app.chat.engine_port import EngineLoader


@dataclass(frozen=True, kw_only=True)
class ReplyRequest:
    """Asks for the reply `turn_id` to the conversation (which ends with the question), or for more of it.

    `begun` are the ids of what stands already; `begun_text` is its text, which counts where no ids are known.
    `is_full`: the window is known to be full, so the user is asked first.
    """

    turn_id: str
    conversation: Conversation
    begun: tuple[int, ...] = ()
    begun_text: str = ""
    is_full: bool = False


@dataclass(frozen=True, kw_only=True)
class LoadRequest:
    """Asks for an engine in place of the one that is there. `abandoned` is set when nobody waits for it any more."""

    number: int
    loader: EngineLoader
    abandoned: threading.Event


@dataclass(frozen=True, kw_only=True)
class SummaryRequest:
    """Asks for a summary of the conversation before `start_turn_id`, so that the reply `turn_id` has room."""

    turn_id: str
    conversation: Conversation
    start_turn_id: str


@dataclass(frozen=True, kw_only=True)
class CountRequest:
    """Asks how many tokens a text is."""

    text: str


Request = LoadRequest | ReplyRequest | SummaryRequest | CountRequest
