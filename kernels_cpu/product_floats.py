"""Products of F32, F16 and BF16 matrices with float32 activations.

Weights lie as [group of L rows][column][lane].  A (token, row) sum is four interleaved chains of fused multiply-adds
(columns 0, 4, ..., 1, 5, ... and so on), added at the end: independent chains hide the latency of one.
"""

from __future__ import annotations

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from kernels_cpu.emitter import F32, I16, I64, Emitter
from kernels_cpu.operands import PRODUCT_FLOATS
from kernels_cpu.product import LANES, SILU_GATE, TILE_BYTES, finish
from kernels_cpu.vectors import TARGET, load_float, stack_bytes, word

CHAINS = 4
TILE = 4
STACK_BYTES = 2 * TILE_BYTES


def _load_weights(e: Emitter, format_name: str, address: ir.Value, column: int) -> ir.Value:
    if format_name == "F32":
        return e.load(e.f32, address, 4 * e.lanes * column)
    if format_name == "F16":
        return e.load_half(address, 2 * e.lanes * column)
    raw = e.load(ir.VectorType(I16, e.lanes), address, 2 * e.lanes * column)
    return e.b.bitcast(e.b.shl(e.b.zext(raw, e.i32), e.const(e.i32, 16)), e.f32)


def make_float_tile(format_name: str, tokens: int):
    """The tile of `tokens` tokens as a Numba function (weights, num_columns, x, x_stride, out)."""
    size = 4 if format_name == "F32" else 2

    @intrinsic
    def tile(typing_context, weights, num_columns, x, x_stride, out):
        def emit(context, builder, signature, args):
            weights, num_columns, x, x_stride, out = args
            e = Emitter(builder, TARGET, LANES)
            cells = [(token, chain) for token in range(tokens) for chain in range(CHAINS)]
            sums = {cell: e.variable(e.f32, e.const(e.f32, 0.0)) for cell in cells}
            at = [builder.add(x, builder.mul(x_stride, I64(token))) for token in range(tokens)]

            def add_columns(first: ir.Value, count: int) -> None:
                columns = e.add(weights, builder.mul(first, I64(size * LANES)))
                for chain in range(count):
                    vector = _load_weights(e, format_name, columns, chain)
                    for token in range(tokens):
                        value = e.broadcast(F32, e.add(at[token], builder.mul(first, I64(4))), 4 * chain)
                        builder.store(e.fma(value, vector, builder.load(sums[token, chain])), sums[token, chain])

            whole = builder.sdiv(num_columns, I64(CHAINS))
            with cgutils.for_range(builder, whole) as loop:
                add_columns(builder.mul(loop.index, I64(CHAINS)), CHAINS)
            done = builder.mul(whole, I64(CHAINS))
            with cgutils.for_range(builder, builder.sub(num_columns, done)) as loop:
                add_columns(builder.add(done, loop.index), 1)
            for token in range(tokens):
                a, b, c, d = (builder.load(sums[token, chain]) for chain in range(CHAINS))
                e.store(builder.fadd(builder.fadd(a, b), builder.fadd(c, d)), out, 4 * LANES * token)
            return context.get_dummy_value()

        return types.void(*[types.intp] * 5), emit

    return tile


def make_product_floats(format_name: str):
    """The kernel (operands, chunk) for one float format."""
    single, small = make_float_tile(format_name, 1), make_float_tile(format_name, TILE)
    o_weights, o_columns, o_group_bytes, o_x, o_x_stride, o_out, o_stride = (
        PRODUCT_FLOATS.offset(n)
        for n in ("weights", "num_columns", "group_bytes", "x", "x_stride", "out", "out_stride")
    )
    o_groups, o_per_chunk, o_bias, o_scale, o_mode, o_count, o_token_block = (
        PRODUCT_FLOATS.offset(n)
        for n in ("num_groups", "groups_per_chunk", "bias", "scale", "mode", "count", "tokens_per_chunk")
    )

    def product_floats(o, chunk):
        num_tokens, num_groups, per_chunk = word(word(o + o_count)), word(o + o_groups), word(o + o_per_chunk)
        row_chunks = (num_groups + per_chunk - 1) // per_chunk
        first_token = chunk // row_chunks * word(o + o_token_block)
        last_token = min(first_token + word(o + o_token_block), num_tokens)
        first_group = chunk % row_chunks * per_chunk
        weights, columns, x, x_stride = word(o + o_weights), word(o + o_columns), word(o + o_x), word(o + o_x_stride)
        bias, mode, group_bytes = word(o + o_bias), word(o + o_mode), word(o + o_group_bytes)
        scale = load_float(o + o_scale)
        sides = 2 if mode >= SILU_GATE else 1
        results = stack_bytes(STACK_BYTES)
        for group in range(first_group, min(first_group + per_chunk, num_groups)):
            token = first_token
            while token < last_token:
                size = TILE if last_token - token >= TILE else 1
                for side in range(sides):
                    at = weights + (group * sides + side) * group_bytes
                    target = results if side == sides - 1 else results + TILE_BYTES
                    if size == TILE:
                        small(at, columns, x + token * x_stride, x_stride, target)
                    else:
                        single(at, columns, x + token * x_stride, x_stride, target)
                row = group * LANES * 4
                for i in range(size):
                    row_bias = bias + row if bias != 0 else 0
                    at_result = results + i * LANES * 4
                    finish(
                        mode,
                        at_result,
                        at_result + TILE_BYTES,
                        row_bias,
                        scale,
                        word(o + o_out) + (token + i) * word(o + o_stride) + row,
                    )
                token += size

    return product_floats
