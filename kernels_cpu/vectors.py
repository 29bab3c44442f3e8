"""What a Numba kernel may say beside plain Python: memory words, atomics, stack space, and vectors of 16 floats.

Owns the Numba types and intrinsics.  Does not know formats, layouts or operations.  Addresses are plain integers.

    value = fma(load(x), splat(scale), load(y));  store(out, value * load(weight))

A vector of 16 float32 is the same on every instruction-set level (LLVM splits it where registers are narrower), so
results agree to the bit between levels.  No operation is fused or reordered unless it is written so.
"""

from __future__ import annotations

import operator

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic, lower_builtin, models, register_model, type_callable

from kernels_cpu.emitter import F32, I8, I16, I32, I64, Emitter
from kernels_cpu.isa import compile_target

WIDTH = 16
TARGET = compile_target()


class Vector(types.Type):
    """16 float32."""

    def __init__(self) -> None:
        super().__init__("f32x16")


f32x16 = Vector()


@register_model(Vector)
class VectorModel(models.PrimitiveModel):
    """In LLVM: <16 x float>."""

    def __init__(self, dmm, fe_type):
        super().__init__(dmm, fe_type, ir.VectorType(F32, WIDTH))


def _emitter(builder) -> Emitter:
    return Emitter(builder, TARGET, WIDTH)


def _binary(symbol, name):
    """Gives `symbol` (such as operator.add) a meaning for two vectors: the IR instruction `name`."""

    @type_callable(symbol)
    def typer(context):
        def resolve(left, right):
            if left == f32x16 and right == f32x16:
                return f32x16
            return None

        return resolve

    @lower_builtin(symbol, f32x16, f32x16)
    def lower(context, builder, signature, args):
        return getattr(builder, name)(*args)


for _symbol, _name in (
    (operator.add, "fadd"),
    (operator.sub, "fsub"),
    (operator.mul, "fmul"),
    (operator.truediv, "fdiv"),
):
    _binary(_symbol, _name)


# --- memory ---------------------------------------------------------------------------------------
def _loader(kind, numba_type, widen=None):
    @intrinsic
    def load_scalar(typing_context, address):
        def emit(context, builder, signature, args):
            value = _emitter(builder).load(kind, args[0])
            return value if widen is None else getattr(builder, widen)(value, I64)

        return numba_type(types.intp), emit

    return load_scalar


def _storer(kind, numba_type, narrow=False):
    @intrinsic
    def store_scalar(typing_context, address, value):
        def emit(context, builder, signature, args):
            value = builder.trunc(args[1], kind) if narrow else args[1]
            _emitter(builder).store(value, args[0])
            return context.get_dummy_value()

        return types.void(types.intp, numba_type), emit

    return store_scalar


word = _loader(I64, types.int64)
load_i32 = _loader(I32, types.int64, "sext")
load_u8 = _loader(I8, types.int64, "zext")
load_u16 = _loader(I16, types.int64, "zext")
load_float = _loader(F32, types.float32)
store_word = _storer(I64, types.int64)
store_i32 = _storer(I32, types.int64, narrow=True)
store_u8 = _storer(I8, types.int64, narrow=True)
store_u16 = _storer(I16, types.int64, narrow=True)
store_float = _storer(F32, types.float32)


@intrinsic
def load(typing_context, address):
    """16 float32 from an address."""
    return f32x16(types.intp), lambda c, b, s, args: _emitter(b).load(ir.VectorType(F32, WIDTH), args[0])


@intrinsic
def store(typing_context, address, value):
    """Writes 16 float32."""

    def emit(context, builder, signature, args):
        _emitter(builder).store(args[1], args[0])
        return context.get_dummy_value()

    return types.void(types.intp, f32x16), emit


@intrinsic
def load_half(typing_context, address):
    """16 float16 from an address, as float32."""
    return f32x16(types.intp), lambda c, b, s, args: _emitter(b).load_half(args[0])


@intrinsic
def store_half(typing_context, address, value):
    """Writes 16 float32 as float16, rounded to nearest even."""

    def emit(context, builder, signature, args):
        _emitter(builder).store_half(args[1], args[0])
        return context.get_dummy_value()

    return types.void(types.intp, f32x16), emit


@intrinsic
def load_bf16(typing_context, address):
    """16 bfloat16 from an address, as float32."""

    def emit(context, builder, signature, args):
        raw = _emitter(builder).load(ir.VectorType(I16, WIDTH), args[0])
        wide = builder.zext(raw, ir.VectorType(I32, WIDTH))
        wide = builder.shl(wide, ir.Constant(ir.VectorType(I32, WIDTH), [16] * WIDTH))
        return builder.bitcast(wide, ir.VectorType(F32, WIDTH))

    return f32x16(types.intp), emit


@intrinsic
def round_to_bytes(typing_context, address, value):
    """Writes 16 float32 as int8, rounded to nearest even; they must lie within -128..127."""

    def emit(context, builder, signature, args):
        e = _emitter(builder)
        whole = builder.fptosi(e.call("llvm.rint.v16f32", args[1].type, args[1]), e.i32)
        e.store(builder.trunc(whole, ir.VectorType(I8, WIDTH)), args[0])
        return context.get_dummy_value()

    return types.void(types.intp, f32x16), emit


@intrinsic(prefer_literal=True)
def stack_bytes(typing_context, size):
    """Address of `size` bytes (a literal) on the stack, aligned to 64."""
    if not isinstance(size, types.IntegerLiteral):
        return None
    kind = ir.ArrayType(I8, size.literal_value)

    def emit(context, builder, signature, args):
        with builder.goto_entry_block():  # not cgutils.alloca_once: that fills with zeros, element by element
            slot = builder.alloca(kind)
        slot.align = 64
        return builder.ptrtoint(slot, I64)

    return types.intp(size), emit


