"""What the terminal shows after narrow updates is what whole ones would have shown, with fewer bytes."""

import random

import pyte
import pytest
from rich.console import Console
from rich.segment import Segment
from rich.style import Style
from textual._compositor import ChopsUpdate, LayoutUpdate
from textual.geometry import Region
from textual.strip import Strip

from app.chat.drawn_screen import DrawnScreen

WIDTH, HEIGHT = 40, 12
CONSOLE = Console(color_system="truecolor", force_terminal=True)
STYLES = [Style(), Style(color="#ff0000"), Style(bold=True, bgcolor="#00ff00")]
WORDS = ["fox", "dog", "a", "東京", "é", "─┤", "e\u0301", "   ", "x" * 9]


class Terminal:
    """An emulated terminal, and the same terminal as whole updates leave it."""

    def __init__(self) -> None:
        self.drawn = DrawnScreen()
        self.shown, self.wanted = pyte.Screen(WIDTH, HEIGHT), pyte.Screen(WIDTH, HEIGHT)

    def update(self, update: LayoutUpdate | ChopsUpdate) -> tuple[int, int]:
        """Characters written, and as many as Textual would write."""
        narrow, whole = self.drawn.narrowed(update).render_segments(CONSOLE), update.render_segments(CONSOLE)
        pyte.Stream(self.shown).feed(narrow)
        pyte.Stream(self.wanted).feed(whole.replace("\n", ""))
        for y in range(HEIGHT):
            assert _looks(self.shown, y) == _looks(self.wanted, y), f"line {y} after {narrow!r}"
        return len(narrow), len(whole)


def _looks(screen: pyte.Screen, y: int) -> list[tuple[str, str, str, bool]]:
    return [(cell.data, cell.fg, cell.bg, cell.bold) for cell in (screen.buffer[y][x] for x in range(WIDTH))]


def _line(rng: random.Random) -> Strip:
    segments = [Segment(rng.choice(WORDS) + " ", rng.choice(STYLES)) for _ in range(rng.randint(0, 5))]
    return Strip(segments).adjust_cell_length(WIDTH, STYLES[0])


def _plain(text: str) -> Strip:
    return Strip([Segment(text, STYLES[1])]).adjust_cell_length(WIDTH, STYLES[0])


def _whole(lines: list[Strip]) -> LayoutUpdate:
    return LayoutUpdate([[line] for line in lines], Region(0, 0, WIDTH, HEIGHT))


def test_any_sequence_of_updates_shows_what_whole_ones_show() -> None:
    rng = random.Random(7)
    terminal = Terminal()
    lines = [_line(rng) for _ in range(HEIGHT)]
    for _ in range(400):
        match rng.randrange(5):
            case 0:  # scrolled up or down within some lines
                top, bottom = sorted(rng.sample(range(HEIGHT + 1), 2))
                num = rng.randint(1, 3)
                part = lines[top:bottom]
                fresh = [_line(rng) for _ in range(min(num, len(part)))]
                moved = [*part[num:], *fresh] if rng.random() < 0.5 else [*fresh, *part[: len(part) - len(fresh)]]
                lines[top:bottom] = moved
            case 1:
                lines[rng.randrange(HEIGHT)] = _line(rng)
            case 2:
                terminal.drawn.forget()
            case _:
                y, x = rng.randrange(HEIGHT), 8 * rng.randrange(5)
                piece = Strip([Segment("".join(rng.choices("ab. ", k=8)), rng.choice(STYLES))])
                lines[y] = Strip.join([lines[y].crop(0, x), piece, lines[y].crop(x + 8, WIDTH)])
                chops = [{0: line} for line in lines]
                chops[y] = {0: lines[y].crop(0, x), x: piece, x + 8: lines[y].crop(x + 8, WIDTH)}
                ends = [[WIDTH] for _ in lines]
                ends[y] = [x, x + 8, WIDTH]
                if lines[y].cell_length == WIDTH and "".join(segment.text for segment in lines[y]).isascii():
                    terminal.update(ChopsUpdate(chops, [(y, x, x + 8)], ends))
                    continue
        terminal.update(_whole(lines))


def test_a_scrolled_screen_costs_its_new_line_alone() -> None:
    terminal = Terminal()
    lines = [_plain(f"line {number} of a long reply, in full") for number in range(60)]
    footer = _plain("the input")
    for first in range(0, 40):
        written, whole = terminal.update(_whole([*lines[first : first + HEIGHT - 1], footer]))
        assert first == 0 or 6 * written < whole
    for first in range(38, 0, -2):
        written, whole = terminal.update(_whole([*lines[first : first + HEIGHT - 1], footer]))
        assert 3 * written < whole


def test_a_line_that_grows_costs_what_was_added() -> None:
    terminal = Terminal()
    text = "word " * 7
    blank = [_plain("")] * (HEIGHT - 1)
    terminal.update(_whole([_plain(""), *blank]))
    for end in range(1, len(text)):
        assert terminal.update(_whole([_plain(text[:end]), *blank]))[0] < 40
    assert terminal.update(_whole([_plain(text), *blank]))[0] < 40
    assert terminal.update(_whole([_plain(text), *blank]))[0] == 0


def test_what_is_not_known_between_two_changes_stays() -> None:
    drawn, shown = DrawnScreen(), pyte.Screen(WIDTH, HEIGHT)
    stream = pyte.Stream(shown)
    stream.feed(drawn.write(_whole([_plain("." * WIDTH)] * HEIGHT), CONSOLE))
    drawn.forget()
    chops = [{0: _plain("").crop(0, 4), 4: None, 8: _plain("").crop(0, 32)}, *[{0: None}] * (HEIGHT - 1)]
    spans = [(0, 0, 4), (0, 8, WIDTH)]
    stream.feed(drawn.write(ChopsUpdate(chops, spans, [[4, 8, WIDTH], *[[WIDTH]] * (HEIGHT - 1)]), CONSOLE))
    assert shown.display[0] == "    ....".ljust(WIDTH)


@pytest.mark.parametrize(
    "character", ["\u2764\ufe0f", "\U0001f469\u200d\U0001f467", "\U0001f1e9\U0001f1ea", "\u2639\ufe0f"]
)
def test_a_character_whose_width_terminals_dispute_moves_nothing_behind_it(character: str) -> None:
    drawn, shown = DrawnScreen(), pyte.Screen(WIDTH, HEIGHT)  # which takes each code point for a character
    stream = pyte.Stream(shown)
    for line in ("x" * WIDTH, f"a {character} told", f"ab {character} told"):
        stream.feed(drawn.write(_whole([_plain(line)] * HEIGHT), CONSOLE))
    row = "".join(shown.buffer[0][x].data for x in range(WIDTH))
    assert [shown.buffer[0][x].data for x in range(6, 10)] == list("told")
    assert "x" not in row
