"""Normalises rows, or the heads of a row, by their root mean square or as LayerNorm does.

Lanes are 16 neighbouring columns of one token; one chunk is a row or a head.  Every sum runs in the same order whatever
the batch is, in two interleaved chains of vectors.
"""

from __future__ import annotations

from numba import njit, types

from kernels_cpu.operands import NORMALIZE
from kernels_cpu.rows import INLINE, write_records
from kernels_cpu.vectors import WIDTH, fma, keep_lanes, load, load_float, splat, square_root, store, sum_lanes, word


@njit(types.float32(types.intp, types.intp), **INLINE)
def sum_of_squares(x, width):
    """Of `width` floats, in the order above."""
    zero = splat(types.float32(0.0))
    even, odd = zero, zero
    whole = width // (2 * WIDTH) * 2 * WIDTH
    for column in range(0, whole, 2 * WIDTH):
        a, b = load(x + 4 * column), load(x + 4 * column + 64)
        even, odd = fma(a, a, even), fma(b, b, odd)
    for column in range(whole, width, WIDTH):
        a = keep_lanes(load(x + 4 * column), 0, width - column, zero)
        even = fma(a, a, even)
    return sum_lanes(even + odd)


@njit(types.float32(types.intp, types.intp), **INLINE)
def mean_of(x, width):
    """Of `width` floats."""
    zero = splat(types.float32(0.0))
    even, odd = zero, zero
    whole = width // (2 * WIDTH) * 2 * WIDTH
    for column in range(0, whole, 2 * WIDTH):
        even, odd = even + load(x + 4 * column), odd + load(x + 4 * column + 64)
    for column in range(whole, width, WIDTH):
        even = even + keep_lanes(load(x + 4 * column), 0, width - column, zero)
    return sum_lanes(even + odd) / types.float32(width)


@njit(types.float32(types.intp, types.intp, types.float32), **INLINE)
def sum_of_squares_around(x, width, mean):
    """Of what `width` floats differ from their mean."""
    zero, middle = splat(types.float32(0.0)), splat(mean)
    even, odd = zero, zero
    whole = width // (2 * WIDTH) * 2 * WIDTH
    for column in range(0, whole, 2 * WIDTH):
        a, b = load(x + 4 * column) - middle, load(x + 4 * column + 64) - middle
        even, odd = fma(a, a, even), fma(b, b, odd)
    for column in range(whole, width, WIDTH):
        a = keep_lanes(load(x + 4 * column) - middle, 0, width - column, zero)
        even = fma(a, a, even)
    return sum_lanes(even + odd)


def make_normalize():
    """out = (x - mean) / deviation * weight + bias, kept as floats (stored or added) and as records, as is wanted.

    Without centring the mean counts as 0.  weight, bias: addresses, 0 for none; own_bytes: between those of two heads.
    One chunk is a row, or one of its heads of `width` values (without records then).
    """
    o_x, o_x_stride, o_weight, o_bias = (NORMALIZE.offset(n) for n in ("x", "x_stride", "weight", "bias"))
    o_epsilon, o_out, o_stride, o_add = (NORMALIZE.offset(n) for n in ("epsilon", "out", "out_stride", "add"))
    o_single, o_double, o_blocks, o_count = (NORMALIZE.offset(n) for n in ("single", "double", "num_blocks", "count"))
    o_width, o_heads, o_own, o_centred = (NORMALIZE.offset(n) for n in ("width", "heads", "own_bytes", "is_centred"))

    def normalize(o, chunk):
        token, head = chunk // word(o + o_heads), chunk % word(o + o_heads)
        num_tokens = word(word(o + o_count))
        padded = 1 if num_tokens == 1 else (num_tokens + 3) // 4 * 4
        width, weight, bias, own = word(o + o_width), word(o + o_weight), word(o + o_bias), head * word(o + o_own)
        x = word(o + o_x) + token * word(o + o_x_stride) + head * width * 4
        out = word(o + o_out) + token * word(o + o_stride) + head * width * 4
        add = word(o + o_add) != 0
        mean = types.float32(0.0)
        if word(o + o_centred) != 0:
            mean = mean_of(x, width)
            total = sum_of_squares_around(x, width, mean)
        else:
            total = sum_of_squares(x, width)
        spread = total / types.float32(width)
        middle, factor = splat(mean), splat(types.float32(1.0) / square_root(spread + load_float(o + o_epsilon)))
        for column in range(0, width, WIDTH):
            value = (load(x + 4 * column) - middle) * factor
            if weight != 0:
                value = value * load(weight + own + 4 * column)
            if bias != 0:
                value = value + load(bias + own + 4 * column)
            store(out + 4 * column, load(out + 4 * column) + value if add else value)
        write_records(out, width, 0, word(o + o_blocks), token, padded, word(o + o_single), word(o + o_double))

    return normalize
