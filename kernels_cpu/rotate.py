"""Normalises and rotates query and key heads, and writes keys and values into their pages.

One chunk is one token and one KV head with its query heads.  Lanes are 16 neighbouring elements of a head.
Source of the rotation: Su et al., RoFormer; "neighbours" pairs elements 2i and 2i + 1, "halves" i and
i + dimensions / 2.
"""

from __future__ import annotations

from numba import njit, types

from kernels_cpu.kv_layout import GROUP, PAGE_SIZE
from kernels_cpu.operands import ROTATE
from kernels_cpu.rows import INLINE, sum_of_squares
from kernels_cpu.vectors import (
    WIDTH,
    load,
    load_float,
    load_i32,
    load_u16,
    maximum,
    minimum,
    scalar_fma,
    splat,
    square_root,
    stack_bytes,
    store,
    store_float,
    store_half,
    store_u16,
    word,
)  # fmt: skip

MAX_HEAD_DIM = 512
HALF_HEAD_BYTES = 2 * MAX_HEAD_DIM
LARGEST_HALF = types.float32(65504.0)


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


@njit(types.void(*[types.intp] * 5), **INLINE)
def store_key_value(k, v, block, position, head_dim):
    """Writes K and V of one position (counted in the page) of one head.

    What a half cannot hold becomes the largest: an infinity or NaN would spoil rows that give its position no weight.
    """
    key = block + (position // GROUP * head_dim * GROUP + position % GROUP) * 2
    value = block + (PAGE_SIZE + position) * head_dim * 2
    halves = stack_bytes(HALF_HEAD_BYTES)
    ceiling = splat(LARGEST_HALF)
    floor = splat(-LARGEST_HALF)
    for element in range(0, head_dim, WIDTH):
        store_half(halves + 2 * element, maximum(minimum(load(k + 4 * element), ceiling), floor))
        store_half(value + 2 * element, maximum(minimum(load(v + 4 * element), ceiling), floor))
    for element in range(head_dim):
        store_u16(key + element * 2 * GROUP, load_u16(halves + 2 * element))


def make_rotate():
    """The kernel (operands, token * KV heads + KV head)."""
    offsets = {name: ROTATE.offset(name) for name in ROTATE.names}
    o_q, o_q_stride, o_k, o_k_stride, o_v, o_v_stride = (
        offsets[n] for n in ("q", "q_stride", "k", "k_stride", "v", "v_stride")
    )
    o_per_kv, o_kv_heads, o_dim = offsets["heads_per_kv"], offsets["num_kv_heads"], offsets["head_dim"]
    o_q_norm, o_k_norm, o_epsilon, o_angles = (offsets[n] for n in ("q_norm", "k_norm", "epsilon", "angles"))
    o_dimensions, o_neighbours, o_positions, o_slots = (
        offsets[n] for n in ("dimensions", "is_neighbours", "positions", "slots")
    )
    o_tables, o_table_stride, o_cache = offsets["page_tables"], offsets["table_stride"], offsets["cache"]
    o_page_bytes, o_head_bytes = offsets["page_bytes"], offsets["head_bytes"]

    def rotate(o, chunk):
        num_kv_heads, head_dim, per_kv = word(o + o_kv_heads), word(o + o_dim), word(o + o_per_kv)
        token, kv_head = chunk // num_kv_heads, chunk % num_kv_heads
        position = load_i32(word(o + o_positions) + 4 * token)
        dimensions, is_neighbours = word(o + o_dimensions), word(o + o_neighbours)
        angles, epsilon = word(o + o_angles), load_float(o + o_epsilon)
        turn = angles + position * dimensions * 4
        k = word(o + o_k) + token * word(o + o_k_stride) + kv_head * head_dim * 4
        v = word(o + o_v) + token * word(o + o_v_stride) + kv_head * head_dim * 4
        q = word(o + o_q) + token * word(o + o_q_stride) + kv_head * per_kv * head_dim * 4
        for head in range(per_kv + 1):
            x = k if head == per_kv else q + head * head_dim * 4
            weight = word(o + o_k_norm) if head == per_kv else word(o + o_q_norm)
            if weight != 0:
                normalize_head(x, weight, head_dim, epsilon)
            if angles != 0:
                rotate_head(x, turn, dimensions, is_neighbours)
        table = word(o + o_tables) + load_i32(word(o + o_slots) + 4 * token) * word(o + o_table_stride)
        page = load_i32(table + position // PAGE_SIZE * 4)
        block = word(o + o_cache) + page * word(o + o_page_bytes) + kv_head * word(o + o_head_bytes)
        store_key_value(k, v, block, position % PAGE_SIZE, head_dim)

    return rotate
