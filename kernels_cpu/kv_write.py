"""Writes one position's K and V into their page, rounded to the cache's types (see kv_layout.py).

What a half cannot hold becomes the largest: an infinity or NaN would spoil rows that give its position no weight.
"""

from __future__ import annotations

from collections.abc import Callable

from numba import njit, types

from kernels_cpu.kv_layout import GROUP, SCALE_BLOCK, CacheType
from kernels_cpu.rows import INLINE
from kernels_cpu.vectors import (
    WIDTH,
    half_bits,
    load,
    load_float,
    load_half,
    load_u8,
    load_u16,
    max_lane,
    maximum,
    minimum,
    rint,
    round_to_bytes,
    splat,
    stack_bytes,
    store,
    store_float,
    store_half,
    store_u8,
    store_u16,
)

MAX_HEAD_DIM = 512
LARGEST_HALF = types.float32(65504.0)
HALF_HEAD_BYTES = 2 * MAX_HEAD_DIM
BLOCK_BYTES = 64
HALF_BLOCK = SCALE_BLOCK // 2

Store = Callable[..., None]


def make_store_key(kind: CacheType) -> Store:
    """(x, keys, lane, head_dim): a key of float32 elements as lane `lane` of a group of 16 positions."""
    return _store_key_half if not kind.has_scales else _make_store_scaled(kind, GROUP)


def make_store_value(kind: CacheType) -> Store:
    """(x, value, 0, head_dim): a value of float32 elements, contiguous."""
    return _store_value_half if not kind.has_scales else _make_store_scaled(kind, 1)


@njit(types.void(*[types.intp] * 4), **INLINE)
def _store_key_half(x, keys, lane, head_dim):
    halves = stack_bytes(HALF_HEAD_BYTES)
    ceiling, floor = splat(LARGEST_HALF), splat(-LARGEST_HALF)
    for element in range(0, head_dim, WIDTH):
        store_half(halves + 2 * element, maximum(minimum(load(x + 4 * element), ceiling), floor))
    for element in range(head_dim):
        store_u16(keys + 2 * (element * GROUP + lane), load_u16(halves + 2 * element))


@njit(types.void(*[types.intp] * 4), **INLINE)
def _store_value_half(x, value, lane, head_dim):
    ceiling, floor = splat(LARGEST_HALF), splat(-LARGEST_HALF)
    for element in range(0, head_dim, WIDTH):
        store_half(value + 2 * element, maximum(minimum(load(x + 4 * element), ceiling), floor))


@njit(types.float32(types.int64), **INLINE)
def half_value(bits):
    """The float32 of a float16's bits."""
    halves, floats = stack_bytes(BLOCK_BYTES), stack_bytes(BLOCK_BYTES)
    store_u16(halves, bits)
    store(floats, load_half(halves))
    return load_float(floats)


def _make_store_scaled(kind: CacheType, spread: int) -> Store:
    """Blocks of 32 elements as scale and integers; element i of a block stands `spread` * i bytes (or scales) on."""
    is_byte = kind.bits == 8

    @njit(types.void(*[types.intp] * 4), **INLINE)
    def store_scaled(x, out, lane, head_dim):
        scratch = stack_bytes(BLOCK_BYTES)
        blocks = head_dim // SCALE_BLOCK
        data = out + 2 * spread * blocks + lane
        ceiling = splat(types.float32(127.0) if is_byte else types.float32(7.0))
        floor = splat(types.float32(-127.0) if is_byte else types.float32(-8.0))
        limit, zero = splat(LARGEST_HALF), splat(types.float32(0.0))
        for block in range(blocks):
            at = x + 4 * SCALE_BLOCK * block
            low = maximum(minimum(load(at), limit), splat(-LARGEST_HALF))
            high = maximum(minimum(load(at + 4 * WIDTH), limit), splat(-LARGEST_HALF))
            top, bottom = max_lane(maximum(low, high)), max_lane(maximum(zero - low, zero - high))
            if is_byte:
                bits = half_bits(max(top, bottom) / types.float32(127.0))
            else:  # the value of largest size becomes -8, the only one without a counterpart
                bits = half_bits(top / types.float32(-8.0) if top > bottom else bottom / types.float32(8.0))
            store_u16(out + 2 * (spread * block + lane), bits)
            scale = half_value(bits)
            inverse = splat(types.float32(1.0) / scale if scale != types.float32(0.0) else types.float32(0.0))
            round_to_bytes(scratch, maximum(minimum(rint(low * inverse), ceiling), floor))
            round_to_bytes(scratch + WIDTH, maximum(minimum(rint(high * inverse), ceiling), floor))
            if is_byte:
                for element in range(SCALE_BLOCK):
                    byte = load_u8(scratch + element)
                    store_u8(data + spread * (SCALE_BLOCK * block + element), byte)
            else:
                for element in range(HALF_BLOCK):
                    first, second = load_u8(scratch + element) + 8, load_u8(scratch + HALF_BLOCK + element) + 8
                    byte = (first & 15) | (second & 15) << 4
                    store_u8(data + spread * (HALF_BLOCK * block + element), byte)

    return store_scaled


@njit(types.void(types.intp, types.intp), **INLINE)
def transform_head(x, head_dim):
    """A normalised Hadamard transform of a head in place, over the largest power of two that divides head_dim."""
    size = head_dim & -head_dim
    factor = types.float32(1.0)
    width = 1
    while width < size:
        for first in range(0, head_dim, 2 * width):
            for element in range(first, first + width):
                a, b = load_float(x + 4 * element), load_float(x + 4 * (element + width))
                store_float(x + 4 * element, a + b)
                store_float(x + 4 * (element + width), a - b)
        factor = factor * types.float32(0.7071067811865476)
        width *= 2
    for element in range(head_dim):
        store_float(x + 4 * element, load_float(x + 4 * element) * factor)
