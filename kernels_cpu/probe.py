"""Kernels that do nothing but use one resource up: memory bandwidth, byte dot products, fused multiply-adds.

They tell what the machine gives at most (limits.py); a model's figures are held against that.  Lanes are 32-bit lanes
of the instruction set's widest register.

    probe-read      one chunk is a piece of a large arena, read once from front to back with 64 bytes an instruction
    probe-multiply  register-only dot products of bytes, with the products' own sequence (`vpdpbusd`, or what stands
                    for it), on as many accumulators as hide its latency
    probe-add       the same for float32 fused multiply-adds
"""

from __future__ import annotations

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from kernels_cpu.emitter import Emitter
from kernels_cpu.operands import PROBE_COMPUTE, PROBE_READ, probe_chains
from kernels_cpu.packed_formats import PACKED_FORMATS, STEPS
from kernels_cpu.tile import Chain, DotProduct
from kernels_cpu.vectors import TARGET, WIDTH, load, splat, store, word

LANES = TARGET.lanes
CHAINS = probe_chains(LANES)
READ_STRIDE = 8 * 4 * WIDTH
_REGISTER = "w" if TARGET.dot == "sdot" else "v" if TARGET.lanes == 16 else "x"


def make_read():
    """The kernel that reads one piece and writes the sum of its floats (so that the reading is not optimised away)."""
    o_data, o_chunk_bytes, o_out = (PROBE_READ.offset(n) for n in PROBE_READ.names)

    def read(o, chunk):
        size = word(o + o_chunk_bytes)
        at = word(o + o_data) + chunk * size
        zero = splat(types.float32(0.0))
        a, b, c, d, e, f, g, h = zero, zero, zero, zero, zero, zero, zero, zero
        for end in range(at, at + size, READ_STRIDE):
            a, b, c, d = a + load(end), b + load(end + 64), c + load(end + 128), d + load(end + 192)
            e, f, g, h = e + load(end + 256), f + load(end + 320), g + load(end + 384), h + load(end + 448)
        store(word(o + o_out) + 64 * chunk, (a + b) + (c + d) + ((e + f) + (g + h)))

    return read


def _opaque(e: Emitter, value: ir.Value) -> ir.Value:
    """The value, after an empty piece of assembly: LLVM can't know that it is still the same, and moves nothing out."""
    kind = ir.FunctionType(value.type, [value.type])
    return e.b.asm(kind, "", f"={_REGISTER},0", [value], True)


@intrinsic
def multiply_loop(typing_context, rounds, out):
    """`rounds` times: for each of CHAINS accumulators the dot products of 8 steps of a 4-bit format."""

    def emit(context, builder, signature, args):
        rounds, out = args
        e = Emitter(builder, TARGET, LANES)
        dot = DotProduct(e, PACKED_FORMATS["Q4_0"])
        totals = [e.variable(e.i32, e.const(e.i32, chain)) for chain in range(CHAINS)]
        weights = e.variable(e.i8, e.const(e.i8, 7))
        four = _opaque(e, e.const(e.i32, 0x01020304))
        with cgutils.for_range(builder, rounds):
            for total in totals:
                steps = [builder.load(weights)]
                for _ in range(STEPS):
                    steps.append(_opaque(e, steps[-1]))
                builder.store(steps[-1], weights)
                chain = Chain(dot, builder.load(total))
                for step in steps[1:]:
                    chain.add(step, four)
                builder.store(chain.end(), total)
        result = builder.load(totals[0])
        for total in totals[1:]:
            result = builder.xor(result, builder.load(total))
        e.store(result, out)
        return context.get_dummy_value()

    return types.void(types.intp, types.intp), emit


@intrinsic
def add_loop(typing_context, rounds, out):
    """`rounds` times: 8 fused multiply-adds for each of CHAINS accumulators."""

    def emit(context, builder, signature, args):
        rounds, out = args
        e = Emitter(builder, TARGET, LANES)
        totals = [e.variable(e.f32, e.const(e.f32, float(chain))) for chain in range(CHAINS)]
        factor, addend = _opaque(e, e.const(e.f32, 0.5)), _opaque(e, e.const(e.f32, 0.25))
        with cgutils.for_range(builder, rounds):
            for _ in range(STEPS):
                for total in totals:
                    builder.store(e.fma(builder.load(total), factor, addend), total)
        result = builder.load(totals[0])
        for total in totals[1:]:
            result = builder.fadd(result, builder.load(total))
        e.store(result, out)
        return context.get_dummy_value()

    return types.void(types.intp, types.intp), emit


def make_multiply():
    """The kernel of byte dot products: one chunk is `rounds` rounds."""
    o_rounds, o_out = PROBE_COMPUTE.offset("rounds"), PROBE_COMPUTE.offset("out")

    def multiply(o, chunk):
        multiply_loop(word(o + o_rounds), word(o + o_out) + 64 * chunk)

    return multiply


def make_add():
    """The kernel of float multiply-adds: one chunk is `rounds` rounds."""
    o_rounds, o_out = PROBE_COMPUTE.offset("rounds"), PROBE_COMPUTE.offset("out")

    def add(o, chunk):
        add_loop(word(o + o_rounds), word(o + o_out) + 64 * chunk)

    return add
