"""A drawing as SVG 1.1, which needs no library, script or font.

Owns that file format.  Does not know what is drawn.
"""

from __future__ import annotations

from xml.sax.saxutils import escape

from app.charts.drawing import INK, PAPER, Box, Drawing, Line, Shape, Text


def svg_text(drawing: Drawing) -> str:
    """The whole file."""
    width, height = drawing.width, drawing.height
    title = Text(x=0, y=0, text=drawing.title, size=0).printable
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" font-family="Helvetica, Arial, sans-serif">\n'
        f"<title>{escape(title)}</title>\n"
        f'<rect width="{width}" height="{height}" fill="{PAPER}"/>\n'
        + "\n".join(map(_element, drawing.shapes))
        + "\n</svg>\n"
    )


def _element(shape: Shape) -> str:
    match shape:
        case Line():
            return (
                f'<line x1="{shape.x1:.1f}" y1="{shape.y1:.1f}" x2="{shape.x2:.1f}" y2="{shape.y2:.1f}" '
                f'stroke="{shape.colour}" stroke-width="{shape.width}"/>'
            )
        case Box():
            return (
                f'<rect x="{shape.x:.1f}" y="{shape.y:.1f}" width="{shape.width:.1f}" height="{shape.height:g}" '
                f'fill="{shape.colour}"/>'
            )
        case Text():
            weight = "bold" if shape.is_bold else "normal"
            return (
                f'<text x="{shape.x:.1f}" y="{shape.y:.1f}" font-size="{shape.size}" font-weight="{weight}" '
                f'text-anchor="{shape.anchor}" fill="{INK}">{escape(shape.printable)}</text>'
            )
