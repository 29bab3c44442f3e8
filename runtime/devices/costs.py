"""What a run costs on a device, and what the device gives at most: the numbers of a roofline.

Owns the terms and the sums over a batch.  Does not know programs, formats or how a limit is measured.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

Limit = Literal["memory", "multiplier"]


@dataclass(frozen=True, kw_only=True)
class RowCost:
    """weight_bytes: read once a run, if it has such rows; the multiply-adds are those of each row."""

    weight_bytes: int
    byte_multiply_adds: int
    float_multiply_adds: int


@dataclass(frozen=True, kw_only=True)
class LayerCost:
    """One layer's cache: bytes of a position's K and V; multiply-adds of a token with a position that it sees."""

    position_bytes: int
    multiply_adds_per_position: int
    window: int | None


@dataclass(frozen=True, kw_only=True)
class StepCosts:
    """A bound program.  tokens, outputs: its rows for tokens, and for tokens whose logits are wanted.

    embedding_bytes: what a token gathers of the embedding.
    """

    tokens: RowCost
    outputs: RowCost
    embedding_bytes: int
    layers: tuple[LayerCost, ...]


@dataclass(frozen=True, kw_only=True)
class MachineLimits:
    """What a device gives at most, measured: reading memory, dot products of bytes, float32 multiply-adds."""

    read_bytes_per_s: float
    byte_multiply_adds_per_s: float
    float_multiply_adds_per_s: float


@dataclass(frozen=True, kw_only=True)
class RunCost:
    """A run, or several.  moved_bytes: weights, keys and values, read or written once each."""

    moved_bytes: int = 0
    byte_multiply_adds: int = 0
    float_multiply_adds: int = 0

    def plus(self, other: RunCost) -> RunCost:
        """Both, one after the other."""
        return RunCost(
            moved_bytes=self.moved_bytes + other.moved_bytes,
            byte_multiply_adds=self.byte_multiply_adds + other.byte_multiply_adds,
            float_multiply_adds=self.float_multiply_adds + other.float_multiply_adds,
        )

    @property
    def multiply_adds(self) -> int:
        """Of both kinds."""
        return self.byte_multiply_adds + self.float_multiply_adds

    def least_s(self, limits: MachineLimits) -> tuple[float, Limit]:
        """The time that no program can stay below, and which limit says so: moving overlaps with multiplying."""
        moving_s = self.moved_bytes / limits.read_bytes_per_s
        multiplying_s = (
            self.byte_multiply_adds / limits.byte_multiply_adds_per_s
            + self.float_multiply_adds / limits.float_multiply_adds_per_s
        )
        return (moving_s, "memory") if moving_s >= multiplying_s else (multiplying_s, "multiplier")


class LimitsProbe(Protocol):
    """Measures a device's limits as often as it is asked to."""

    def measure(self, threads: int) -> MachineLimits:
        """With that many threads; takes about a tenth of a second."""
        ...

    def close(self) -> None:
        """Gives everything back.  May be called twice."""
        ...


def run_cost(costs: StepCosts, starts: Sequence[int], *, count: int, num_outputs: int) -> RunCost:
    """One run of `count` tokens for each sequence, the first of them at that sequence's start.

    num_outputs: rows of logits, for all sequences together.
    """
    num_tokens = len(starts) * count
    moved_bytes = costs.tokens.weight_bytes + num_tokens * costs.embedding_bytes
    moved_bytes += costs.outputs.weight_bytes if num_outputs else 0
    floats = num_tokens * costs.tokens.float_multiply_adds + num_outputs * costs.outputs.float_multiply_adds
    for layer in costs.layers:
        for start in starts:
            seen, pairs = _seen(start, count, layer.window)
            moved_bytes += (seen + count) * layer.position_bytes
            floats += pairs * layer.multiply_adds_per_position
    return RunCost(
        moved_bytes=moved_bytes,
        byte_multiply_adds=num_tokens * costs.tokens.byte_multiply_adds
        + num_outputs * costs.outputs.byte_multiply_adds,
        float_multiply_adds=floats,
    )


def _seen(start: int, count: int, window: int | None) -> tuple[int, int]:
    """Positions that tokens start..start+count-1 see together, and (token, position) pairs."""
    if window is None:
        return start + count, count * start + count * (count + 1) // 2
    pairs = sum(min(window, position + 1) for position in range(start, start + count))
    return start + count - max(0, start - window + 1), pairs
