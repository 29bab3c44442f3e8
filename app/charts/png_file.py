"""A drawing as PNG, twice as fine as its pixels, with the letters that Pillow brings along.

Owns that file format.  Does not know what is drawn.
"""

from __future__ import annotations

import io
from functools import cache

from PIL import Image, ImageDraw, ImageFont

from app.charts.drawing import INK, PAPER, Box, Drawing, Line, Shape, Text

SCALE = 2
_ANCHORS = {"start": "ls", "middle": "ms", "end": "rs"}


def png_bytes(drawing: Drawing) -> bytes:
    """The whole file."""
    image = Image.new("RGB", (drawing.width * SCALE, drawing.height * SCALE), PAPER)
    pen = ImageDraw.Draw(image)
    for shape in drawing.shapes:
        _draw(pen, shape)
    file = io.BytesIO()
    image.save(file, "PNG", optimize=True)
    return file.getvalue()


def _draw(pen: ImageDraw.ImageDraw, shape: Shape) -> None:
    match shape:
        case Line():
            ends = [shape.x1, shape.y1, shape.x2, shape.y2]
            pen.line([round(SCALE * value) for value in ends], fill=shape.colour, width=SCALE * shape.width)
        case Box():
            left, top = round(SCALE * shape.x), round(SCALE * shape.y)
            right, bottom = round(SCALE * (shape.x + shape.width)), round(SCALE * (shape.y + shape.height))
            if right > left and bottom > top:
                pen.rectangle([left, top, right - 1, bottom - 1], fill=shape.colour)
        case Text():
            place = (SCALE * shape.x, SCALE * shape.y)
            stroke = SCALE * shape.size / 40 if shape.is_bold else 0  # the one font that comes along has no bold cut
            pen.text(
                place,
                shape.printable,
                fill=INK,
                font=_font(shape.size),
                anchor=_ANCHORS[shape.anchor],
                stroke_width=stroke,
            )


@cache
def _font(size: int) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    return ImageFont.load_default(SCALE * size)