# --- values ---------------------------------------------------------------------------------------
@intrinsic
def splat(typing_context, value):
    """One float32 in every lane."""
    return f32x16(types.float32), lambda c, b, s, args: _emitter(b).splat(args[0])


@intrinsic
def fma(typing_context, x, y, z):
    """x * y + z, rounded once."""
    return f32x16(f32x16, f32x16, f32x16), lambda c, b, s, args: _emitter(b).fma(*args)


@intrinsic
def scalar_fma(typing_context, x, y, z):
    """x * y + z of float32 numbers, rounded once."""

    def emit(context, builder, signature, args):
        return _emitter(builder).call("llvm.fma.f32", F32, *args)

    return types.float32(types.float32, types.float32, types.float32), emit


@intrinsic
def exp(typing_context, x):
    """e ** x, lane by lane."""
    return f32x16(f32x16), lambda c, b, s, args: _emitter(b).exp(args[0])


@intrinsic
def rint(typing_context, x):
    """Rounded to the nearest whole number, ties to even."""
    return f32x16(f32x16), lambda c, b, s, args: _emitter(b).call("llvm.rint.v16f32", args[0].type, args[0])


@intrinsic
def absolute(typing_context, x):
    """Without signs."""
    return f32x16(f32x16), lambda c, b, s, args: _emitter(b).call("llvm.fabs.v16f32", args[0].type, args[0])


@intrinsic
def maximum(typing_context, x, y):
    """The larger of two, lane by lane; y where x is not a number."""

    def emit(context, builder, signature, args):
        return builder.select(builder.fcmp_ordered(">", args[0], args[1]), args[0], args[1])

    return f32x16(f32x16, f32x16), emit


@intrinsic
def minimum(typing_context, x, y):
    """The smaller of two, lane by lane; y where x is not a number."""

    def emit(context, builder, signature, args):
        return builder.select(builder.fcmp_ordered("<", args[0], args[1]), args[0], args[1])

    return f32x16(f32x16, f32x16), emit


@intrinsic
def sum_lanes(typing_context, x):
    """The sum of the lanes, by a fixed tree."""
    return types.float32(f32x16), lambda c, b, s, args: _emitter(b).reduce(args[0], "fadd")


@intrinsic
def max_lane(typing_context, x):
    """The largest lane."""
    return types.float32(f32x16), lambda c, b, s, args: _emitter(b).reduce(args[0], "fmax")


@intrinsic
def keep_lanes(typing_context, x, first, last, other):
    """x in lanes first..last-1 (any integers), `other` elsewhere."""

    def emit(context, builder, signature, args):
        x, first, last, other = args
        wide = ir.VectorType(I32, WIDTH)
        lanes = ir.Constant(wide, list(range(WIDTH)))

        def spread(value):
            for bound, side in ((0, "<"), (WIDTH, ">")):  # what lies beyond means the same, and fits 32 bits
                is_beyond = builder.icmp_signed(side, value, I64(bound))
                value = builder.select(is_beyond, I64(bound), value)
            one = builder.insert_element(ir.Constant(wide, ir.Undefined), builder.trunc(value, I32), I32(0))
            return builder.shuffle_vector(one, one, ir.Constant(wide, [0] * WIDTH))

        inside = builder.and_(
            builder.icmp_signed(">=", lanes, spread(first)), builder.icmp_signed("<", lanes, spread(last))
        )
        return builder.select(inside, x, other)

    return f32x16(f32x16, types.int64, types.int64, f32x16), emit


@intrinsic
def square_root(typing_context, x):
    """Square root of a float32."""
    return types.float32(types.float32), lambda c, b, s, args: _emitter(b).call("llvm.sqrt.f32", F32, args[0])


@intrinsic
def half_bits(typing_context, x):
    """The float16 nearest to a float32, as its 16 bits."""

    def emit(context, builder, signature, args):
        slot = cgutils.alloca_once(builder, ir.VectorType(I16, 1))
        address = builder.ptrtoint(slot, I64)
        e = Emitter(builder, TARGET, 1)
        one = builder.insert_element(ir.Constant(ir.VectorType(F32, 1), ir.Undefined), args[0], I32(0))
        e.store_half(one, address)
        return builder.zext(e.load(I16, address), I64)

    return types.int64(types.float32), emit


# --- atomics ---------------------------------------------------------------------------------------
@intrinsic
def atomic_word(typing_context, address):
    """Reads a word that other threads write (acquire)."""

    def emit(context, builder, signature, args):
        return builder.load_atomic(builder.inttoptr(args[0], I64.as_pointer()), "acquire", 8)

    return types.int64(types.intp), emit


@intrinsic
def set_atomic_word(typing_context, address, value):
    """Writes a word that other threads read (release)."""

    def emit(context, builder, signature, args):
        builder.store_atomic(args[1], builder.inttoptr(args[0], I64.as_pointer()), "release", 8)
        return context.get_dummy_value()

    return types.void(types.intp, types.int64), emit


@intrinsic
def fetch_add(typing_context, address, value):
    """Adds to a word, atomically; the value before."""

    def emit(context, builder, signature, args):
        return builder.atomic_rmw("add", builder.inttoptr(args[0], I64.as_pointer()), args[1], "seq_cst")

    return types.int64(types.intp, types.int64), emit
