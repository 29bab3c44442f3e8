"""The tokens that may come next: finding the best of a row of logits without sorting the row.

Owns the selection, the filters and the draw.  Does not know options, sequences or where random numbers come from.

Rows are float32 [vocab_size]; whatever is computed on what was selected is float64.  Ties go to the lowest id.
Measured with 262,144 tokens on one core of an EPYC (Zen 4): the 40 best in 60 us, 1,500 us by argpartition;
logarithms of probabilities in 260 us.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from runtime.errors import NumericError

_COLUMNS = 2048
_MIN_ROWS = 4
_FIRST_GAP = 8.0  # nats below the best: beyond them lies less than 3e-4 of the best token's probability, each
_LAST_GAP = 256.0


@dataclass(frozen=True, kw_only=True)
class Candidates:
    """ids: int64 [n], at least one; logits: float64 [n].  Best first if is_sorted, by id otherwise."""

    ids: np.ndarray
    logits: np.ndarray
    is_sorted: bool

    def first(self, count: int) -> Candidates:
        """The `count` best; the candidates must be sorted."""
        assert self.is_sorted and count > 0
        return Candidates(ids=self.ids[:count], logits=self.logits[:count], is_sorted=True)


@dataclass(frozen=True, kw_only=True)
class RowPart:
    """What is known of a row of logits: those of its best tokens.  ids: int64 [n], ascending; logits: float32 [n]."""

    ids: np.ndarray
    logits: np.ndarray

    def places(self, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(where these ids stand in it, which of the ids do); both int64."""
        places = np.minimum(np.searchsorted(self.ids, ids), len(self.ids) - 1)
        known = np.flatnonzero(self.ids[places] == ids)
        return places[known], known


Row = np.ndarray | RowPart
"""Of logits: float32 [vocab_size], or as much of it as is needed."""


def row_part(ids: np.ndarray, logits: np.ndarray) -> RowPart:
    """A copy of the best tokens of a row, in any order."""
    order = np.argsort(ids)
    return RowPart(ids=ids[order].astype(np.int64), logits=logits[order])


def best_id(row: np.ndarray) -> int:
    """The id of the largest logit."""
    token_id = int(row.argmax())
    if not math.isfinite(row[token_id]):
        raise _not_numbers(float(row[token_id]))
    return token_id


def largest(row: np.ndarray, count: int) -> Candidates:
    """The `count` largest logits, best first.

    The k-th largest of the maxima of disjoint columns can't be above the k-th largest logit: it is a threshold that
    leaves little more than k logits to sort.
    """
    size = row.shape[0]
    count = min(count, size)
    columns = max(_COLUMNS, 1 << (4 * count - 1).bit_length())
    rows = size // columns
    if rows < _MIN_ROWS:
        _check_peak(row)
        return _sorted(row, np.flatnonzero(row >= np.partition(row, size - count)[size - count]), count)
    body = row[: rows * columns].reshape(rows, columns)
    maxima = body.max(axis=0)
    _check_peak(maxima)
    threshold = np.partition(maxima, columns - count)[columns - count]
    chosen_columns = np.flatnonzero(maxima >= threshold)
    found_rows, found_columns = np.nonzero(body[:, chosen_columns] >= threshold)
    ids = found_rows * columns + chosen_columns[found_columns]
    rest = row[rows * columns :]
    if rest.shape[0]:
        _check_rest(rest)
        ids = np.concatenate([ids, np.flatnonzero(rest >= threshold) + rows * columns])
    return _sorted(row, ids, count)


def all_of(row: np.ndarray) -> Candidates:
    """Every token, by id."""
    _check_peak(row)
    return Candidates(ids=np.arange(row.shape[0]), logits=row.astype(np.float64), is_sorted=False)


def above(row: np.ndarray, gap: float) -> Candidates:
    """The tokens whose logit is at most `gap` below the best, best first."""
    peak = _check_peak(row)
    return _sorted(row, np.flatnonzero(row >= peak - gap), row.shape[0])


