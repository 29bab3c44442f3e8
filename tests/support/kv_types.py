"""How keys and values of each cache type stand in a page, in NumPy, from the description in kernels_cpu/kv_layout.py.

Owns rounding to a type and the bytes of one vector; a group of 16 keys is the same bytes, 16 positions side by side.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]
BLOCK = 32
LARGEST_HALF = np.float32(65504.0)


@dataclass(frozen=True, kw_only=True)
class Rounded:
    """Vectors [..., head_dim] in a type: float16 `scales` [..., blocks] (f16: none), and the type's items [..., n].

    Items are float16 (f16), int8 (q8_0), or bytes of two elements (q4_0).
    """

    name: str
    scales: Array
    items: Array

    def values(self) -> Array:
        """float32 [..., head_dim]; exact."""
        if self.name == "f16":
            return self.items.astype(np.float32)
        if self.name == "q8_0":
            integers = self.items.reshape(*self.scales.shape, BLOCK).astype(np.float32)
        else:
            halves = self.items.reshape(*self.scales.shape, BLOCK // 2)
            integers = np.concatenate([halves & 15, halves >> 4], axis=-1).astype(np.float32) - 8
        values = integers * self.scales.astype(np.float32)[..., None]
        return values.reshape(*self.scales.shape[:-1], -1)


def item_type(name: str) -> type[np.generic]:
    """What a vector's items are stored as."""
    return {"f16": np.float16, "q8_0": np.int8, "q4_0": np.uint8}[name]


def num_items(name: str, head_dim: int) -> int:
    return head_dim // 2 if name == "q4_0" else head_dim


def num_scales(name: str, head_dim: int) -> int:
    return 0 if name == "f16" else head_dim // BLOCK


def vector_bytes(name: str, head_dim: int) -> int:
    """Bytes of one key or value."""
    return 2 * num_scales(name, head_dim) + num_items(name, head_dim) * np.dtype(item_type(name)).itemsize


def round_to(name: str, x: Array) -> Rounded:
    """float32 vectors [..., head_dim] in a type.  The scale is rounded to a half first, the integers come from it."""
    x = np.clip(x, -LARGEST_HALF, LARGEST_HALF)
    if name == "f16":
        return Rounded(name=name, scales=np.zeros((*x.shape[:-1], 0), np.float16), items=x.astype(np.float16))
    blocks = x.reshape(*x.shape[:-1], -1, BLOCK)
    top, bottom = blocks.max(axis=-1), -blocks.min(axis=-1)
    if name == "q8_0":
        scales = (np.maximum(top, bottom) / np.float32(127.0)).astype(np.float16)
    else:  # the largest becomes -8, of which there is no positive counterpart
        scales = np.where(top > bottom, top / np.float32(-8.0), bottom / np.float32(8.0)).astype(np.float16)
    with np.errstate(divide="ignore"):
        inverse = np.where(scales != 0, np.float32(1.0) / scales.astype(np.float32), np.float32(0.0))
    least, most = (-127, 127) if name == "q8_0" else (-8, 7)
    integers = np.clip(np.rint(blocks * inverse[..., None]), least, most)
    if name == "q8_0":
        return Rounded(name=name, scales=scales, items=integers.astype(np.int8).reshape(x.shape))
    nibbles = (integers + 8).astype(np.uint8)
    items = nibbles[..., :16] | nibbles[..., 16:] << 4
    return Rounded(name=name, scales=scales, items=items.reshape(*x.shape[:-1], -1))


def hadamard(size: int) -> Array:
    """The normalised Hadamard transform of `size` (a power of two) elements, float64."""
    matrix = np.ones((1, 1))
    while len(matrix) < size:
        matrix = np.block([[matrix, matrix], [matrix, -matrix]])
    return matrix / np.sqrt(size)
