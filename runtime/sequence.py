"""A sequence of tokens on its way through the device.

Owns how far it came and which pages hold its K and V.  Does not know text, options or how tokens are chosen.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(eq=False, kw_only=True, slots=True)
class HeldStates:
    """A sequence's states on the device, in models that keep some (runtime/states.py alone changes them).

    now: after num_computed tokens (None: nothing was computed); next: which its next run leaves; before: position and
    state from which a run with a draft went on, until the draft is judged.  marks: positions in the prompt at which
    runs end, so that the state there becomes known.
    """

    now: int | None = None
    next: int | None = None
    before: tuple[int, int] | None = None
    marks: set[int] = field(default_factory=set)


@dataclass(eq=False, kw_only=True, slots=True)
class TokenSequence:
    """ids: prompt and answer so far.  Only the scheduler changes the fields below draft.

    next_output: the first position whose logits are still wanted (those of the last token, unless more are).
    num_computed: positions whose K and V are in the pages.  slot: its row of the page tables, None while it waits.
    num_reused: positions that came from the prefix cache when it first began, None before.
    may_reuse: whether it may begin with what the prefix cache knows.
    draft: tokens that may follow, computed together with those that do; what they are right about is kept.
    """

    ids: list[int]
    num_prompt: int
    next_output: int
    may_reuse: bool = True
    draft: list[int] = field(default_factory=list)
    num_computed: int = 0
    num_reused: int | None = None
    slot: int | None = None
    pages: list[int] = field(default_factory=list)
    held: HeldStates = field(default_factory=HeldStates)

    @property
    def num_pending(self) -> int:
        """Tokens the device has not seen, those of the draft among them."""
        return len(self.ids) + len(self.draft) - self.num_computed

    @property
    def is_decoding(self) -> bool:
        """Whether the device has seen all but the last token."""
        return len(self.ids) - self.num_computed == 1

    def tokens(self, start: int, stop: int) -> list[int]:
        """The tokens at these positions; those of the draft follow the others."""
        length = len(self.ids)
        if stop <= length:
            return self.ids[start:stop]
        return self.ids[start:] + self.draft[max(0, start - length) : stop - length]
