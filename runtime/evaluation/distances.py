"""What rows of logits say: how surprising the next token was, and how far one distribution is from another.

Owns the arithmetic on rows, in float64.  Does not know models, windows or sums over a text.  Room for four rows of
float64 is all that it takes, however long the text is.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from runtime.errors import NumericError


@dataclass(frozen=True, kw_only=True)
class Distance:
    """One position.  kl: of the reference's distribution p and the candidate's q, sum of p (ln p - ln q), in nats.

    agrees: whether both find the same token most likely.  reference_nll: minus the natural logarithm of the next
    token's probability, by the reference.
    """

    reference_nll: float
    kl: float
    agrees: bool


class RowMeter:
    """Reads rows of vocab_size logits; the first vocab_size of wider ones."""

    def __init__(self, vocab_size: int) -> None:
        self._size = vocab_size
        self._own, self._other, self._powers, self._gaps = (np.empty(vocab_size) for _ in range(4))

    def surprises(self, rows: np.ndarray, next_ids: Sequence[int]) -> list[float]:
        """Minus the natural logarithm of the probability of the token that follows each row.

        rows: float32 [n, at least vocab_size].  Raises NumericError for logits that are no finite numbers.
        """
        found = []
        for row, next_id in zip(rows, next_ids, strict=True):
            log_sum, _ = self._read(row, self._own)
            found.append(log_sum - float(self._own[next_id]))
        return found

    def distances(self, rows: np.ndarray, reference_rows: np.ndarray, next_ids: Sequence[int]) -> list[Distance]:
        """How far each row is from the reference's.  Both float32 [n, at least vocab_size]."""
        found = []
        for row, reference, next_id in zip(rows, reference_rows, next_ids, strict=True):
            own_log_sum, own_best = self._read(row, self._own)
            log_sum, best = self._read(reference, self._other)  # leaves the reference's powers
            np.subtract(self._other, self._own, out=self._gaps)
            mean_gap = float(self._powers @ self._gaps) / math.exp(log_sum)
            found.append(
                Distance(
                    reference_nll=log_sum - float(self._other[next_id]),
                    # It can't be below 0: what rounding leaves there is nothing.
                    kl=max(0.0, mean_gap + own_log_sum - log_sum),
                    agrees=best == own_best,
                )
            )
        return found

    def _read(self, row: np.ndarray, out: np.ndarray) -> tuple[float, int]:
        """Writes logits less the largest to `out`, and their powers; gives the logarithm of their sum, and the best."""
        row = row[: self._size]
        best = int(row.argmax())
        peak = float(row[best])
        if not math.isfinite(peak):
            raise _not_finite()
        np.subtract(row, peak, out=out, dtype=np.float64)
        np.exp(out, out=self._powers)
        total = float(self._powers.sum())
        if not math.isfinite(float(out.min())):
            raise _not_finite()
        return math.log(total), best


def _not_finite() -> NumericError:
    return NumericError(
        "The model's logits hold what is no finite number: the file may be damaged, or this machine computes wrongly. "
        "Try another file of the model, or another instruction set."
    )
