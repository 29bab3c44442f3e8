"""Normalises and rotates query and key heads, and writes keys and values into their pages (if there are some).

One chunk is one token and one KV head with its query heads.  Lanes are 16 neighbouring elements of a head.
Source of the rotation: Su et al., RoFormer; "neighbours" pairs elements 2i and 2i + 1, "halves" i and
i + dimensions / 2.
"""

from __future__ import annotations

import math

from numba import njit, types

from kernels_cpu.kv_layout import GROUP, PAGE_SIZE, SCALE_BLOCK, CacheTypes
from kernels_cpu.kv_write import make_store_key, make_store_value, transform_head
from kernels_cpu.norms import sum_of_squares
from kernels_cpu.operands import ROTATE
from kernels_cpu.rows import INLINE
from kernels_cpu.vectors import (
    WIDTH,
    load,
    load_float,
    load_i32,
    scalar_fma,
    splat,
    square_root,
    store,
    store_float,
    word,
)  # fmt: skip


@njit(types.void(types.intp, types.intp, types.intp, types.float32), **INLINE)
def normalize_head(x, weight, head_dim, epsilon):
    """x = x / rms(x) * weight, in place."""
    mean = sum_of_squares(x, head_dim) / types.float32(head_dim)
    factor = splat(types.float32(1.0) / square_root(mean + epsilon))
    for element in range(0, head_dim, WIDTH):
        store(x + 4 * element, load(x + 4 * element) * factor * load(weight + 4 * element))


@njit(types.void(types.intp, types.intp, types.intp, types.intp), **INLINE)
def rotate_head(x, angles, dimensions, is_neighbours):
    """(a, b) = (a cos - b sin, a sin + b cos) for every pair, in place."""
    half = dimensions // 2
    distance = 4 if is_neighbours else 4 * half
    step = 8 if is_neighbours else 4
    for pair in range(half):
        at = x + step * pair
        a, b = load_float(at), load_float(at + distance)
        cosine, sine = load_float(angles + 4 * pair), load_float(angles + 4 * (half + pair))
        store_float(at, scalar_fma(a, cosine, -(b * sine)))
        store_float(at + distance, scalar_fma(a, sine, b * cosine))


@njit(types.void(types.intp, types.intp, types.intp, types.float32, *[types.intp] * 4), **INLINE)
def turn_head(x, head_dim, weight, epsilon, angles, dimensions, is_neighbours, norms_after):
    """Normalised and rotated, or the reverse, in place; weight, angles: 0 for neither."""
    if weight != 0 and norms_after == 0:
        normalize_head(x, weight, head_dim, epsilon)
    if angles != 0:
        rotate_head(x, angles, dimensions, is_neighbours)
    if weight != 0 and norms_after != 0:
        normalize_head(x, weight, head_dim, epsilon)


@njit(types.void(types.intp, types.intp, types.int64, types.intp), **INLINE)
def warm_head(x, head_dim, position, temperature):
    """x *= 1 + scale * ln(1 + position // length), in place; temperature: address of scale and length (0: none)."""
    length = word(temperature + 8)
    if length == 0:
        return
    factor = splat(types.float32(1.0 + load_float(temperature) * math.log(1.0 + position // length)))
    for element in range(0, head_dim, WIDTH):
        store(x + 4 * element, load(x + 4 * element) * factor)


def make_rotate(cache_types: CacheTypes):
    """The kernel (operands, token * KV heads + KV head)."""
    store_key, store_value = make_store_key(cache_types.k), make_store_value(cache_types.v)
    is_transformed = cache_types.k.is_rotated
    key_bits, key_scale_bytes = cache_types.k.bits, 2 if cache_types.k.has_scales else 0
    value_bits, value_scale_bytes = cache_types.v.bits, 2 if cache_types.v.has_scales else 0
    offsets = {name: ROTATE.offset(name) for name in ROTATE.names}
    o_q, o_q_stride, o_k, o_k_stride, o_v, o_v_stride = (
        offsets[n] for n in ("q", "q_stride", "k", "k_stride", "v", "v_stride")
    )
    o_per_kv, o_kv_heads, o_dim = offsets["heads_per_kv"], offsets["num_kv_heads"], offsets["head_dim"]
    o_q_norm, o_k_norm, o_epsilon, o_angles = (offsets[n] for n in ("q_norm", "k_norm", "epsilon", "angles"))
    o_dimensions, o_neighbours, o_after, o_temperature = (
        offsets[n] for n in ("dimensions", "is_neighbours", "norms_after", "temperature")
    )
    o_positions, o_slots, o_tables, o_table_stride, o_cache, o_page_bytes, o_head_bytes = (
        offsets[n] for n in ("positions", "slots", "page_tables", "table_stride", "cache", "page_bytes", "head_bytes")
    )

    def rotate(o, chunk):
        num_kv_heads, head_dim, per_kv = word(o + o_kv_heads), word(o + o_dim), word(o + o_per_kv)
        token, kv_head = chunk // num_kv_heads, chunk % num_kv_heads
        position = load_i32(word(o + o_positions) + 4 * token)
        dimensions, is_neighbours = word(o + o_dimensions), word(o + o_neighbours)
        angles, epsilon = word(o + o_angles), load_float(o + o_epsilon)
        k = word(o + o_k) + token * word(o + o_k_stride) + kv_head * head_dim * 4
        v = word(o + o_v) + token * word(o + o_v_stride) + kv_head * head_dim * 4
        q = word(o + o_q) + token * word(o + o_q_stride) + kv_head * per_kv * head_dim * 4
        for head in range(per_kv + 1 if word(o + o_k) != 0 else per_kv):
            is_key = head == per_kv
            x, weight = (k, word(o + o_k_norm)) if is_key else (q + head * head_dim * 4, word(o + o_q_norm))
            turn = angles + position * dimensions * 4 if angles != 0 else 0
            turn_head(x, head_dim, weight, epsilon, turn, dimensions, is_neighbours, word(o + o_after))
            if not is_key:
                warm_head(x, head_dim, position, o + o_temperature)
            if is_transformed:
                transform_head(x, head_dim)
        if word(o + o_k) == 0:
            return
        table = word(o + o_tables) + load_i32(word(o + o_slots) + 4 * token) * word(o + o_table_stride)
        page = load_i32(table + position // PAGE_SIZE * 4)
        block = word(o + o_cache) + page * word(o + o_page_bytes) + kv_head * word(o + o_head_bytes)
        scales = head_dim // SCALE_BLOCK
        key_bytes = head_dim * key_bits // 8 + scales * key_scale_bytes
        value_bytes = head_dim * value_bits // 8 + scales * value_scale_bytes
        place = position % PAGE_SIZE
        store_key(k, block + place // GROUP * GROUP * key_bytes, place % GROUP, head_dim)
        store_value(v, block + PAGE_SIZE * key_bytes + place * value_bytes, 0, head_dim)

    return rotate
