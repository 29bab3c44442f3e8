"""Short convolutions and the gated delta rule in plain NumPy, as models/recurrence.py defines them.

Owns the mathematics.  Shares nothing with the kernel rooms.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from models.recurrence import DeltaRule

Array = np.ndarray[Any, np.dtype[Any]]


def sigmoid(x: Array) -> Array:
    """1 / (1 + e^-x), without overflow."""
    return 0.5 + 0.5 * np.tanh(0.5 * x)


def convolve(rows: Array, weight: Array) -> Array:
    """Each channel of rows [n + T, channels] by itself: [T, channels], from weight [channels, n + 1]."""
    count = len(rows) - weight.shape[1] + 1
    return sum((rows[i : i + count] * weight[:, i] for i in range(weight.shape[1])), np.zeros_like(rows[:count]))


def delta_rule(operation: DeltaRule, x: Array, decay: Array, learn: Array, rate: Array, state: Array) -> Array:
    """Token by token; decay (shift added), learn [T, heads]; state [heads, key_dim, value_dim] is changed in place."""
    kept = operation.state
    width = operation.num_key_heads * kept.key_dim
    q = x[:, :width].reshape(len(x), operation.num_key_heads, -1)
    k = x[:, width : 2 * width].reshape(q.shape)
    v = x[:, 2 * width :].reshape(len(x), kept.num_heads, kept.value_dim)
    q, k = (part / np.sqrt((part**2).sum(axis=-1, keepdims=True) + operation.epsilon) for part in (q, k))
    shared, group = np.arange(operation.num_key_heads), kept.num_heads // operation.num_key_heads
    heads = np.repeat(shared, group) if operation.is_grouped else np.tile(shared, group)
    q, k = (part[:, heads] for part in (q / kept.key_dim**0.5, k))
    factors, steps = np.exp(rate * np.logaddexp(0, decay)), sigmoid(learn)
    out = np.empty_like(v)
    for t in range(len(x)):
        state *= factors[t][:, None, None]
        error = v[t] - np.einsum("hkv,hk->hv", state, k[t])
        state += np.einsum("hk,hv->hkv", k[t], steps[t][:, None] * error)
        out[t] = np.einsum("hkv,hk->hv", state, q[t])
    return out.reshape(len(x), -1)
