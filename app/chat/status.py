"""The status line as text: what is said first when there is room for little.

Owns the figures and how they read at a given width. Knows nothing of the screen.
"""

from __future__ import annotations

from dataclasses import dataclass

from app.chat.plain_text import columns_of, one_line, shortened

_SEPARATOR = " · "
_SHORT_MODEL = 14


@dataclass(frozen=True, kw_only=True)
class StatusFigures:
    """What the status line may say; None: not known (yet). `is_behind`: something could not be kept yet."""

    model: str = ""
    activity: str = ""
    is_behind: bool = False
    tokens_per_s: float | None = None
    ttft_s: float | None = None
    used_tokens: int | None = None
    context_size: int | None = None
    reused_tokens: int | None = None


@dataclass(frozen=True, kw_only=True)
class _Piece:
    """One figure: its wordings from the longest to the shortest, and its rank (0 is given up last)."""

    wordings: tuple[str, ...]
    rank: int


def status_line(figures: StatusFigures, width: int) -> str:
    """The figures in at most `width` columns: shorter wordings first, then the least important left out."""
    pieces = _pieces(figures)
    for shortness in range(max((len(piece.wordings) for piece in pieces), default=1)):
        line = _joined(pieces, shortness)
        if columns_of(line) <= width:
            return line
    for dropped_rank in range(max((piece.rank for piece in pieces), default=0), 0, -1):
        pieces = [piece for piece in pieces if piece.rank < dropped_rank]
        line = _joined(pieces, -1)
        if columns_of(line) <= width:
            return line
    return shortened(_joined(pieces, -1), width)


def _joined(pieces: list[_Piece], shortness: int) -> str:
    def wording(piece: _Piece) -> str:
        return piece.wordings[-1 if shortness < 0 else min(shortness, len(piece.wordings) - 1)]

    return _SEPARATOR.join(map(wording, pieces))


def _pieces(figures: StatusFigures) -> list[_Piece]:
    pieces: list[_Piece] = []
    model = one_line(figures.model)
    if model:
        pieces.append(_Piece(wordings=(model, model, shortened(model, _SHORT_MODEL)), rank=1))
    if figures.activity:
        pieces.append(_Piece(wordings=(figures.activity,), rank=0))
    if figures.is_behind:
        pieces.append(_Piece(wordings=("not kept",), rank=0))
    if figures.tokens_per_s is not None:
        rate = f"{figures.tokens_per_s:.1f}" if figures.tokens_per_s < 100 else f"{figures.tokens_per_s:.0f}"
        pieces.append(_Piece(wordings=(f"{rate} tokens/s", f"{rate} tok/s", f"{rate} t/s"), rank=2))
    if figures.ttft_s is not None:
        pieces.append(
            _Piece(wordings=(f"first token {_seconds(figures.ttft_s)}", f"TTFT {_seconds(figures.ttft_s)}"), rank=4)
        )
    if figures.used_tokens is not None and figures.context_size:
        share = f"{100 * figures.used_tokens / figures.context_size:.0f} %"
        both = f"{figures.used_tokens:,} of {figures.context_size:,}"
        wordings = (f"context {both} ({share})", f"ctx {both}", f"ctx {share}")
        pieces.append(_Piece(wordings=wordings, rank=3))
    if figures.reused_tokens:
        pieces.append(_Piece(wordings=(f"{figures.reused_tokens:,} reused",), rank=5))
    return pieces


def _seconds(duration_s: float) -> str:
    return f"{duration_s * 1000:.0f} ms" if duration_s < 1 else f"{duration_s:.1f} s"
