"""Operations that go on from what a sequence left behind: short convolutions and the gated delta rule.

Owns them and the state that a layer keeps.  A state is not a page: its size doesn't depend on the length of the
sequence, and what came before can't be cut off it.  Whoever runs a program keeps a state for each place that it may
want to go on from.  Shapes as in program.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from models.buffers import Buffer


@dataclass(frozen=True, kw_only=True)
class StateLayer:
    """What one layer keeps of a sequence, float32: all zeros before its first token.

    The last num_inputs rows [channels] that a convolution saw, the oldest first; then num_heads matrices
    [key_dim, value_dim] of a delta rule.
    """

    num_inputs: int
    channels: int
    num_heads: int = 0
    key_dim: int = 0
    value_dim: int = 0

    @property
    def num_values(self) -> int:
        """float32 values of one state."""
        return self.num_inputs * self.channels + self.num_heads * self.key_dim * self.value_dim


@dataclass(frozen=True, kw_only=True)
class Convolve:
    """A causal convolution of each channel by itself: with h = before * x (or x),

    out[t] = activation(sum over i of weight[:, i] * h[t - n + i]) * after[t] for i = 0..n, n = state.num_inputs.
    weight: [channels, n + 1].  h before a sequence's first token is 0; the last n rows of h become the state.
    """

    x: Buffer
    weight: str
    out: Buffer
    state: StateLayer
    before: Buffer | None = None
    after: Buffer | None = None
    activation: Literal["none", "silu"] = "none"
    layer_idx: int


@dataclass(frozen=True, kw_only=True)
class DeltaRule:
    """The gated delta rule (Yang et al. 2024, Gated Delta Networks), for each of state.num_heads heads h:

    g = exp(rate[h] * softplus(decay[t, h] + shift[h])), b = sigmoid(learn[t, h]);
    S = g S;  S = S + k (b (v - S^T k))^T;  out[t, h] = S^T q.
    x: [T, q, then k of num_key_heads heads of key_dim values, then v of num_heads of value_dim].
    Head h has the q and k of head h % num_key_heads (is_grouped: h // (num_heads / num_key_heads)), each divided by
    sqrt(its sum of squares + epsilon), q by sqrt(key_dim) as well.
    """

    x: Buffer
    decay: Buffer
    learn: Buffer
    rate: str
    shift: str
    out: Buffer
    num_key_heads: int
    epsilon: float
    is_grouped: bool = False
    state: StateLayer
    layer_idx: int


@dataclass(frozen=True, kw_only=True)
class Separate:
    """Takes rows apart: of each two runs of `run` values of x the first goes to `first`, the second to `second`."""

    x: Buffer
    first: Buffer
    second: Buffer
    run: int
    layer_idx: int


Recurrence = Convolve | DeltaRule | Separate


def recurrence_weights(operation: Recurrence) -> Iterator[str]:
    """The weights that one of these reads, in order."""
    match operation:
        case Convolve(weight=weight):
            yield weight
        case DeltaRule(rate=rate, shift=shift):
            yield from (rate, shift)
        case Separate():
            pass


def recurrence_shapes(operation: Recurrence) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Its weights and the shapes that they must have."""
    match operation:
        case Convolve(weight=weight, state=state):
            yield weight, (state.channels, state.num_inputs + 1)
        case DeltaRule(rate=rate, shift=shift, state=state):
            yield rate, (state.num_heads,)
            yield shift, (state.num_heads,)
        case Separate():
            pass
