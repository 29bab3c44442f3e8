"""The memory bill before a model is loaded, and the context size that it allows.

Owns the choice.  Does not know how a device lays things out: it asks a function what a context size would cost.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from models.transfers import size_text
from runtime.devices.binding import PAGE_SIZE, DeviceMemory
from runtime.errors import CapacityError

DEFAULT_CONTEXT_SIZE = 8192
# Below this a default would be of no use to anyone.
MIN_DEFAULT_CONTEXT_SIZE = 256
# What stays free for everything else: a tenth, but no more than this.
_MARGIN_BYTES = 512 * 2**20
_MARGIN_SHARE = 10

Price = Callable[[int], DeviceMemory]


@dataclass(frozen=True, kw_only=True)
class MemoryBill:
    """What a model will reserve with that context size.  available_bytes: what the machine had to spare, if known."""

    context_size: int
    memory: DeviceMemory
    available_bytes: int | None


def make_bill(
    *, price: Price, trained_context_size: int, asked_context_size: int | None, available_bytes: int | None
) -> MemoryBill:
    """The bill for the context size asked for, or else the least of what was trained, 8192 and what fits.

    Raises CapacityError when that does not fit.
    """
    budget = None if available_bytes is None else available_bytes - min(_MARGIN_BYTES, available_bytes // _MARGIN_SHARE)

    def bill(context_size: int) -> MemoryBill:
        return MemoryBill(context_size=context_size, memory=price(context_size), available_bytes=available_bytes)

    wanted = bill(asked_context_size or min(trained_context_size, DEFAULT_CONTEXT_SIZE))
    if budget is None or wanted.memory.total_bytes <= budget:
        return wanted
    smallest = min(wanted.context_size, MIN_DEFAULT_CONTEXT_SIZE)
    if asked_context_size is not None or price(smallest).total_bytes > budget:
        raise _too_large(wanted if asked_context_size is not None else bill(smallest), budget)
    return bill(_largest(price, smallest, wanted.context_size, budget))


def _largest(price: Price, fits: int, too_large: int, budget: int) -> int:
    """The largest number of positions in whole pages that fits, between one that does and one that does not."""
    low, high = fits // PAGE_SIZE, -(-too_large // PAGE_SIZE)
    while high - low > 1:
        middle = (low + high) // 2
        if price(middle * PAGE_SIZE).total_bytes <= budget:
            low = middle
        else:
            high = middle
    return max(fits, low * PAGE_SIZE)


def _too_large(bill: MemoryBill, budget: int) -> CapacityError:
    memory = bill.memory
    return CapacityError(
        f"The model needs {size_text(memory.total_bytes)} with a context of {bill.context_size} tokens ({memory}), "
        f"and this machine can spare {size_text(budget)}. "
        f"Choose a smaller context size or a smaller model, or close other programs.",
        needed_bytes=memory.total_bytes,
        available_bytes=budget,
    )
