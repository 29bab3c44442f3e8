"""Whether a prompt fits the window with room for a reply, and from which turn on it would.

Owns how much room a reply and a summary need. Asks the engine for sizes, through its port only.
"""

from __future__ import annotations

from collections.abc import Sequence

from app.chat.conversation import droppable_starts, prompt_turns
from app.chat.engine_port import ChatEngine, PromptTurn, Role
from app.chat.engine_requests import ReplyRequest
from app.chat.events import SmallerWindow, WindowFull

_SUMMARY_TOKENS = 256
_LEAST_ROOM_TOKENS = 256
_LEAST_ROOM_SHARE = 8
_ROOMY_SHARE = 0.6


def summary_tokens(context_size: int) -> int:
    """The tokens that a summary may have at most."""
    return min(_SUMMARY_TOKENS, context_size // _LEAST_ROOM_SHARE)


def least_room(context_size: int) -> int:
    """The tokens that must be left for a reply worth beginning."""
    return min(_LEAST_ROOM_TOKENS, context_size // _LEAST_ROOM_SHARE)


def used_tokens(engine: ChatEngine, request: ReplyRequest, turns: Sequence[PromptTurn]) -> int:
    """The tokens of the prompt and of what the reply has so far."""
    if request.begun or not request.begun_text:
        return engine.prompt_size(turns) + len(request.begun)
    return engine.prompt_size([*turns, PromptTurn(role=Role.ASSISTANT, text=request.begun_text)])


def full_window(engine: ChatEngine, request: ReplyRequest, num_used: int) -> WindowFull:
    """What the user is asked: the oldest turn at which a window with room begins, roomy rather than just large enough.

    num_used: the tokens of the prompt and of what the reply has so far.
    """
    facts, conversation = engine.facts, request.conversation
    if request.is_full:  # the last token was not computed with any more
        num_used = min(num_used, facts.context_size)
    starts = droppable_starts(conversation.turns, conversation.first_seen)

    def size_from(start: int) -> int:
        return used_tokens(engine, request, prompt_turns(conversation, facts.vocabulary, first=start))

    fitting: tuple[int, int] | None = None
    low, high = 0, len(starts)
    while low < high:  # Sizes only shrink as the start moves on.
        middle = (low + high) // 2
        size = size_from(starts[middle])
        if size <= _ROOMY_SHARE * facts.context_size:
            fitting, high = (starts[middle], size), middle
        else:
            low = middle + 1
    if fitting is None and starts:
        size = size_from(starts[-1])
        if size + least_room(facts.context_size) <= facts.context_size:
            fitting = (starts[-1], size)
    smaller = None
    if fitting is not None:
        start, size = fitting
        smaller = SmallerWindow(
            start_turn_id=conversation.turns[start].id,
            num_dropped=start - conversation.first_seen,
            freed_tokens=num_used - size,
        )
    return WindowFull(
        turn_id=request.turn_id,
        used_tokens=num_used,
        context_size=facts.context_size,
        smaller=smaller,
        has_begun=bool(request.begun or request.begun_text),
    )
