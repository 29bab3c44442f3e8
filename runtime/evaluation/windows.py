"""How a text is cut into windows, and which of a window's tokens count.

Owns the rule.  Does not know models, devices or text.

A window is `size` tokens of the text, behind the start token if the model has one; the next begins `stride` tokens
further on.  A token counts once, in the first window that holds it, so from the second window on at least
size - stride tokens stand before each that counts.  The first token of a window has nothing before it where there is no
start token: then it does not count there, and with a stride below the size the window before it has counted it already.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Window:
    """ids: as they are fed, the start token included.  first_counted: index in ids of the first token that counts."""

    ids: tuple[int, ...]
    first_counted: int

    @property
    def num_counted(self) -> int:
        """Tokens that are predicted and count."""
        return len(self.ids) - self.first_counted


def cut_windows(token_ids: Sequence[int], *, size: int, stride: int, start_id: int | None) -> tuple[Window, ...]:
    """The windows of a text in order; those in which nothing counts are left out.

    1 <= stride <= size.  start_id: the token that stands before every window, or None.
    """
    assert 1 <= stride <= size
    head = () if start_id is None else (start_id,)
    windows: list[Window] = []
    begin, counted = 0, 0  # counted: tokens of the text that have been dealt with
    while counted < len(token_ids):
        end = min(begin + size, len(token_ids))
        first_counted = max(len(head) + counted - begin, 1)
        window = Window(ids=(*head, *token_ids[begin:end]), first_counted=first_counted)
        if window.num_counted > 0:
            windows.append(window)
        begin, counted = begin + stride, end
    return tuple(windows)
