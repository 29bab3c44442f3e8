"""Charts: what stands in them, and that an XML reader takes the SVG."""

from __future__ import annotations

import io
from dataclasses import replace
from xml.etree import ElementTree

import pytest
from bench_rows import SETTING, SHARE, make_row, peer_row
from PIL import Image, ImageColor

from app.bench.chart_drawing import draw_chart
from app.bench.charts import panels
from app.bench.drawing import Box, Text
from app.bench.png_file import png_bytes
from app.bench.svg_file import svg_text
from app.bench.terminal_chart import terminal_chart
from runtime.benchmark.workloads import Workload

PREFILL = Workload(test="prefill", prompt_tokens=512)
ROWS = (make_row(), peer_row(140.0, 150.0, 160.0), make_row(1800.0, workload=PREFILL))
SVG = "{http://www.w3.org/2000/svg}"


def parsed(rows: tuple = ROWS, title: str = "t", subtitle: str = "s") -> ElementTree.Element:
    return ElementTree.fromstring(svg_text(draw_chart(panels(rows), title=title, subtitle=subtitle)))


def texts(root: ElementTree.Element) -> list[str]:
    return [element.text or "" for element in root.iter(f"{SVG}text")]


def bars(root: ElementTree.Element) -> list[ElementTree.Element]:
    return [element for element in root.iter(f"{SVG}rect") if element.get("height") == "16"]


def test_panels_are_the_kinds_of_tests() -> None:
    drawn = panels(ROWS)
    assert [panel.title for panel in drawn] == ["Decode, tokens/s", "Prompt, tokens/s"]
    assert [bar.label for bar in drawn[0].bars] == [
        "decode 128, 2 threads, tandem",
        "decode 128, 2 threads, llama.cpp default",
    ]
    assert drawn[0].most == 320.0


def test_labels_tell_what_differs() -> None:
    others = [
        {"model_file": "b.gguf"},
        {"activations": "fast"},
        {"batch_size": 64},
        {"cache_type_k": "q8_0"},
    ]
    for other, word in zip(others, ["b", "fast", "batch 64", "q8_0/f16"], strict=True):
        (panel,) = panels([make_row(), make_row(setting=replace(SETTING, **other))])
        assert panel.bars[1].label == f"decode 128, 2 threads, {word}"
    (panel,) = panels([make_row()])
    assert panel.bars[0].label == "decode 128, 2 threads"


def test_bars_are_as_long_as_their_figures() -> None:
    root = parsed()
    tandem, peer, prefill = (float(bar.get("width") or 0) for bar in bars(root))
    assert tandem == pytest.approx(2 * peer, rel=0.01)
    assert prefill > tandem  # each panel has its own scale
    for text in ("300.0", "150.0", "1800", "Decode, tokens/s", "llama.cpp default"):
        assert text in texts(root)


def test_the_limit_is_drawn_where_it_is_near() -> None:
    def limits(limit: float) -> int:
        row = make_row(devices=(replace(SHARE, limit_tokens_per_s=limit),))
        return sum(element.get("y1") != element.get("y2") and element.get("stroke") == "#c0392b"
                   for element in parsed((row,)).iter(f"{SVG}line"))  # fmt: skip

    assert limits(371.0) == limits(3000.0) + 1


@pytest.mark.parametrize("rates", [(0.013,), (7.0, 7.0), (123456.0, 223456.0)])
def test_any_figure_has_a_scale(rates: tuple[float, ...]) -> None:
    root = parsed((make_row(*rates),))
    width = int(root.get("width") or 0)
    for bar in bars(root):
        assert 0 < float(bar.get("x") or 0) + float(bar.get("width") or 0) < width
    ticks = [element for element in root.iter(f"{SVG}text") if element.get("text-anchor") == "middle"]
    assert 4 <= len(ticks) <= 12


def test_names_cannot_break_the_file() -> None:
    nasty = "<b>&\"'\x1b[31m\x00\ud800 ü"
    row = make_row(setting=replace(SETTING, model_file=f"{nasty}.gguf"))
    text = svg_text(draw_chart(panels((row, make_row())), title=nasty, subtitle=nasty))
    root = ElementTree.fromstring(text.encode("utf-8"))
    assert any("<b>&\"'" in label for label in texts(root))


def test_long_labels_make_room() -> None:
    def left(name: str) -> float:
        rows = (make_row(setting=replace(SETTING, model_file=name)), make_row())
        return float(bars(parsed(rows))[0].get("x") or 0)

    assert left("m" * 60) > left("m")
    assert left("m" * 60) == left("m" * 600)


def test_the_terminal_chart_has_a_line_for_each_bar() -> None:
    lines = terminal_chart(panels(ROWS), 100).splitlines()
    assert lines[0] == "Decode, tokens/s" and lines[3] == "Prompt, tokens/s"
    assert lines[1].startswith("  decode 128, 2 threads, tandem ") and lines[1].endswith(" 300.0")
    lengths = [line.count("\u2588") for line in lines]
    assert lengths[1] == pytest.approx(2 * lengths[2], abs=1) and lengths[4] == 40 - 0
    assert max(map(len, lines)) <= 100
    assert terminal_chart((), 100) == ""


def test_the_terminal_chart_fits_narrow_terminals() -> None:
    assert max(len(line) for line in terminal_chart(panels(ROWS), 70).splitlines()) <= 70
    assert "300.0" in terminal_chart(panels(ROWS), 10)


def test_a_png_shows_what_the_svg_shows() -> None:
    """Bars lie where the SVG has them, in their colours, twice as fine; texts leave ink where they stand."""
    drawing = draw_chart(panels((make_row(), make_row())), title="tandem bench", subtitle="two rows")
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
    row = make_row(setting=replace(SETTING, model_file="模型\x1b[31m.gguf"))
    image = Image.open(io.BytesIO(png_bytes(draw_chart(panels((row, make_row())), title="标题", subtitle=""))))
    assert image.size[0] > 0