def nucleus(row: np.ndarray, top_p: float) -> Candidates:
    """The fewest best tokens whose probabilities reach top_p of all, best first."""
    peak = _check_peak(row)
    wanted = top_p * float(np.exp(row - np.float32(peak)).sum(dtype=np.float64))
    gap = _FIRST_GAP
    while gap <= _LAST_GAP and float(np.exp(row[row >= peak - gap].astype(np.float64) - peak).sum()) < wanted:
        gap *= 2
    found = above(row, gap if gap <= _LAST_GAP else math.inf)
    return found.first(_reach(np.cumsum(np.exp(found.logits - peak)), wanted))


def keep_top_p(candidates: Candidates, top_p: float) -> Candidates:
    """The fewest best candidates whose probabilities reach top_p of all the candidates'."""
    sums = np.cumsum(np.exp(candidates.logits - candidates.logits[0]))
    return candidates.first(_reach(sums, top_p * sums[-1]))


def keep_min_p(candidates: Candidates, min_p: float) -> Candidates:
    """The candidates at least min_p times as probable as the best."""
    limit = candidates.logits[0] + math.log(min_p)
    return candidates.first(int(np.count_nonzero(candidates.logits >= limit)))


def weights(candidates: Candidates, temperature: float) -> np.ndarray:
    """float64 [n]: probabilities at that temperature, not divided by their sum.  The best one's is 1."""
    peak = candidates.logits[0] if candidates.is_sorted else candidates.logits.max()
    return np.exp((candidates.logits - peak) / temperature)


def first_to_arrive(candidates: Candidates, relative: np.ndarray, arrivals: np.ndarray) -> int:
    """The id that wins a race in which each runs at the speed of its weight: a draw by weight.

    arrivals: float64 [n], exponentially distributed with mean 1, one for each candidate.  Two sets of weights that are
    nearly alike mostly have the same winner: so a model that guesses for another guesses its draws too (Daliri, Musco,
    Suresh, "Coupling without communication and drafter-invariant speculative decoding", 2024).
    """
    with np.errstate(divide="ignore"):
        return int(candidates.ids[int((arrivals / relative).argmin())])


def best_logprobs(row: np.ndarray, count: int, scratch: np.ndarray) -> tuple[tuple[int, float], ...]:
    """The `count` best (id, natural logarithm of its probability), best first.  scratch: float32 [vocab_size]."""
    found = largest(row, count)
    peak = found.logits[0]
    np.subtract(row, np.float32(peak), out=scratch)
    np.exp(scratch, out=scratch)
    log_sum = peak + math.log(float(scratch.sum(dtype=np.float64)))
    return tuple(zip(found.ids.tolist(), (found.logits - log_sum).tolist(), strict=True))


def _sorted(row: np.ndarray, ids: np.ndarray, count: int) -> Candidates:
    """The ids, ascending, by logit."""
    values = row[ids]
    order = np.argsort(-values, kind="stable")[:count]  # equal logits stay in order of id
    return Candidates(ids=ids[order], logits=values[order].astype(np.float64), is_sorted=True)


def _reach(sums: np.ndarray, wanted: float) -> int:
    return min(int(np.searchsorted(sums, wanted, side="left")) + 1, sums.shape[0])


def _check_peak(values: np.ndarray) -> float:
    peak = float(values.max())  # not a number as soon as one value is not
    if not math.isfinite(peak):
        raise _not_numbers(peak)
    return peak


def _check_rest(values: np.ndarray) -> None:
    peak = float(values.max())
    if math.isnan(peak) or peak == math.inf:
        raise _not_numbers(peak)


def _not_numbers(found: float) -> NumericError:
    return NumericError(
        f"The model's logits hold {found} where finite numbers were expected: the file may be damaged, or this "
        f"machine computes wrongly. Try another file of the model, or another instruction set."
    )
