"""Activation records in NumPy: how 32 values become bytes, and what those bytes stand for.

Owns the record's meaning, written from its description in kernels_cpu/activations.py: every step is rounded to float32
as stated there, so a kernel's records must equal these to the bit.  Products are then compared with the values that
the records hold, not with the values that were rounded.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]

BLOCK = 32
SMALLEST_UNIT = np.finfo(np.float32).tiny  # below it one over a unit is not finite: such values count as zeros


@dataclass(frozen=True, kw_only=True)
class Records:
    """data: uint8 [blocks of 32 columns, padded tokens, record bytes]; values: float64 [tokens, columns] they hold."""

    data: Array
    values: Array
    terms: int

    @property
    def size_bytes(self) -> int:
        return self.data.shape[2]


def padded_tokens(count: int) -> int:
    """Room is for tiles of four tokens, or for a single one."""
    return 1 if count == 1 else -(-count // 4) * 4


def tree(lanes: Array) -> Array:
    """The sum of lanes [..., a power of two] as kernels take it: halves are added until one is left."""
    while lanes.shape[-1] > 1:
        half = lanes.shape[-1] // 2
        lanes = lanes[..., :half] + lanes[..., half:]
    return lanes[..., 0]


def make_records(x: Array, terms: int) -> Records:
    """Records of float32 x [tokens, columns]; blocks past the last column hold zeros, as do padding tokens."""
    count, columns = x.shape
    assert columns % BLOCK == 0
    num_blocks = -(-columns // 64) * 2
    blocks = np.zeros((count, num_blocks, BLOCK), np.float32)
    blocks[:, : columns // BLOCK] = x.reshape(count, -1, BLOCK)
    unit, parts = _round(blocks, terms)
    whole = parts[0] if terms == 1 else np.float32(256.0) * parts[0] + parts[1]
    data = np.zeros((num_blocks, padded_tokens(count), BLOCK * terms + 16), np.uint8)
    data[:, :count] = np.moveaxis(_bytes(unit, parts, whole), 0, 1)
    values = (whole * unit[..., None].astype(np.float64)).reshape(count, -1)[:, :columns]
    return Records(data=data, values=values, terms=terms)


def _round(blocks: Array, terms: int) -> tuple[Array, list[Array]]:
    """Units float32 [tokens, blocks], and one or two arrays of whole numbers [tokens, blocks, 32]."""
    peak = np.abs(blocks).max(axis=2)
    unit = peak / np.float32(127.0)
    with np.errstate(divide="ignore", over="ignore"):
        inverse = np.where(unit >= SMALLEST_UNIT, np.float32(1.0) / unit, np.float32(0.0))[..., None]
    scaled = blocks * inverse
    high = np.rint(scaled)
    if terms == 1:
        return unit, [high]
    low = np.clip(np.rint((scaled - high) * np.float32(256.0)), np.float32(-127.0), np.float32(127.0))
    return unit / np.float32(256.0), [high, low]


def _bytes(unit: Array, parts: list[Array], whole: Array) -> Array:
    """uint8 [tokens, blocks, record bytes]."""
    halves = tree(whole.reshape(*whole.shape[:2], 2, 16))
    fields = [part.astype(np.int8) for part in parts]
    fields.append(unit[..., None].astype("<f4"))
    fields.append((unit * (halves[..., 0] + halves[..., 1]))[..., None].astype("<f4"))
    fields.append((-halves).astype("<i4"))
    return np.concatenate([np.ascontiguousarray(field).view(np.uint8) for field in fields], axis=2)
