"""Kernels that go on from a state: short convolutions and the gated delta rule (models/recurrence.py).

A run is the batch's part of one sequence.  Its tokens are taken in order by one thread, which reads the state that the
run goes on from and writes the one that it leaves: two places, so that a run that was stopped has spoilt nothing.
Convolution: one chunk is a run and some channels; lanes are 16 neighbouring channels.  Delta rule: one chunk is a run
and a head; lanes are 16 neighbouring columns of its matrix, of which 32 stay in the first cache for a block of tokens.
Every sum runs in the same order wherever a run begins.
"""

from __future__ import annotations

import math

from numba import njit, types

from kernels_cpu.norms import sum_of_squares
from kernels_cpu.operands import CONVOLVE, DELTA
from kernels_cpu.rows import INLINE
from kernels_cpu.vectors import (
    WIDTH,
    exp,
    fma,
    load,
    load_float,
    load_i32,
    splat,
    square_root,
    stack_bytes,
    store,
    store_float,
    word,
)  # fmt: skip

RUN_BYTES = 16
MAX_KEY_DIM = 256
COLUMNS = 2 * WIDTH  # of a matrix, at a time
BLOCK_TOKENS = 16
VECTORS_BYTES = 4 * BLOCK_TOKENS * MAX_KEY_DIM
GATES_BYTES = 8 * BLOCK_TOKENS


def make_convolve():
    """The kernel (operands, run * blocks of channels + block)."""
    o_x, o_x_stride, o_before, o_before_stride = (
        CONVOLVE.offset(n) for n in ("x", "x_stride", "before", "before_stride")
    )
    o_after, o_after_stride, o_out, o_stride = (
        CONVOLVE.offset(n) for n in ("after", "after_stride", "out", "out_stride")
    )
    o_weight, o_inputs, o_channels, o_per_chunk, o_silu = (
        CONVOLVE.offset(n) for n in ("weight", "num_inputs", "channels", "channels_per_chunk", "has_silu")
    )
    o_runs, o_states, o_state_bytes = (CONVOLVE.offset(n) for n in ("runs", "states", "state_bytes"))

    @njit(**INLINE)
    def seen(o, first, back, channel, old):
        """What the convolution sees of the run's token `back`, or of one before the run (back < 0)."""
        if back >= 0:
            token = first + back
            value = load(word(o + o_x) + token * word(o + o_x_stride) + 4 * channel)
            if word(o + o_before) != 0:
                value = value * load(word(o + o_before) + token * word(o + o_before_stride) + 4 * channel)
            return value
        if old == 0:
            return splat(types.float32(0.0))
        return load(old + 4 * ((word(o + o_inputs) + back) * word(o + o_channels) + channel))

    def convolve(o, chunk):
        channels, per_chunk, inputs = word(o + o_channels), word(o + o_per_chunk), word(o + o_inputs)
        blocks = (channels + per_chunk - 1) // per_chunk
        run = word(o + o_runs) + chunk // blocks * RUN_BYTES
        first, count, source, target = load_i32(run), load_i32(run + 4), load_i32(run + 8), load_i32(run + 12)
        old = word(o + o_states) + source * word(o + o_state_bytes) if source >= 0 else 0
        new = word(o + o_states) + target * word(o + o_state_bytes)
        first_channel = chunk % blocks * per_chunk
        last_channel = min(first_channel + per_chunk, channels)
        one = splat(types.float32(1.0))
        for idx in range(count):
            out = word(o + o_out) + (first + idx) * word(o + o_stride)
            after = word(o + o_after) + (first + idx) * word(o + o_after_stride)
            for channel in range(first_channel, last_channel, WIDTH):
                total = splat(types.float32(0.0))
                for tap in range(inputs + 1):
                    value = seen(o, first, idx - inputs + tap, channel, old)
                    total = fma(value, load(word(o + o_weight) + 4 * (tap * channels + channel)), total)
                if word(o + o_silu) != 0:
                    total = total / (one + exp(splat(types.float32(0.0)) - total))
                if word(o + o_after) != 0:
                    total = total * load(after + 4 * channel)
                store(out + 4 * channel, total)
        for row in range(inputs):
            for channel in range(first_channel, last_channel, WIDTH):
                store(new + 4 * (row * channels + channel), seen(o, first, count - inputs + row, channel, old))

    return convolve


@njit(types.void(types.intp, types.intp, types.intp, types.float32, types.float32), **INLINE)
def write_unit_vector(x, out, width, epsilon, scale):
    """out = x * scale / sqrt(sum of squares + epsilon), of `width` values."""
    factor = splat(scale / square_root(sum_of_squares(x, width) + epsilon))
    for column in range(0, width, WIDTH):
        store(out + 4 * column, load(x + 4 * column) * factor)


@njit(types.void(types.intp, types.float32, types.float32, types.float32, types.float32), **INLINE)
def write_gates(out, decay, shift, rate, learn):
    """What a matrix is multiplied by, exp(rate * softplus(decay + shift)), and the step, sigmoid(learn)."""
    x = types.float64(decay + shift)
    softplus = max(x, 0.0) + math.log1p(math.exp(-abs(x)))
    store_float(out, types.float32(math.exp(types.float64(rate) * softplus)))
    store_float(out + 4, types.float32(1.0 / (1.0 + math.exp(-types.float64(learn)))))


