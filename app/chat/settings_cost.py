"""What a change of settings costs, before it is made: nothing, a read of the conversation, or a reload with its memory.

Owns the reckoning and its wording. Takes a second where a model has to be priced, so it is done beside the screen.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from app.chat.events import WindowFull
from app.chat.model_desk import ModelDesk, changed_keys, needs_load
from app.chat.model_port import Bill, ShelfFault
from app.chat.window_fit import least_room
from app.preferences import Preferences
from runtime.catalog import size_text

MOST_CONTEXT_SIZE = 2**20
PROMPT_KEYS = frozenset({"system", "chat_template", "chat_template_kwargs"})
"""On which a conversation's ids depend, of those that need no reload."""
_PARTS = (
    ("weights", "weights_bytes"),
    ("KV", "kv_bytes"),
    ("workspace", "workspace_bytes"),
    ("draft", "draft_bytes"),
    ("driver", "own_bytes"),
)


@dataclass(frozen=True, kw_only=True)
class Cost:
    """What a change costs. `nearest`: preferences that do fit, where these do not."""

    sentence: str
    can_be_paid: bool = True
    needs_load: bool = False
    nearest: Preferences | None = None
    nearest_words: str = ""


def cost_of(desk: ModelDesk, wanted: Preferences, conversation_tokens: int) -> Cost:
    """What it costs to go from the preferences in force to the wanted ones. conversation_tokens: 0 for none."""
    before = desk.preferences
    changed = changed_keys(before, wanted)
    again = (
        f" The next reply reads the conversation anew ({conversation_tokens:,} tokens)." if conversation_tokens else ""
    )
    if not changed:
        return Cost(sentence="Nothing is changed.")
    if not needs_load(before, wanted):
        return Cost(
            sentence="Costs nothing: it holds from the next reply on." + (again if changed & PROMPT_KEYS else "")
        )
    line = desk.own_line(wanted)
    try:
        bill = desk.bill(line, wanted)
    except ShelfFault as fault:
        return Cost(sentence=str(fault), can_be_paid=False, needs_load=True)
    if bill.fits is not False:
        memory = _memory_words(desk, bill)
        return Cost(sentence=f"Reloads the model; the conversation stays. {memory}{again}", needs_load=True)
    return _nearest(desk, wanted, bill)


@dataclass(frozen=True, kw_only=True)
class LargerWindow:
    """What enlarging a full window comes to. `preferences` is None where it can't be done."""

    words: str
    preferences: Preferences | None = None


def larger_window(desk: ModelDesk, window: WindowFull) -> LargerWindow:
    """Twice the window, or more where that is needed; less where memory or the model's training allows no more."""
    trained = desk.facts.trained_context_size if desk.facts is not None else 0
    most = max(trained, window.context_size) or MOST_CONTEXT_SIZE
    if most <= window.context_size:
        return LargerWindow(words=f"Enlarging is no way on: the model was trained for {most:,} tokens")
    wanted_size = min(most, max(2 * window.context_size, window.used_tokens * 5 // 4))
    wanted = replace(desk.preferences, ctx_size=wanted_size)
    cost = cost_of(desk, wanted, 0)
    if not cost.can_be_paid and cost.nearest is not None and (cost.nearest.ctx_size or 0) > window.context_size:
        wanted = cost.nearest
        cost = cost_of(desk, wanted, 0)
    if not cost.can_be_paid:
        return LargerWindow(words=f"Enlarging is no way on. {cost.sentence}")
    size = wanted.ctx_size or 0
    if window.used_tokens + least_room(size) > size:
        return LargerWindow(words=f"Enlarging is no way on: {size:,} tokens are the most that can be had")
    return LargerWindow(
        words=f"Enlarge the window to {wanted.ctx_size:,} tokens. {cost.sentence}",
        preferences=wanted,
    )


def _nearest(desk: ModelDesk, wanted: Preferences, bill: Bill) -> Cost:
    free = f", and {size_text(bill.available_bytes)} can be had" if bill.available_bytes is not None else ""
    window = f" with a window of {wanted.ctx_size:,} tokens" if wanted.ctx_size is not None else ""
    sentence = f"Does not fit{window}: it needs {size_text(bill.needed_bytes)}{free}."
    try:
        largest = desk.shelf.largest_context(desk.own_line(wanted), wanted, freed_bytes=desk.loaded_bytes)
    except ShelfFault:
        largest = None
    if largest is None:
        return Cost(sentence=f"{sentence} No window is small enough.", can_be_paid=False, needs_load=True)
    return Cost(
        sentence=f"{sentence} The nearest that does is a window of {largest:,} tokens.",
        can_be_paid=False,
        needs_load=True,
        nearest=replace(wanted, ctx_size=largest),
        nearest_words=f"Take {largest:,} tokens instead",
    )


def _memory_words(desk: ModelDesk, bill: Bill) -> str:
    """The memory before and after, and which parts of it change."""
    uses = desk.facts.memory if desk.facts is not None else ()
    free = f" ({size_text(bill.available_bytes)} free)" if bill.available_bytes is not None else ""
    if not uses:
        return f"It takes {size_text(bill.needed_bytes)}{free}."
    before = {name: sum(getattr(use, part) for use in uses) for name, part in _PARTS}
    after = {name: sum(getattr(use, part) for use in bill.memory) for name, part in _PARTS}
    moved = [
        f"{name} {size_text(before[name])} → {size_text(after[name])}" for name in before if before[name] != after[name]
    ]
    if not moved:
        return f"Memory stays at {size_text(bill.needed_bytes)}{free}."
    return f"Memory {size_text(sum(before.values()))} → {size_text(bill.needed_bytes)}{free}: {', '.join(moved)}."
