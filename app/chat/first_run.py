"""A first start: which models to offer on this machine.

Owns the choice and its words. Knows nothing of the screen.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from app.chat.model_port import Bill, ModelLine, ModelPlace

# A model that takes more of what is free leaves other programs too little.
_SHARE_OF_FREE = 0.6
# A processor reads every weight for every token: above this it is slower than people read.
_LARGEST_ON_CPU_BYTES = 3 * 10**9
_BASE_MODEL = "base model"


@dataclass(frozen=True, kw_only=True)
class Offer:
    """A model to begin with, and why."""

    line: ModelLine
    bill: Bill
    reason: str


def offers(priced: Sequence[tuple[ModelLine, Bill]], default: str, *, has_card: bool) -> list[Offer]:
    """The default model, and two that make better use of this machine, the largest last.

    What is on the disk already comes first, since it costs no download.
    """
    chosen: list[Offer] = []
    for line, bill in priced:
        if line.name == default:
            chosen.append(Offer(line=line, bill=bill, reason="small and quick"))
    able = [
        (line, bill)
        for line, bill in priced
        if line.name != default
        and not line.refusal
        and _BASE_MODEL not in line.title.lower()
        and bill.fits is not False
        and (bill.available_bytes is None or bill.needed_bytes <= _SHARE_OF_FREE * bill.available_bytes)
        and (has_card or line.size_bytes <= _LARGEST_ON_CPU_BYTES)
    ]
    able.sort(key=lambda pair: pair[0].size_bytes)
    larger = [pair for pair in able if not chosen or pair[0].size_bytes > chosen[0].line.size_bytes]
    best = larger[-1:]
    middle = [pair for pair in larger[:-1] if best and pair[0].size_bytes <= best[0][0].size_bytes * 2 // 3][-1:]
    chosen += [Offer(line=line, bill=bill, reason="knows more, takes longer") for line, bill in middle]
    chosen += [Offer(line=line, bill=bill, reason="the best that runs well here") for line, bill in best]
    return sorted(chosen, key=lambda offer: offer.line.place is not ModelPlace.DISK)
