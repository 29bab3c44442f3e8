"""Charts: what stands in them, and that an XML reader takes the SVG."""

from __future__ import annotations

import io
from xml.etree import ElementTree

import pytest
from PIL import Image, ImageColor

from app.charts.chart_drawing import draw_chart
from app.charts.drawing import Box, Text
from app.charts.panels import Bar, Panel
from app.charts.png_file import png_bytes
from app.charts.svg_file import svg_text
from app.charts.terminal_chart import terminal_chart
from runtime.benchmark.statistics import spread_of

SVG = "{http://www.w3.org/2000/svg}"


def make_bar(*rates: float, label: str = "decode 128", series: str = "tandem", limit: float | None = None) -> Bar:
    return Bar(label=label, series=series, spread=spread_of(rates or (290.0, 300.0, 320.0)), limit=limit)


def make_panel(*bars: Bar, title: str = "Decode, tokens/s") -> Panel:
    return Panel(title=title, bars=bars)


PANELS = (
    make_panel(make_bar(), make_bar(140.0, 150.0, 160.0, label="decode 128, llama.cpp", series="llama.cpp")),
    make_panel(make_bar(1800.0, label="prompt 512"), title="Prompt, tokens/s"),
)


def parsed(*panels: Panel) -> ElementTree.Element:
    return ElementTree.fromstring(svg_text(draw_chart(panels, title="t", subtitle="s")))


def texts(root: ElementTree.Element) -> list[str]:
    return [element.text or "" for element in root.iter(f"{SVG}text")]


def bars(root: ElementTree.Element) -> list[ElementTree.Element]:
    return [element for element in root.iter(f"{SVG}rect") if element.get("height") == "16"]


def test_bars_are_as_long_as_their_figures() -> None:
    root = parsed(*PANELS)
    tandem, peer, prefill = (float(bar.get("width") or 0) for bar in bars(root))
    assert tandem == pytest.approx(2 * peer, rel=0.01)
    assert prefill > tandem  # each panel has its own scale
    for text in ("300.0", "150.0", "1800", "Decode, tokens/s", "llama.cpp"):
        assert text in texts(root)


def test_a_single_figure_has_no_whisker_and_a_single_kind_of_bar_no_legend() -> None:
    def whiskers(bar: Bar) -> int:
        return sum(line.get("y1") == line.get("y2") for line in parsed(make_panel(bar)).iter(f"{SVG}line"))

    assert whiskers(make_bar(300.0)) == 0 and whiskers(make_bar(290.0, 300.0)) == 1
    assert "tandem" in texts(parsed(*PANELS)) and "tandem" not in texts(parsed(make_panel(make_bar())))


def test_the_limit_is_drawn_where_it_is_near() -> None:
    def limits(limit: float) -> int:
        return sum(
            line.get("y1") != line.get("y2") and line.get("stroke") == "#c0392b"
            for line in parsed(make_panel(make_bar(limit=limit))).iter(f"{SVG}line")
        )

    assert limits(371.0) == limits(3000.0) + 1


@pytest.mark.parametrize("rates", [(0.013,), (7.0, 7.0), (123456.0, 223456.0)])
def test_any_figure_has_a_scale(rates: tuple[float, ...]) -> None:
    root = parsed(make_panel(make_bar(*rates)))
    width = int(root.get("width") or 0)
    for bar in bars(root):
        assert 0 < float(bar.get("x") or 0) + float(bar.get("width") or 0) < width
    ticks = [element for element in root.iter(f"{SVG}text") if element.get("text-anchor") == "middle"]
    assert 4 <= len(ticks) <= 12


def test_names_cannot_break_the_file() -> None:
    nasty = "<b>&\"'\x1b[31m\x00\ud800 ü"
    panel = make_panel(make_bar(label=nasty, series=nasty), title=nasty)
    text = svg_text(draw_chart([panel], title=nasty, subtitle=nasty))
    root = ElementTree.fromstring(text.encode("utf-8"))
    assert any("<b>&\"'" in label for label in texts(root))


def test_long_labels_make_room() -> None:
    def left(label: str) -> float:
        return float(bars(parsed(make_panel(make_bar(label=label))))[0].get("x") or 0)

    assert left("m" * 75) > left("m")
    assert left("m" * 80) == left("m" * 800)


def test_the_terminal_chart_has_a_line_for_each_bar() -> None:
    lines = terminal_chart(PANELS, 100).splitlines()
    assert lines[0] == "Decode, tokens/s" and lines[3] == "Prompt, tokens/s"
    assert lines[1].startswith("  decode 128  ") and lines[1].endswith(" 300.0")
    lengths = [line.count("\u2588") for line in lines]
    assert lengths[1] == pytest.approx(2 * lengths[2], abs=1) and lengths[4] == 40
    assert max(map(len, lines)) <= 100
    assert terminal_chart((), 100) == ""


def test_the_terminal_chart_fits_narrow_terminals() -> None:
    assert max(len(line) for line in terminal_chart(PANELS, 70).splitlines()) <= 70
    assert "300.0" in terminal_chart(PANELS, 10)


def test_a_png_shows_what_the_svg_shows() -> None:
    """Bars lie where the SVG has them, in their colours, twice as fine; texts leave ink where they stand."""
    drawing = draw_chart([make_panel(make_bar(), make_bar())], title="tandem bench", subtitle="two rows")
    image = Image.open(io.BytesIO(png_bytes(drawing)))
    assert image.format == "PNG" and image.size == (2 * drawing.width, 2 * drawing.height)
    boxes = [shape for shape in drawing.shapes if isinstance(shape, Box)]
    assert len(boxes) >= 2
    for box in boxes:
        below_whiskers = (round(2 * box.x) + 2, round(2 * (box.y + box.height)) - 2)
        assert image.getpixel(below_whiskers) == ImageColor.getrgb(box.colour)
    for text in (shape for shape in drawing.shapes if isinstance(shape, Text)):
        middle = 2 * text.y - text.size / 2
        left = 2 * text.x - {"start": 0, "middle": 1, "end": 2}[text.anchor] * 3 * text.size
        around = image.convert("L").crop(
            (max(0, int(left)), int(middle - text.size), int(left + 6 * text.size), int(middle + text.size))
        )
        assert min(around.tobytes()) < 128, text


def test_a_png_holds_letters_that_its_font_lacks() -> None:
    drawing = draw_chart([make_panel(make_bar(label="模型\x1b[31m.gguf"))], title="标题", subtitle="")
    image = Image.open(io.BytesIO(png_bytes(drawing)))
    assert image.size[0] > 0
