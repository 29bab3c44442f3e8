"""A batch cut into pieces of one phase each: prompts, and what follows them.

Owns the cutting and the way of the rows back.  Does not know what a device does otherwise in either phase.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from runtime.devices.binding import Batch


@dataclass(frozen=True, kw_only=True)
class Piece:
    """Tokens of a batch that are computed together.

    tokens: int indexes into the batch; outputs: int32 indexes into the piece, of the tokens whose logits are wanted;
    rows: the rows that these have in the batch's result.
    """

    is_prompt: bool
    tokens: np.ndarray
    outputs: np.ndarray
    rows: np.ndarray


def pieces_of(batch: Batch, *, most_prompt_tokens: int) -> list[Piece]:
    """The prompts' tokens, at most so many a piece, and then all others in one piece.

    Of one sequence the prompt comes first in a batch too, so that every token finds those before it computed.
    """
    rows = np.full(len(batch.token_ids), -1, np.int32)
    rows[batch.outputs] = np.arange(len(batch.outputs), dtype=np.int32)
    prompt, others = np.flatnonzero(batch.is_prompt), np.flatnonzero(~batch.is_prompt)
    runs = [prompt[first : first + most_prompt_tokens] for first in range(0, len(prompt), most_prompt_tokens)]
    pieces = [_piece(run, rows, is_prompt=True) for run in runs]
    return [*pieces, _piece(others, rows, is_prompt=False)] if len(others) else pieces


def _piece(tokens: np.ndarray, rows: np.ndarray, *, is_prompt: bool) -> Piece:
    wanted = rows[tokens]
    outputs = np.flatnonzero(wanted >= 0).astype(np.int32)
    return Piece(is_prompt=is_prompt, tokens=tokens, outputs=outputs, rows=wanted[outputs])


def in_order(result: np.ndarray, pieces: Sequence[Piece]) -> np.ndarray:
    """The rows of all pieces, one piece's after the other's, as the batch wants them."""
    rows = np.concatenate([piece.rows for piece in pieces])
    if (np.diff(rows) == 1).all():
        return result
    return result[np.argsort(rows)]
