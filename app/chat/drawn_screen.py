"""What stands on the terminal, cell by cell, so that only what differs is written.

Owns that picture and one departure from Textual, which writes every line that was drawn anew: when a reply scrolls,
that is the whole screen for each new line. Here lines that moved are moved by the terminal itself (inside a margin of
lines, DECSTBM with DL or IL), and of the others only the cells that changed are written. Knows nothing of widgets.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import groupby

from rich.cells import cell_len, split_graphemes
from rich.color import ColorSystem
from rich.console import Console
from rich.style import Style
from textual._compositor import ChopsUpdate, CompositorUpdate, LayoutUpdate
from textual.strip import Strip

Look = tuple[str, str]
"""What is written before and behind a text that looks so."""
Cell = tuple[str, Look] | None
"""A text and its look. An empty text: the one before reaches over this cell. None: nobody knows what stands there."""
Row = list[Cell]

_PLAIN: Look = ("", "")
_FEWEST_MOVED = 3
# A gap of so few equal cells is written over: going over it takes as many bytes.
_SMALL_GAP = 6
_SPLIT = "\0"
# Two of them make a flag.
_FLAG_LETTERS = frozenset(map(chr, range(0x1F1E6, 0x1F200)))


class DrawnScreen:
    """What was written last; `narrowed` makes an update that writes no more than it must."""

    def __init__(self) -> None:
        self._rows: list[Row] = []

    def forget(self) -> None:
        """The terminal may show anything: the next update is written whole, where it covers the screen."""
        self._rows = [[None] * len(row) for row in self._rows]

    def narrowed(self, update: CompositorUpdate) -> CompositorUpdate:
        """The same update, worked out when it is written. One of an unknown kind stays as it is."""
        if isinstance(update, LayoutUpdate | ChopsUpdate):
            return _NarrowUpdate(self, update)
        self.forget()
        return update

    def write(self, update: LayoutUpdate | ChopsUpdate, console: Console) -> str:
        """What brings the terminal from what stands there to the update; takes it as written."""
        colors = console._color_system or ColorSystem.TRUECOLOR
        wanted = self._whole(update, colors) if isinstance(update, LayoutUpdate) else self._changed(update, colors)
        written = self._move_lines(wanted)
        for y, (old, new) in enumerate(zip(self._rows, wanted, strict=True)):
            if old != new:
                written += _differences(y, old, new)
        self._rows = wanted
        return "".join(written)

    def _whole(self, update: LayoutUpdate, colors: ColorSystem) -> list[Row]:
        width = update.region.width
        wanted: list[Row] = []
        for line in update.strips:
            cells = [cell for strip in line for cell in _cells(strip, colors)]
            wanted.append((cells + [None] * (width - len(cells)))[:width])
        if [len(row) for row in self._rows] != [len(row) for row in wanted]:
            self._rows = [[None] * len(row) for row in wanted]
        return wanted

    def _changed(self, update: ChopsUpdate, colors: ColorSystem) -> list[Row]:
        num_rows = len(update.chops)
        if len(self._rows) != num_rows:
            self._rows = [[None] * (ends[-1] if ends else 0) for ends in update.chop_ends]
        wanted = list(self._rows)
        copied: set[int] = set()
        for y, first, behind in update.spans:
            if y not in copied:
                copied.add(y)
                wanted[y] = list(wanted[y])
            for end, (x, strip) in zip(update.chop_ends[y], update.chops[y].items(), strict=False):
                if strip is not None and x <= behind and end > first:
                    room = min(end, behind, len(wanted[y])) - x
                    cells = _cells(strip.crop(0, room), colors)[:room]
                    wanted[y][x : x + len(cells)] = cells
        return wanted

    def _move_lines(self, wanted: Sequence[Row]) -> list[str]:
        """Has the terminal move lines that only stand higher or lower now, and takes them as moved."""
        changed = [y for y, row in enumerate(wanted) if row != self._rows[y]]
        moved = _moved_lines(changed, self._rows, wanted)
        if moved is None:
            return []
        distance, places = moved
        first, last = min(places), max(places)
        if distance > 0:  # up
            top, bottom = first, last + distance
            kept = self._rows[top + distance : bottom + 1]
            order, at_end = f"\x1b[{distance}M", True
        else:
            top, bottom = first + distance, last
            kept = self._rows[top : bottom + 1 + distance]
            order, at_end = f"\x1b[{-distance}L", False
        blank: list[Row] = [[None] * len(wanted[0]) for _ in range(abs(distance))]
        self._rows = [*self._rows[:top], *(kept + blank if at_end else blank + kept), *self._rows[bottom + 1 :]]
        return [f"\x1b[{top + 1};{bottom + 1}r\x1b[{top + 1};1H", order, "\x1b[r"]


class _NarrowUpdate(CompositorUpdate):
    """An update that knows what stands already."""

    def __init__(self, drawn: DrawnScreen, update: LayoutUpdate | ChopsUpdate) -> None:
        self._drawn = drawn
        self._update = update

    def render_segments(self, console: Console) -> str:
        return self._drawn.write(self._update, console)


def _moved_lines(changed: Sequence[int], old: Sequence[Row], new: Sequence[Row]) -> tuple[int, list[int]] | None:
    """By how many lines (up: positive) most of what changed has moved, and where those lines stand now.

    The last cell, which belongs to a scroll bar, does not count.
    """
    if len(changed) < _FEWEST_MOVED:
        return None
    shown = {y: old[y][:-1] for y in changed}
    found: dict[int, list[int]] = {}
    for y in changed:
        line = new[y][:-1]
        if any(cell is not None and not cell[0].isspace() for cell in line):
            for before_y, before in shown.items():
                if before == line:
                    found.setdefault(before_y - y, []).append(y)
    found.pop(0, None)
    if not found:
        return None
    distance, places = max(found.items(), key=lambda item: len(item[1]))
    return (distance, places) if len(places) >= max(_FEWEST_MOVED, len(changed) // 3) else None


def _differences(y: int, old: Row, new: Row) -> list[str]:
    """What changes one row into the other: for each run of cells that differ, where it stands and how it looks."""
    written: list[str] = []
    changed = [x for x, (before, cell) in enumerate(zip(old, new, strict=True)) if before != cell and cell is not None]
    while changed:
        first = last = changed[0]
        count = 1
        while count < len(changed) and changed[count] - last <= _SMALL_GAP and None not in new[last : changed[count]]:
            last = changed[count]
            count += 1
        del changed[:count]
        while first > 0 and (cell := new[first]) is not None and not cell[0]:
            first -= 1  # a wide character, of which this is the second half
        while last + 1 < len(new) and (cell := new[last + 1]) is not None and not cell[0]:
            last += 1
        written.append(_run(y, first, [cell for cell in new[first : last + 1] if cell is not None]))
    return written


def _run(y: int, first: int, cells: Sequence[tuple[str, Look]]) -> str:
    """Cells side by side. Terminals differ in the width of a character of several code points, such as a family of
    emoji: its cells are emptied before it, and what follows is put where it belongs."""
    written = f"\x1b[{y + 1};{first + 1}H"
    x = first
    for (before, behind), run in groupby(cells, lambda cell: cell[1]):
        texts = [text for text, _ in run]
        written += before
        for place, text in enumerate(texts, x):
            if len(text) > 1:
                here = f"\x1b[{y + 1};{place + 1}H"
                width = cell_len(text)
                text = f"{here}{' ' * width}{here}{text}\x1b[{y + 1};{place + width + 1}H"
            written += text
        written += behind
        x += len(texts)
    return written


def _cells(strip: Strip, colors: ColorSystem) -> Row:
    """The cells of a strip. A character that takes two cells stands in the first of them."""
    cells: Row = []
    for text, style, control in strip:
        if control:
            continue
        look = _PLAIN if style is None else _look(style, colors)
        if text.isascii() or _is_even(text):
            cells.extend([(character, look) for character in text])
        else:
            for character, width in _characters(text):
                cells.append((character, look))
                cells.extend([("", look)] * (width - 1))
    return cells


def _characters(text: str) -> Iterator[tuple[str, int]]:
    """What a reader takes for one character, and the cells that it takes. What takes none belongs to the next one."""
    begin = num_cells = 0
    for _, behind, width in split_graphemes(text)[0]:
        num_cells += width
        is_half_flag = (
            num_cells == 1 and text[behind - 1] in _FLAG_LETTERS and text[behind : behind + 1] in _FLAG_LETTERS
        )
        if num_cells and not is_half_flag:
            yield text[begin:behind], num_cells
            begin, num_cells = behind, 0


@lru_cache(maxsize=4096)
def _is_even(text: str) -> bool:
    return all(len(character) == width == 1 for character, width in _characters(text)) and cell_len(text) == len(text)


@lru_cache(maxsize=4096)
def _look(style: Style, colors: ColorSystem) -> Look:
    before, _, behind = Strip.render_style(style, _SPLIT, colors).partition(_SPLIT)
    return before, behind
