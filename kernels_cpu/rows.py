"""Kernels that work row by row: embedding, rounding to activation records, choosing output rows.

Lanes are 16 neighbouring columns of one token; one chunk is a run of tokens (for rounding: of tokens and blocks).
Every sum runs in the same order whatever the batch is.
"""

from __future__ import annotations

from numba import njit, types
from numba.extending import intrinsic

from kernels_cpu.activations import RECORDS
from kernels_cpu.emitter import Emitter
from kernels_cpu.operands import CAP, EMBED, GATE, QUANTIZE, SCALE, SELECT, SEPARATE, WEIGH
from kernels_cpu.packed_formats import BLOCK, PACKED_FORMATS
from kernels_cpu.product import (
    GELU_GATE,
    RELU_SQUARED_GATE,
    SIGMOID_GATE,
    SILU_GATE,
    SWIGLU_GATE,
    activate,
    clamp_and_shift,
)
from kernels_cpu.tile import emit_unpacked_block
from kernels_cpu.vectors import (
    TARGET,
    WIDTH,
    absolute,
    exp,
    fma,
    load,
    load_bf16,
    load_float,
    load_half,
    load_i32,
    max_lane,
    maximum,
    minimum,
    rint,
    round_to_bytes,
    splat,
    stack_bytes,
    store,
    store_float,
    store_i32,
    sum_lanes,
    word,
)  # fmt: skip

INLINE = {"nogil": True, "boundscheck": False, "error_model": "numpy", "inline": "never"}
LANES = TARGET.lanes
SMALLEST_UNIT = types.float32(2.0**-126)  # below it one over a unit is infinite: such values count as zeros


def make_embed(format_name: str):
    """The kernel that gathers rows of a packed matrix: out[token] = weight[token_ids[token]] * scale."""
    form = PACKED_FORMATS[format_name]
    block_bytes, columns = form.block_bytes * LANES, form.columns

    @intrinsic
    def unpack(typing_context, block, lane, out):
        def emit(context, builder, signature, args):
            emit_unpacked_block(Emitter(builder, TARGET, LANES), form, *args)
            return context.get_dummy_value()

        return types.void(*[types.intp] * 3), emit

    o_weights, o_blocks, o_group, o_ids = (
        EMBED.offset(n) for n in ("weights", "num_blocks", "group_bytes", "token_ids")
    )
    o_out, o_stride, o_scale = EMBED.offset("out"), EMBED.offset("out_stride"), EMBED.offset("scale")

    def embed(o, token):
        token_id = load_i32(word(o + o_ids) + 4 * token)
        group = word(o + o_weights) + token_id // LANES * word(o + o_group)
        out = word(o + o_out) + token * word(o + o_stride)
        num_blocks = word(o + o_blocks)
        scale = splat(load_float(o + o_scale))
        for block in range(num_blocks):
            unpack(group + block * block_bytes, token_id % LANES, out + 4 * columns * block)
        for column in range(0, num_blocks * columns, WIDTH):
            store(out + 4 * column, load(out + 4 * column) * scale)

    return embed


def make_embed_floats(format_name: str):
    """The same from F32, F16 or BF16 rows packed as [group][column][lane]."""
    size = 4 if format_name == "F32" else 2
    kind = {"F32": 0, "F16": 1, "BF16": 2}[format_name]
    o_weights, o_columns, o_group, o_ids = (
        EMBED.offset(n) for n in ("weights", "num_blocks", "group_bytes", "token_ids")
    )
    o_out, o_stride, o_scale = EMBED.offset("out"), EMBED.offset("out_stride"), EMBED.offset("scale")

    def embed(o, token):
        token_id = load_i32(word(o + o_ids) + 4 * token)
        at = word(o + o_weights) + token_id // LANES * word(o + o_group) + token_id % LANES * size
        out = word(o + o_out) + token * word(o + o_stride)
        scale = load_float(o + o_scale)
        spread = stack_bytes(64)
        for column in range(word(o + o_columns)):
            source = at + column * LANES * size
            if kind == 0:
                value = load_float(source)
            else:
                store(spread, load_half(source) if kind == 1 else load_bf16(source))
                value = load_float(spread)
            store_float(out + 4 * column, value * scale)

    return embed


