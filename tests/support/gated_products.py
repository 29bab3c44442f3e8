"""What becomes of gate and up, alone and in a mixture of experts, in plain NumPy: a part of the oracle.

Owns these formulas, as the definitions in models/program.py say them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from recurrences import sigmoid

from models.program import Activation, MixExperts

Array = np.ndarray[Any, np.dtype[Any]]


def activate(x: Array, activation: Activation) -> Array:
    """sigmoid(x), x * sigmoid(x), max(x, 0) ** 2, or the tanh form of GELU (Hendrycks and Gimpel 2016)."""
    if activation == "sigmoid":
        return sigmoid(x)
    if activation == "relu_squared":
        return np.maximum(x, 0.0) ** 2
    if activation == "silu":
        return x * (0.5 + 0.5 * np.tanh(0.5 * x))
    return 0.5 * x * (1.0 + np.tanh(np.sqrt(2.0 / np.pi) * (x + 0.044715 * x**3)))


def gate_and_up(gate: Array, up: Array, activation: Activation) -> Array:
    """What becomes of the two."""
    if activation == "clamped_swiglu":
        gate = np.minimum(gate, 7.0)
        return gate * (0.5 + 0.5 * np.tanh(0.851 * gate)) * (1.0 + np.clip(up, -7.0, 7.0))
    return activate(gate, activation) * up


def mix_experts(x: Array, operation: MixExperts, weights: Mapping[str, Array], router_x: Array | None = None) -> Array:
    """What every token's experts give together [T, width]; weights by name."""

    def product(row: Array, expert: int, name: str, bias: str | None) -> Array:
        return weights[name][expert] @ row + (0.0 if bias is None else weights[bias][expert])

    scores = (x if router_x is None else router_x) @ weights[operation.router.weight].T
    if operation.router.bias is not None:
        scores = scores + weights[operation.router.bias]
    scores = scores * x.dtype.type(operation.router_scale)
    if operation.weighing == "softmax_of_all":
        scores = np.exp(scores - scores.max(axis=1, keepdims=True))
        scores = scores / scores.sum(axis=1, keepdims=True)
    elif operation.weighing != "softmax":
        scores = sigmoid(scores)
    preferred = scores if operation.preference is None else scores + weights[operation.preference]
    out = np.zeros((len(x), operation.out.width), x.dtype)
    for token, row in enumerate(x):
        chosen = np.argsort(-preferred[token], kind="stable")[: operation.num_used]
        shares = scores[token, chosen]
        if operation.weighing == "softmax":
            shares = np.exp(shares - shares.max())
        if operation.weighing in ("softmax", "normalized_sigmoid"):
            shares = shares / shares.sum()
        if operation.expert_scale is not None:
            shares = shares * weights[operation.expert_scale][chosen]
        for expert, share in zip(chosen.tolist(), shares * x.dtype.type(operation.scale), strict=True):
            gate = product(row, expert, operation.gate, operation.gate_bias)
            up = product(row, expert, operation.up, operation.up_bias)
            gated = gate_and_up(gate, up, operation.activation)
            out[token] += share * product(gated, expert, operation.down, operation.down_bias)
    return out
