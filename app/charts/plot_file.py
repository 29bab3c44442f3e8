"""Puts a drawing into a file: SVG or PNG, by the name's ending.

Owns the choice and the writing.  Does not know what is drawn.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from app.charts.drawing import Drawing
from app.charts.svg_file import svg_text
from app.errors import UsageError
from app.output import Console


def _svg(drawing: Drawing) -> bytes:
    return svg_text(drawing).encode()


def _png(drawing: Drawing) -> bytes:
    from app.charts.png_file import png_bytes

    return png_bytes(drawing)


_WRITERS: Mapping[str, Callable[[Drawing], bytes]] = {".svg": _svg, ".png": _png}


def check_plot_name(path: Path | None) -> None:
    """Raises UsageError for a name that tells no kind of file or lies in no folder, before anything is measured."""
    if path is None:
        return
    if path.suffix.lower() not in _WRITERS:
        raise UsageError(f"--plot draws SVG or PNG, and {path.name} ends in neither .svg nor .png.")
    folder = path.expanduser().parent
    if not folder.is_dir():
        raise UsageError(f"--plot is {path}, but there is no folder {folder}: make it, or name another file.")


def write_plot(path: Path, drawing: Drawing, console: Console) -> None:
    """Writes the file; a warning says why where that can't be done, for what was measured must not be lost by it."""
    data = _WRITERS[path.suffix.lower()](drawing)
    try:
        path.expanduser().write_bytes(data)
    except OSError as error:
        console.note(f"warning: the plot {path} can't be written: {error.strerror}.")