@njit(types.void(*[types.intp] * 8), **INLINE)
def learn_token(matrix, row_bytes, key_dim, q, k, v, out, gates):
    """One token's turn with 32 columns of a matrix: it forgets, learns, and is asked."""
    zero = splat(types.float32(0.0))
    even_low, even_high, odd_low, odd_high = zero, zero, zero, zero
    for key in range(0, key_dim, 2):
        at = matrix + key * row_bytes
        even, odd = splat(load_float(k + 4 * key)), splat(load_float(k + 4 * key + 4))
        even_low, even_high = fma(load(at), even, even_low), fma(load(at + 64), even, even_high)
        odd_low, odd_high = fma(load(at + row_bytes), odd, odd_low), fma(load(at + row_bytes + 64), odd, odd_high)
    factor, step = splat(load_float(gates)), splat(load_float(gates + 4))
    low = step * (load(v) - factor * (even_low + odd_low))
    high = step * (load(v + 64) - factor * (even_high + odd_high))
    even_low, even_high, odd_low, odd_high = zero, zero, zero, zero
    for key in range(0, key_dim, 2):
        at = matrix + key * row_bytes
        even, odd = splat(load_float(k + 4 * key)), splat(load_float(k + 4 * key + 4))
        a, b = fma(load(at), factor, even * low), fma(load(at + 64), factor, even * high)
        c, d = fma(load(at + row_bytes), factor, odd * low), fma(load(at + row_bytes + 64), factor, odd * high)
        store(at, a)
        store(at + 64, b)
        store(at + row_bytes, c)
        store(at + row_bytes + 64, d)
        even, odd = splat(load_float(q + 4 * key)), splat(load_float(q + 4 * key + 4))
        even_low, even_high = fma(a, even, even_low), fma(b, even, even_high)
        odd_low, odd_high = fma(c, odd, odd_low), fma(d, odd, odd_high)
    store(out, even_low + odd_low)
    store(out + 64, even_high + odd_high)


def make_delta():
    """The kernel (operands, run * heads + head)."""
    o_x, o_x_stride, o_decay, o_decay_stride = (DELTA.offset(n) for n in ("x", "x_stride", "decay", "decay_stride"))
    o_learn, o_learn_stride, o_out, o_stride = (DELTA.offset(n) for n in ("learn", "learn_stride", "out", "out_stride"))
    o_rate, o_shift, o_epsilon, o_scale = (DELTA.offset(n) for n in ("rate", "shift", "epsilon", "scale"))
    o_heads, o_key_heads, o_key_dim, o_value_dim = (
        DELTA.offset(n) for n in ("num_heads", "num_key_heads", "key_dim", "value_dim")
    )
    o_runs, o_states, o_state_bytes, o_offset, o_grouped = (
        DELTA.offset(n) for n in ("runs", "states", "state_bytes", "offset", "is_grouped")
    )

    @njit(**INLINE)
    def prepare(o, token, head, q, k, gates):
        """One token's query, key and gates."""
        key_heads, key_dim = word(o + o_key_heads), word(o + o_key_dim)
        shared = head // (word(o + o_heads) // key_heads) if word(o + o_grouped) != 0 else head % key_heads
        at = word(o + o_x) + token * word(o + o_x_stride) + shared * key_dim * 4
        epsilon = load_float(o + o_epsilon)
        write_unit_vector(at, q, key_dim, epsilon, load_float(o + o_scale))
        write_unit_vector(at + key_heads * key_dim * 4, k, key_dim, epsilon, types.float32(1.0))
        write_gates(
            gates,
            load_float(word(o + o_decay) + token * word(o + o_decay_stride) + 4 * head),
            load_float(word(o + o_shift) + 4 * head),
            load_float(word(o + o_rate) + 4 * head),
            load_float(word(o + o_learn) + token * word(o + o_learn_stride) + 4 * head),
        )

    @njit(**INLINE)
    def begin(o, run, head):
        """Address of the head's matrix in the state that the run leaves, filled with that which it goes on from."""
        size_bytes = word(o + o_key_dim) * word(o + o_value_dim) * 4
        at = word(o + o_states) + word(o + o_offset) + head * size_bytes
        source, target = load_i32(run + 8), load_i32(run + 12)
        old, new = at + source * word(o + o_state_bytes), at + target * word(o + o_state_bytes)
        for place in range(0, size_bytes, 4 * WIDTH):
            store(new + place, load(old + place) if source >= 0 else splat(types.float32(0.0)))
        return new

    def delta(o, chunk):
        heads, key_dim, value_dim = word(o + o_heads), word(o + o_key_dim), word(o + o_value_dim)
        run, head = word(o + o_runs) + chunk // heads * RUN_BYTES, chunk % heads
        first, count = load_i32(run), load_i32(run + 4)
        matrix = begin(o, run, head)
        queries, keys, gates = stack_bytes(VECTORS_BYTES), stack_bytes(VECTORS_BYTES), stack_bytes(GATES_BYTES)
        value_at = 4 * (2 * word(o + o_key_heads) * key_dim + head * value_dim)
        for start in range(0, count, BLOCK_TOKENS):
            size = min(BLOCK_TOKENS, count - start)
            for idx in range(size):
                at = 4 * idx * key_dim
                prepare(o, first + start + idx, head, queries + at, keys + at, gates + 8 * idx)
            for column in range(0, value_dim, COLUMNS):
                for idx in range(size):
                    token, at = first + start + idx, 4 * idx * key_dim
                    v = word(o + o_x) + token * word(o + o_x_stride) + value_at + 4 * column
                    out = word(o + o_out) + token * word(o + o_stride) + 4 * (head * value_dim + column)
                    learn_token(
                        matrix + 4 * column, 4 * value_dim, key_dim, queries + at, keys + at, v, out, gates + 8 * idx
                    )

    return delta
