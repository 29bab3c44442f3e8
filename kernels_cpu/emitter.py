"""Emits LLVM IR for vectors: the vocabulary that tiles, packing and row kernels are written in.

Owns the mapping from an idea (dot product of bytes, half to float, exponential) to instructions of an
instruction-set level.  Does not know formats or layouts.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from llvmlite import ir
from numba.core import cgutils

from kernels_cpu.isa import Isa

I8, I16, I32, I64 = (ir.IntType(n) for n in (8, 16, 32, 64))
F16, F32 = ir.HalfType(), ir.FloatType()


class Emitter:
    """A builder that knows the instruction set and a vector width: lanes of 32 bits."""

    def __init__(self, builder: ir.IRBuilder, isa: Isa, lanes: int) -> None:
        self.b, self.isa, self.lanes = builder, isa, lanes
        self.i8 = ir.VectorType(I8, 4 * lanes)
        self.i16 = ir.VectorType(I16, 2 * lanes)
        self.i32 = ir.VectorType(I32, lanes)
        self.f32 = ir.VectorType(F32, lanes)

    # --- memory ---------------------------------------------------------------------------------------
    def const(self, kind: ir.VectorType, value: float) -> ir.Constant:
        return ir.Constant(kind, [value] * kind.count)

    def add(self, address: ir.Value, offset: ir.Value | int) -> ir.Value:
        if isinstance(offset, int):
            return address if offset == 0 else self.b.add(address, I64(offset))
        return self.b.add(address, offset)

    def load(self, kind: ir.Type, address: ir.Value, offset: int = 0) -> ir.Value:
        value = self.b.load(self.b.inttoptr(self.add(address, offset), kind.as_pointer()))
        value.align = 1
        return value

    def store(self, value: ir.Value, address: ir.Value, offset: int = 0) -> None:
        self.b.store(value, self.b.inttoptr(self.add(address, offset), value.type.as_pointer())).align = 1

    def splat(self, scalar: ir.Value) -> ir.Value:
        kind = ir.VectorType(scalar.type, self.lanes)
        one = self.b.insert_element(ir.Constant(kind, ir.Undefined), scalar, I32(0))
        return self.b.shuffle_vector(one, one, ir.Constant(ir.VectorType(I32, self.lanes), [0] * self.lanes))

    def broadcast(self, element: ir.Type, address: ir.Value, offset: int = 0) -> ir.Value:
        """The 4 bytes at address + offset in every lane."""
        return self.splat(self.load(element, address, offset))

    def prefetch(self, address: ir.Value, offset: int, cache: int) -> None:
        """Asks for the line at address + offset; cache: 1 or 2, the level that it should come to."""
        pointer = self.b.inttoptr(self.add(address, offset), I8.as_pointer())
        kind = ir.FunctionType(ir.VoidType(), [pointer.type, I32, I32, I32])
        function = cgutils.get_or_insert_function(self.b.module, kind, "llvm.prefetch.p0")
        self.b.call(function, [pointer, I32(0), I32(4 - cache), I32(1)])

    def variable(self, kind: ir.Type, value: ir.Value | None = None) -> ir.Value:
        """A register: LLVM turns the stack slot into values."""
        slot = cgutils.alloca_once(self.b, kind)
        if value is not None:
            self.b.store(value, slot)
        return slot

    def call(self, name: str, result: ir.Type, *args: ir.Value) -> ir.Value:
        kind = ir.FunctionType(result, [a.type for a in args])
        return self.b.call(cgutils.get_or_insert_function(self.b.module, kind, name), args)

    # --- integers ---------------------------------------------------------------------------------------
    def shift_bytes(self, v: ir.Value, left: int) -> ir.Value:
        """Bytes shifted as 16-bit numbers: what crosses a byte must be masked away.  Negative: to the right."""
        if left == 0:
            return v
        v = self.b.bitcast(v, self.i16)
        amount = self.const(self.i16, abs(left))
        return self.b.bitcast(self.b.shl(v, amount) if left > 0 else self.b.lshr(v, amount), self.i8)

    def mask(self, v: ir.Value, bits: int) -> ir.Value:
        return self.b.and_(v, self.const(self.i8, bits))

    def look_up(self, v: ir.Value, values: Sequence[int]) -> ir.Value:
        """Each byte of v, 0 to 15, as the one of 16 `values` (0 to 255) that it numbers."""
        if self.isa.shuffle is not None:
            table = ir.Constant(self.i8, [*values] * (self.i8.count // 16))
            return self.call(self.isa.shuffle, self.i8, table, v)
        choices = [self.const(self.i8, value) for value in values]
        for bit in (1, 2, 4, 8):
            is_set = self.b.icmp_unsigned("!=", self.mask(v, bit), self.const(self.i8, 0))
            pairs = zip(choices[::2], choices[1::2], strict=True)
            choices = [self.b.select(is_set, odd, even) for even, odd in pairs]
        return choices[0]

    def bytes_as_i32(self, address: ir.Value, offset: int = 0, signed: bool = False) -> ir.Value:
        narrow = self.load(ir.VectorType(I8, self.lanes), address, offset)
        return (self.b.sext if signed else self.b.zext)(narrow, self.i32)

    # --- floats ---------------------------------------------------------------------------------------
    def fma(self, x: ir.Value, y: ir.Value, z: ir.Value) -> ir.Value:
        """x * y + z, rounded once, on every level: results do not depend on what LLVM would fuse."""
        return self.call(f"llvm.fma.v{x.type.count}f32", x.type, x, y, z)

    def to_float(self, v: ir.Value) -> ir.Value:
        return self.b.sitofp(v, ir.VectorType(F32, v.type.count))

    def power_of_two(self, exponent: ir.Value) -> ir.Value:
        """2 ** (exponent - 128) for int32 lanes of 0 to 255, among them the two that are subnormal."""
        b = self.b
        normal = b.shl(b.sub(exponent, self.const(self.i32, 1)), self.const(self.i32, 23))
        subnormal = b.shl(self.const(self.i32, 0x00200000), exponent)
        is_small = b.icmp_unsigned("<", exponent, self.const(self.i32, 2))
        return b.bitcast(b.select(is_small, subnormal, normal), self.f32)

    def load_half(self, address: ir.Value, offset: int = 0, lanes: int | None = None) -> ir.Value:
        """float16 in memory, float32 in lanes; exact."""
        lanes = self.lanes if lanes is None else lanes
        wide, bits = ir.VectorType(F32, lanes), ir.VectorType(I32, lanes)
        if self.isa.has_half:
            return self.b.fpext(self.load(ir.VectorType(F16, lanes), address, offset), wide)
        b, constant = self.b, lambda value: ir.Constant(bits, [value] * lanes)
        half = b.zext(self.load(ir.VectorType(I16, lanes), address, offset), bits)
        sign = b.shl(b.and_(half, constant(0x8000)), constant(16))
        magnitude = b.shl(b.and_(half, constant(0x7FFF)), constant(13))
        scaled = b.fmul(b.bitcast(magnitude, wide), ir.Constant(wide, [2.0**112] * lanes))
        is_special = b.icmp_unsigned(">=", magnitude, constant(0x0F800000))
        special = b.or_(magnitude, constant(0x7F800000))
        value = b.select(is_special, special, b.bitcast(scaled, bits))
        return b.bitcast(b.or_(value, sign), wide)

    def store_half(self, v: ir.Value, address: ir.Value) -> None:
        """Rounds float32 lanes to float16, to nearest even."""
        lanes, b = v.type.count, self.b
        if self.isa.has_half:
            self.store(b.fptrunc(v, ir.VectorType(F16, lanes)), address)
            return
        wide, bits = ir.VectorType(F32, lanes), ir.VectorType(I32, lanes)
        constant = lambda value: ir.Constant(bits, [value] * lanes)  # noqa: E731
        raw = b.bitcast(v, bits)
        sign = b.lshr(b.and_(raw, constant(0x80000000)), constant(16))
        raw = b.and_(raw, constant(0x7FFFFFFF))
        is_special = b.icmp_unsigned(">=", raw, constant(0x47800000))  # 65536 and above, infinity, NaN
        is_nan = b.icmp_unsigned(">", raw, constant(0x7F800000))
        special = b.select(is_nan, constant(0x7E00), constant(0x7C00))
        # below the smallest normal half: adding 0.5 aligns the bits that stay, rounding to nearest even
        tiny = b.sub(
            b.bitcast(b.fadd(b.bitcast(raw, wide), ir.Constant(wide, [0.5] * lanes)), bits), constant(0x3F000000)
        )
        odd = b.and_(b.lshr(raw, constant(13)), constant(1))
        rounded = b.add(b.add(raw, constant(0xC8000FFF)), odd)
        normal = b.lshr(rounded, constant(13))
        is_tiny = b.icmp_unsigned("<", raw, constant(0x38800000))
        value = b.select(is_special, special, b.select(is_tiny, tiny, normal))
        self.store(b.trunc(b.or_(value, sign), ir.VectorType(I16, lanes)), address)

    def exp(self, x: ir.Value) -> ir.Value:
        """e ** x up to e ** 88, relative error about 1e-7 (Cody-Waite, a polynomial of degree 6); 0 below e ** -87."""
        b, kind, lanes = self.b, x.type, x.type.count
        const = lambda value: ir.Constant(kind, [value] * lanes)  # noqa: E731
        bits = ir.VectorType(I32, lanes)
        is_zero = b.fcmp_ordered("<", x, const(-87.0))
        x = b.select(is_zero, const(-87.0), x)
        x = b.select(b.fcmp_ordered(">", x, const(88.0)), const(88.0), x)
        magic = const(12582912.0)  # 1.5 * 2 ** 23: adding it rounds to an integer
        shifted = self.fma(x, const(math.log2(math.e)), magic)
        n = b.fsub(shifted, magic)
        r = self.fma(n, const(-0.693145751953125), x)
        r = self.fma(n, const(-1.428606765330187e-06), r)
        p = const(1 / 720)
        for coefficient in (1 / 120, 1 / 24, 1 / 6, 0.5, 1.0, 1.0):
            p = self.fma(p, r, const(coefficient))
        exponent = b.shl(b.bitcast(shifted, bits), ir.Constant(bits, [23] * lanes))
        value = b.bitcast(b.add(b.bitcast(p, bits), exponent), kind)
        return b.select(is_zero, const(0.0), value)

    def reduce(self, v: ir.Value, combine: str) -> ir.Value:
        """All lanes combined by a fixed tree: `fadd`, or `fmax` of the two halves."""
        b, count = self.b, v.type.count
        while count > 1:
            count //= 2
            low, high = (b.shuffle_vector(v, v, _indexes(range(i, i + count))) for i in (0, count))
            v = b.fadd(low, high) if combine == "fadd" else b.select(b.fcmp_ordered(">", high, low), high, low)
        return b.extract_element(v, I32(0))


def _indexes(numbers: Sequence[int]) -> ir.Constant:
    return ir.Constant(ir.VectorType(I32, len(numbers)), list(numbers))
