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
    """What a model will reserve with that context size.

    draft: what its draft model will, if it has one.  available_bytes: what the machine had to spare, if known.
    """

    context_size: int
    memory: DeviceMemory
    available_bytes: int | None
    draft: DeviceMemory | None = None

    @property
    def total_bytes(self) -> int:
        """Both together."""
        return self.memory.total_bytes + (self.draft.total_bytes if self.draft is not None else 0)


def make_bill(
    *,
    price: Price,
    trained_context_size: int,
    asked_context_size: int | None,
    available_bytes: int | None,
    draft_price: Price | None = None,
) -> MemoryBill:
    """The bill for the context size asked for, or else the least of what was trained, 8192 and what fits.

    Raises CapacityError when that does not fit.
    """
    budget = None if available_bytes is None else available_bytes - min(_MARGIN_BYTES, available_bytes // _MARGIN_SHARE)

    def bill(context_size: int) -> MemoryBill:
        return MemoryBill(
            context_size=context_size,
            memory=price(context_size),
            available_bytes=available_bytes,
            draft=draft_price(context_size) if draft_price is not None else None,
        )

    wanted = bill(asked_context_size or min(trained_context_size, DEFAULT_CONTEXT_SIZE))
    if budget is None or wanted.total_bytes <= budget:
        return wanted
    smallest = min(wanted.context_size, MIN_DEFAULT_CONTEXT_SIZE)
    if asked_context_size is not None or bill(smallest).total_bytes > budget:
        raise _too_large(wanted if asked_context_size is not None else bill(smallest), budget)
    return bill(_largest(bill, smallest, wanted.context_size, budget))


def _largest(bill: Callable[[int], MemoryBill], fits: int, too_large: int, budget: int) -> int:
    """The largest number of positions in whole pages that fits, between one that does and one that does not."""
    low, high = fits // PAGE_SIZE, -(-too_large // PAGE_SIZE)
    while high - low > 1:
        middle = (low + high) // 2
        if bill(middle * PAGE_SIZE).total_bytes <= budget:
            low = middle
        else:
            high = middle
    return max(fits, low * PAGE_SIZE)


def _too_large(bill: MemoryBill, budget: int) -> CapacityError:
    draft = f"; its draft model {bill.draft}" if bill.draft is not None else ""
    return CapacityError(
        f"The model needs {size_text(bill.total_bytes)} with a context of {bill.context_size} tokens "
        f"({bill.memory}{draft}), "
        f"and this machine can spare {size_text(budget)}. "
        f"Choose a smaller context size or a smaller model, or close other programs.",
        needed_bytes=bill.total_bytes,
        available_bytes=budget,
    )