@njit(types.void(types.intp, types.intp, types.intp), **INLINE)
def write_single_record(x, record, is_empty):
    """32 floats as one term: int8, unit, sum, negated sums."""
    zero = splat(types.float32(0.0))
    low, high = (zero, zero) if is_empty else (load(x), load(x + 64))
    peak = max_lane(maximum(absolute(low), absolute(high)))
    unit = peak / types.float32(127.0)
    inverse = splat(types.float32(1.0) / unit if unit >= SMALLEST_UNIT else types.float32(0.0))
    low, high = rint(low * inverse), rint(high * inverse)
    round_to_bytes(record, low)
    round_to_bytes(record + 16, high)
    first, second = sum_lanes(low), sum_lanes(high)
    store_float(record + 32, unit)
    store_float(record + 36, unit * (first + second))
    store_i32(record + 40, -types.int64(first))
    store_i32(record + 44, -types.int64(second))


@njit(types.void(types.intp, types.intp, types.intp), **INLINE)
def write_double_record(x, record, is_empty):
    """32 floats as two terms: value = (256 * high + low) * unit."""
    zero, ceiling = splat(types.float32(0.0)), splat(types.float32(127.0))
    low, high = (zero, zero) if is_empty else (load(x), load(x + 64))
    peak = max_lane(maximum(absolute(low), absolute(high)))
    unit = peak / types.float32(127.0)
    inverse = splat(types.float32(1.0) / unit if unit >= SMALLEST_UNIT else types.float32(0.0))
    wide = splat(types.float32(256.0))
    unit = unit / types.float32(256.0)
    low, high = low * inverse, high * inverse
    whole_low, whole_high = rint(low), rint(high)
    rest_low = maximum(minimum(rint((low - whole_low) * wide), ceiling), zero - ceiling)
    rest_high = maximum(minimum(rint((high - whole_high) * wide), ceiling), zero - ceiling)
    round_to_bytes(record, whole_low)
    round_to_bytes(record + 16, whole_high)
    round_to_bytes(record + 32, rest_low)
    round_to_bytes(record + 48, rest_high)
    first, second = sum_lanes(fma(whole_low, wide, rest_low)), sum_lanes(fma(whole_high, wide, rest_high))
    store_float(record + 64, unit)
    store_float(record + 68, unit * (first + second))
    store_i32(record + 72, -types.int64(first))
    store_i32(record + 76, -types.int64(second))


SINGLE_BYTES, DOUBLE_BYTES = RECORDS[1].size_bytes, RECORDS[2].size_bytes


@njit(types.void(*[types.intp] * 8), **INLINE)
def write_records(x, num_columns, first_block, last_block, token, padded_tokens, single, double):
    """Records of one token's blocks first_block..last_block-1; blocks past the last column are zeros.

    single, double: addresses, 0 where not wanted.
    """
    for block in range(first_block, last_block):
        is_empty = block * BLOCK >= num_columns
        at = block * padded_tokens + token
        if single != 0:
            write_single_record(x + 4 * BLOCK * block, single + at * SINGLE_BYTES, is_empty)
        if double != 0:
            write_double_record(x + 4 * BLOCK * block, double + at * DOUBLE_BYTES, is_empty)


@njit(types.void(types.intp, types.intp, types.float32), **INLINE)
def cap_row(x, width, cap):
    """`width` floats, rounded up to whole vectors, in place to cap * tanh(x / cap)."""
    limit, double, one = splat(cap), splat(types.float32(2.0) / cap), splat(types.float32(1.0))
    for column in range(0, width, WIDTH):
        power = exp(load(x + 4 * column) * double)
        store(x + 4 * column, limit * (one - (one + one) / (power + one)))


def make_quantize():
    """Records of a buffer of floats; chunk = token * column chunks + column chunk."""
    o_x, o_x_stride, o_width, o_blocks = (QUANTIZE.offset(n) for n in ("x", "x_stride", "width", "num_blocks"))
    o_per_chunk, o_single, o_double, o_count = (
        QUANTIZE.offset(n) for n in ("blocks_per_chunk", "single", "double", "count")
    )

    def quantize(o, chunk):
        num_tokens = word(word(o + o_count))
        padded = 1 if num_tokens == 1 else (num_tokens + 3) // 4 * 4
        num_blocks, per_chunk = word(o + o_blocks), word(o + o_per_chunk)
        pieces = (num_blocks + per_chunk - 1) // per_chunk
        token, first = chunk // pieces, chunk % pieces * per_chunk
        x = word(o + o_x) + token * word(o + o_x_stride)
        last = min(first + per_chunk, num_blocks)
        write_records(x, word(o + o_width), first, last, token, padded, word(o + o_single), word(o + o_double))

    return quantize


