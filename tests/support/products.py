"""Products of packed matrices with records or floats, and what they must give.

Owns the calls of the product kernels and the float64 expectation with the rounding that float32 sums may show.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from gguf import GGMLQuantizationType, quants
from kernels import PackedMatrix, call, floats
from records import Records

from models.formats import FORMATS
from models.program import Activation

Array = np.ndarray[Any, np.dtype[Any]]
STORE, ADD, SILU, GELU, SWIGLU, SIGMOID, RELU_SQUARED = range(7)
ACTIVATIONS: dict[int, Activation] = {
    SILU: "silu", GELU: "gelu_tanh", SWIGLU: "clamped_swiglu", SIGMOID: "sigmoid", RELU_SQUARED: "relu_squared",
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Cut:
    """How a product is cut into chunks."""

    groups: int = 1
    tokens: int = 32


def multiply(
    matrix: PackedMatrix,
    x: Records | Array,
    count: int,
    *,
    mode: int = STORE,
    bias: Array | None = None,
    scale: float = 1.0,
    start: Array | None = None,
    cut: Cut = Cut(),
    order: Sequence[int] | None = None,
) -> Array:
    """float32 [count, rows] of a step's chunks, in `order` where given.  start: what `out` holds before."""
    lanes, groups = matrix.isa.lanes, matrix.num_groups
    width = groups * lanes + 16
    memory, out = floats((count, width))
    if start is not None:
        out[:, : matrix.num_rows] = start
        out[:, matrix.num_rows : groups * lanes] = 0
    padded_bias = np.zeros(groups * lanes, np.float32)
    if bias is not None:
        padded_bias[: matrix.num_rows] = bias
    chunks = -(-groups // cut.groups) * -(-count // cut.tokens)
    shared: dict[str, Array | int | float] = {
        "weights": matrix.memory.bytes, "group_bytes": matrix.group_bytes, "out": out, "out_stride": 4 * width,
        "num_groups": groups, "groups_per_chunk": cut.groups, "bias": 0 if bias is None else padded_bias,
        "scale": float(scale), "mode": mode,
        "count": np.array([count]), "tokens_per_chunk": cut.tokens,
    }  # fmt: skip
    if isinstance(x, Records):
        name = f"product-{matrix.format_name}-{x.terms}"
        shared |= {"num_blocks": matrix.num_blocks, "records": x.data}
    else:
        name = f"product_floats-{matrix.format_name}"
        shared |= {"num_columns": matrix.num_columns, "x": x, "x_stride": x.strides[0]}
    call(matrix.level, name, range(chunks) if order is None else order, **shared)
    memory.check()
    matrix.memory.check()
    assert np.isnan(out[:, groups * lanes :]).all(), "written past the last row of the matrix"
    return out[:, : matrix.num_rows]


def weights_of(format_name: str, raw: Array) -> Array:
    """What a matrix's blocks stand for, in float64 (each value is a float32)."""
    return quants.dequantize(raw, GGMLQuantizationType(FORMATS[format_name].ggml_id)).astype(np.float64)


def expected_product(weights: Array, values: Array) -> tuple[Array, Array]:
    """The product in float64 [tokens, rows], and how far float32 sums may be from it.

    A block's weight may be the small difference of a large product and a large minimum, so the bound takes the
    largest weight of 32 columns for each of them.
    """
    rows, columns = weights.shape
    expected = values @ weights.T
    block = 32 if columns % 32 == 0 else 1
    largest = np.abs(weights).reshape(rows, -1, block).max(axis=2)
    scale = np.abs(values).reshape(len(values), -1, block).sum(axis=2) @ largest.T
    return expected, 2e-6 * scale + 1e-37


def prompt(num_tokens: int, num_columns: int, seed: int = 0) -> Array:
    """Activations float32 as models have them: spread from block to block, with a few large values."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((num_tokens, num_columns)) * np.exp(rng.standard_normal((num_tokens, num_columns)))
    x[rng.random(x.shape) < 0.002] *= 100
    return x.astype(np.float32)
