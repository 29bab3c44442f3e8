"""A sequence of tokens on its way through the device.

Owns how far it came and which pages hold its K and V.  Does not know text, options or how tokens are chosen.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(eq=False, kw_only=True, slots=True)
class TokenSequence:
    """ids: prompt and answer so far.  Only the scheduler changes the fields below next_output.

    next_output: the first position whose logits are still wanted (those of the last token, unless more are).
    num_computed: positions whose K and V are in the pages.  slot: its row of the page tables, None while it waits.
    num_reused: positions that came from the prefix cache when it first began, None before.
    may_reuse: whether it may begin with what the prefix cache knows.
    """

    ids: list[int]
    num_prompt: int
    next_output: int
    may_reuse: bool = True
    num_computed: int = 0
    num_reused: int | None = None
    slot: int | None = None
    pages: list[int] = field(default_factory=list)

    @property
    def num_pending(self) -> int:
        """Tokens the device has not seen."""
        return len(self.ids) - self.num_computed