def make_select():
    """out[i] = x[outputs[i]]."""
    o_x, o_x_stride, o_rows, o_out, o_stride, o_width = (
        SELECT.offset(n) for n in ("x", "x_stride", "outputs", "out", "out_stride", "width")
    )

    def select(o, row):
        x = word(o + o_x) + load_i32(word(o + o_rows) + 4 * row) * word(o + o_x_stride)
        out = word(o + o_out) + row * word(o + o_stride)
        for column in range(0, word(o + o_width), WIDTH):
            store(out + 4 * column, load(x + 4 * column))

    return select


def make_separate():
    """Of each two runs of a row's values the first goes to one row, the second to another."""
    o_x, o_x_stride, o_first, o_first_stride, o_second, o_second_stride, o_run, o_runs = (
        SEPARATE.offset(n) for n in SEPARATE.names
    )

    def separate(o, row):
        x, run = word(o + o_x) + row * word(o + o_x_stride), word(o + o_run)
        first = word(o + o_first) + row * word(o + o_first_stride)
        second = word(o + o_second) + row * word(o + o_second_stride)
        for place in range(word(o + o_runs)):
            for column in range(0, run, WIDTH):
                at = 4 * (place * run + column)
                store(first + at, load(x + 4 * (2 * place * run + column)))
                store(second + at, load(x + 4 * ((2 * place + 1) * run + column)))

    return separate


def make_cap():
    """x = cap * tanh(x / cap), in place."""
    o_x, o_x_stride, o_width, o_cap = (CAP.offset(n) for n in CAP.names)

    def cap(o, row):
        x, limit = word(o + o_x) + row * word(o + o_x_stride), load_float(o + o_cap)
        cap_row(x, word(o + o_width), limit)

    return cap


def make_scale():
    """x = x * weight, in place."""
    o_x, o_x_stride, o_width, o_weight = (SCALE.offset(n) for n in SCALE.names)

    def scale(o, row):
        x, factor = word(o + o_x) + row * word(o + o_x_stride), splat(load_float(word(o + o_weight)))
        for column in range(0, word(o + o_width), WIDTH):
            store(x + 4 * column, load(x + 4 * column) * factor)

    return scale


def make_weigh():
    """x = x * sigmoid(the row's number), in place."""
    o_x, o_x_stride, o_width, o_by, o_by_stride = (WEIGH.offset(n) for n in WEIGH.names)

    def weigh(o, row):
        x, one = word(o + o_x) + row * word(o + o_x_stride), splat(types.float32(1.0))
        factor = one / (one + exp(splat(-load_float(word(o + o_by) + row * word(o + o_by_stride)))))
        for column in range(0, word(o + o_width), WIDTH):
            store(x + 4 * column, load(x + 4 * column) * factor)

    return weigh


@intrinsic
def gate_vector(typing_context, gate, up, mode):
    """Writes activation(gate, up) over gate, 16 lanes at two addresses; up 0: ones."""

    def emit(context, builder, signature, args):
        gate, up, mode = args
        e = Emitter(builder, TARGET, WIDTH)
        other = e.variable(e.f32, e.const(e.f32, 1.0))
        with builder.if_then(builder.icmp_signed("!=", up, up.type(0))):
            builder.store(e.load(e.f32, up), other)
        for activation in (SILU_GATE, GELU_GATE, SWIGLU_GATE, SIGMOID_GATE, RELU_SQUARED_GATE):
            with builder.if_then(builder.icmp_signed("==", mode, mode.type(activation))):
                value, factor = activate(e, activation, e.load(e.f32, gate)), builder.load(other)
                factor = clamp_and_shift(e, factor) if activation == SWIGLU_GATE else factor
                e.store(builder.fmul(value, factor), gate)
        return context.get_dummy_value()

    return types.void(*[types.intp] * 3), emit


def make_gate():
    """gate = activation(gate) * up, where gate and up were not multiplied together; activation(gate) where up is 0."""
    o_gate, o_gate_stride, o_up, o_up_stride, o_width, o_mode = (GATE.offset(n) for n in GATE.names)

    def gate(o, row):
        gate = word(o + o_gate) + row * word(o + o_gate_stride)
        up, has_up = word(o + o_up) + row * word(o + o_up_stride), word(o + o_up) != 0
        for column in range(0, word(o + o_width), WIDTH):
            gate_vector(gate + 4 * column, up + 4 * column if has_up else 0, word(o + o_mode))

    return gate
