"""Products of quantised matrices with activation records.

One chunk is a run of row groups times a run of tokens.  Threads take chunks; lanes are rows (see packed_formats.py).
Order inside a chunk: for each group of rows all its tokens, so that a group's packed weights are read from memory once.
Tokens go through the widest tile that fits: `wide_tile` (8 or 4), then 4, or 1 when the step has a single token.
The result is combined with what the operation wants: stored, added, or activation(gate) * up, where the groups of gate
and up alternate in memory.
"""

from __future__ import annotations

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from kernels_cpu.activations import RECORDS
from kernels_cpu.emitter import Emitter
from kernels_cpu.operands import PRODUCT
from kernels_cpu.packed_formats import PACKED_FORMATS
from kernels_cpu.tile import Tile
from kernels_cpu.vectors import TARGET, load_float, stack_bytes, word

STORE, ADD, SILU_GATE, GELU_GATE, SWIGLU_GATE, SIGMOID_GATE, RELU_SQUARED_GATE = range(7)
SMALL_TILE = 4
LANES, WIDE_TILE = TARGET.lanes, TARGET.wide_tile
TILE_BYTES = 4 * LANES * WIDE_TILE
STACK_BYTES = 2 * TILE_BYTES


def make_tile(format_name: str, terms: int, tokens: int):
    """The tile of `tokens` tokens as a Numba function (weights, num_blocks, records, block_stride, out)."""
    form = PACKED_FORMATS[format_name]

    @intrinsic
    def tile(typing_context, weights, num_blocks, records, block_stride, out):
        def emit(context, builder, signature, args):
            Tile(Emitter(builder, TARGET, LANES), form, terms, tokens).emit(*args)
            return context.get_dummy_value()

        return types.void(*[types.intp] * 5), emit

    return tile


def clamp_and_shift(e: Emitter, up: ir.Value) -> ir.Value:
    """1 + x between -7 and 7."""
    b, least, most = e.b, e.const(up.type, -7.0), e.const(up.type, 7.0)
    up = b.select(b.fcmp_ordered(">", up, most), most, b.select(b.fcmp_ordered("<", up, least), least, up))
    return b.fadd(up, e.const(up.type, 1.0))


def activate(e: Emitter, mode: int, gate: ir.Value) -> ir.Value:
    """silu(x) = x / (1 + e^-x); gelu_tanh(x) = x / (1 + e^(-2 u)) with u = sqrt(2 / pi) (x + 0.044715 x^3).

    The gate of clamped_swiglu: x / (1 + e^(-1.702 x)) of x up to 7; sigmoid(x) = 1 / (1 + e^-x); max(x, 0)^2.
    """
    b, one = e.b, e.const(e.f32, 1.0)
    if mode == RELU_SQUARED_GATE:
        gate = b.select(b.fcmp_ordered(">", gate, e.const(e.f32, 0.0)), gate, e.const(e.f32, 0.0))
        return b.fmul(gate, gate)
    if mode == SIGMOID_GATE:
        return b.fdiv(one, b.fadd(one, e.exp(b.fneg(gate))))
    if mode == SILU_GATE:
        exponent = b.fneg(gate)
    elif mode == SWIGLU_GATE:
        most = e.const(e.f32, 7.0)
        gate = b.select(b.fcmp_ordered(">", gate, most), most, gate)
        exponent = b.fmul(gate, e.const(e.f32, -1.702))
    else:
        cube = b.fmul(b.fmul(gate, gate), gate)
        exponent = b.fmul(e.fma(cube, e.const(e.f32, 0.044715), gate), e.const(e.f32, -1.5957691216057308))
    return b.fdiv(gate, b.fadd(one, e.exp(exponent)))


@intrinsic
def finish(typing_context, mode, results, gate_results, bias, scale, out):
    """Writes one token's vector of rows: (results + bias) * scale, as `mode` says, to `out`.  bias 0: none."""

    def emit(context, builder, signature, args):
        mode, results, gate_results, bias, scale, out = args
        e = Emitter(builder, TARGET, LANES)
        value = e.variable(e.f32, e.load(e.f32, results))
        with builder.if_then(builder.icmp_signed("!=", bias, bias.type(0))):
            builder.store(builder.fadd(builder.load(value), e.load(e.f32, bias)), value)
        builder.store(builder.fmul(builder.load(value), e.splat(scale)), value)
        with builder.if_then(builder.icmp_signed("==", mode, mode.type(ADD))):
            builder.store(builder.fadd(e.load(e.f32, out), builder.load(value)), value)
        for activation in (SILU_GATE, GELU_GATE):
            with builder.if_then(builder.icmp_signed("==", mode, mode.type(activation))):
                gate = activate(e, activation, e.load(e.f32, gate_results))
                builder.store(builder.fmul(gate, builder.load(value)), value)
        e.store(builder.load(value), out)
        return context.get_dummy_value()

    return types.void(*[types.intp] * 4, types.float32, types.intp), emit


def make_product(format_name: str, terms: int):
    """The kernel (operands, chunk) for one packed format and record."""
    single, small = make_tile(format_name, terms, 1), make_tile(format_name, terms, SMALL_TILE)
    wide = make_tile(format_name, terms, WIDE_TILE) if WIDE_TILE > SMALL_TILE else None
    has_wide = wide is not None
    wide_tile = wide or small
    record_bytes = RECORDS[terms].size_bytes
    (
        o_weights,
        o_blocks,
        o_group_bytes,
        o_records,
        o_out,
        o_stride,
        o_groups,
        o_per_chunk,
        o_bias,
        o_scale,
        o_mode,
        o_count,
        o_tokens,
    ) = (PRODUCT.offset(name) for name in PRODUCT.names)

    def product(o, chunk):
        num_tokens = word(word(o + o_count))
        padded = 1 if num_tokens == 1 else (num_tokens + 3) // 4 * 4
        num_groups, per_chunk, token_block = word(o + o_groups), word(o + o_per_chunk), word(o + o_tokens)
        row_chunks = (num_groups + per_chunk - 1) // per_chunk
        first_token, first_group = chunk // row_chunks * token_block, chunk % row_chunks * per_chunk
        last_token, last_group = min(first_token + token_block, padded), min(first_group + per_chunk, num_groups)
        weights, blocks, group_bytes = word(o + o_weights), word(o + o_blocks), word(o + o_group_bytes)
        records, block_stride = word(o + o_records), padded * record_bytes
        out, stride, bias, mode = word(o + o_out), word(o + o_stride), word(o + o_bias), word(o + o_mode)
        scale = load_float(o + o_scale)
        sides = 2 if mode >= SILU_GATE else 1
        results = stack_bytes(STACK_BYTES)
        for group in range(first_group, last_group):
            token = first_token
            while token < last_token:
                left = last_token - token
                size = 1
                for side in range(sides):
                    at = weights + (group * sides + side) * group_bytes
                    target = results if side == sides - 1 else results + TILE_BYTES
                    if has_wide and left >= WIDE_TILE:
                        wide_tile(at, blocks, records + token * record_bytes, block_stride, target)
                        size = WIDE_TILE
                    elif left >= SMALL_TILE:
                        small(at, blocks, records + token * record_bytes, block_stride, target)
                        size = SMALL_TILE
                    else:
                        single(at, blocks, records + token * record_bytes, block_stride, target)
                row = group * LANES * 4
                for i in range(min(size, num_tokens - token)):
                    row_bias = bias + row if bias != 0 else 0
                    at_result = results + i * LANES * 4
                    at_out = out + (token + i) * stride + row
                    finish(mode, at_result, at_result + TILE_BYTES, row_bias, scale, at_out)
                token += size

    return product
