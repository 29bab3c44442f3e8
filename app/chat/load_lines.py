"""Progress of a loading model as lines of text.

Owns the wording and the bars; knows nothing of the screen.
"""

from __future__ import annotations

from app.chat.engine_port import LoadStep
from app.chat.plain_text import columns_of, one_line, shortened

_BAR_WIDTH = 20
_LEAST_BAR_WIDTH = 6
_FULL, _EMPTY = "█", "░"
_MARK_DONE, _MARK_RUNNING = "✓", "•"
_UNITS = ((10**9, "GB"), (10**6, "MB"), (10**3, "kB"))


class LoadLines:
    """The steps so far, in the order they began; each shows the last that was told of it."""

    def __init__(self) -> None:
        self._steps: dict[str, LoadStep] = {}

    def add(self, step: LoadStep) -> None:
        """A step began or went on."""
        self._steps[step.title] = step

    def lines(self, width: int, *, is_plain: bool = False) -> list[str]:
        """One line a step, in at most `width` columns. is_plain: shares in place of bars."""
        steps = list(self._steps.values())
        return [_line(step, is_running=step is steps[-1], width=width, is_plain=is_plain) for step in steps]


def _line(step: LoadStep, *, is_running: bool, width: int, is_plain: bool) -> str:
    is_done = not is_running or 0 < step.total <= step.done
    head = f"{_MARK_DONE if is_done else _MARK_RUNNING} {one_line(step.title)}"
    if step.total <= 0:
        counted = f" {_amount(step.done, step.unit)}" if step.done else ""
        return shortened(head + counted, width)
    amounts = f" {_amount(step.done, step.unit)} of {_amount(step.total, step.unit)}"
    if is_done:
        amounts = f" {_amount(step.total, step.unit)}"
        return head + amounts if columns_of(head + amounts) <= width else shortened(head, width)
    bar_width = min(_BAR_WIDTH, width - columns_of(head) - columns_of(amounts) - 2)
    if bar_width >= _LEAST_BAR_WIDTH and not is_plain:
        return f"{head}  {_bar(step.done, step.total, bar_width)}{amounts}"
    share = f" {100 * min(step.done, step.total) // step.total} %"
    return shortened(head, max(1, width - len(share))) + share


def _bar(done: int, total: int, width: int) -> str:
    filled = width * min(done, total) // total
    return _FULL * filled + _EMPTY * (width - filled)


def _amount(count: int, unit: str) -> str:
    if unit != "bytes":
        return f"{count:,}"
    for size, name in _UNITS:
        if count >= size:
            return f"{count / size:.1f} {name}" if count < 100 * size else f"{count / size:.0f} {name}"
    return f"{count} B"
