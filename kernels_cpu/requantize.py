"""Packed weights of more bits to packed Q4_0, for a model whose guesses are checked by another: it need not be exact.

What a draft model's pass takes is the reading of its weights; many small models keep theirs in 5, 6 and 8 bits, since
their rows do not fill blocks of 256.  With 4.5 bits a weight the Qwen2.5-Coder 0.5B reads 278 MB a token, not 391.

Lanes are rows, as everywhere in packed weights: 64 columns of L rows become floats, then codes.  The scale of 32
weights begins as their extreme / -8, as ggml's Q4_0 has it, and is then the one with the least squared error for the
codes that came of it: sum(weight * code) / sum(code * code).
"""

from __future__ import annotations

from collections.abc import Iterator

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from kernels_cpu.emitter import F32, I16, I64, Emitter
from kernels_cpu.operands import REQUANTIZE
from kernels_cpu.packed_formats import BLOCK, FLOAT_FORMATS, PACKED_FORMATS, STEPS, PackedFormat
from kernels_cpu.tile import Scales, unpack_steps
from kernels_cpu.vectors import TARGET, word

LANES = TARGET.lanes
TARGET_FORMAT = PACKED_FORMATS["Q4_0"]
PIECE = TARGET_FORMAT.columns
FLOAT_BYTES = 4 * LANES  # a column of L rows


class Dequantizer:
    """Emits the floats of 64 columns: [column][lane] at `out`."""

    def __init__(self, e: Emitter, format_name: str, out: ir.Value) -> None:
        self.e, self.format_name, self.out = e, format_name, out

    def emit(self, group: ir.Value, piece: ir.Value) -> None:
        """group: address of a group of packed rows; piece: which 64 columns."""
        if self.format_name in FLOAT_FORMATS:
            self._floats(group, piece)
            return
        e, b, form = self.e, self.e.b, PACKED_FORMATS[self.format_name]
        pieces = form.columns // PIECE
        block_idx, within = (piece, I64(0)) if pieces == 1 else (b.udiv(piece, I64(pieces)), b.urem(piece, I64(pieces)))
        block = e.add(group, b.mul(block_idx, I64(form.block_bytes * e.lanes)))
        scales, units = Scales(e, form, block), PIECE // (BLOCK * form.parts)
        for idx in range(units):
            unit_idx = b.add(b.mul(within, I64(units)), I64(idx))
            unit = e.add(block, b.mul(unit_idx, I64(form.unit_bytes * e.lanes)))
            first_block = b.mul(unit_idx, I64(form.parts))
            self._unit(form, e.add(unit, form.header_bytes * e.lanes), first_block, scales, idx * form.parts)

    def _unit(self, form: PackedFormat, unit: ir.Value, first_block: ir.Value, scales: Scales, first: int) -> None:
        e, b, groups = self.e, self.e.b, BLOCK // form.group
        steps = STEPS // groups
        for group in range(groups):
            quads = list(unpack_steps(e, form, unit, group * steps, (group + 1) * steps))
            for part in range(form.parts):
                idx = b.add(b.mul(b.add(first_block, I64(part)), I64(groups)), I64(group))
                scale = scales.scale(idx)
                minimum = scales.minimum(idx) if form.has_minima else None
                for step, quad in enumerate(quads):
                    column = (first + part) * BLOCK + 4 * (group * steps + step)
                    self._four(form, quad[part], scale, minimum, column)

    def _four(
        self, form: PackedFormat, codes: ir.Value, scale: ir.Value, minimum: ir.Value | None, column: int
    ) -> None:
        e, b = self.e, self.e.b
        words = b.bitcast(codes, e.i32)
        for byte in range(4):
            code = b.and_(b.lshr(words, e.const(e.i32, 8 * byte)), e.const(e.i32, 255))
            value = e.to_float(b.sub(code, e.const(e.i32, form.zero_point)))
            value = b.fmul(value, scale) if minimum is None else e.fma(value, scale, minimum)
            e.store(value, self.out, (column + byte) * FLOAT_BYTES)

    def _floats(self, group: ir.Value, piece: ir.Value) -> None:
        e, b, size = self.e, self.e.b, FLOAT_FORMATS[self.format_name]
        with cgutils.for_range(b, I64(PIECE)) as loop:
            column = b.add(b.mul(piece, I64(PIECE)), loop.index)
            at = e.add(group, b.mul(column, I64(size * e.lanes)))
            match self.format_name:
                case "F32":
                    value = e.load(e.f32, at)
                case "F16":
                    value = e.load_half(at)
                case _:
                    wide = b.zext(e.load(ir.VectorType(I16, e.lanes), at), e.i32)
                    value = b.bitcast(b.shl(wide, e.const(e.i32, 16)), e.f32)
            e.store(value, e.add(self.out, b.mul(loop.index, I64(FLOAT_BYTES))))


class Quantizer:
    """Emits one packed block of Q4_0 from the floats of 64 columns."""

    def __init__(self, e: Emitter, floats: ir.Value, out: ir.Value) -> None:
        self.e, self.floats, self.out = e, floats, out

    def emit(self) -> None:
        e, b, form = self.e, self.e.b, TARGET_FORMAT
        inverses = [self._scale(part) for part in range(form.parts)]
        with cgutils.for_range(b, I64(STEPS)) as loop:
            codes = e.const(e.i32, 0)
            for part, inverse in enumerate(inverses):
                for byte in range(4):
                    column = b.add(b.mul(loop.index, I64(4)), I64(part * BLOCK + byte))
                    whole = b.fptosi(self._code(self._value(column), inverse), e.i32)
                    code = b.add(whole, e.const(e.i32, form.zero_point))
                    codes = b.or_(codes, b.shl(code, e.const(e.i32, 8 * byte + form.low_bits * part)))
            at = e.add(self.out, b.mul(loop.index, I64(4 * e.lanes)))
            e.store(codes, at, form.header_bytes * e.lanes)

    def _scale(self, part: int) -> ir.Value:
        """Writes the scale of a block of 32; returns what its weights are multiplied by to become codes."""
        e, b, zero = self.e, self.e.b, self.e.const(self.e.f32, 0.0)
        largest, smallest = e.variable(e.f32, zero), e.variable(e.f32, zero)
        for value in self._values(part):
            b.store(self._larger(value, b.load(largest)), largest)
            b.store(b.fneg(self._larger(b.fneg(value), b.fneg(b.load(smallest)))), smallest)
        is_positive = b.fcmp_ordered(">", b.load(largest), b.fneg(b.load(smallest)))
        extreme = b.select(is_positive, b.load(largest), b.load(smallest))
        is_zero = b.fcmp_ordered("==", extreme, zero)
        inverse = b.select(is_zero, zero, b.fdiv(e.const(e.f32, -8.0), extreme))
        products, squares = e.variable(e.f32, zero), e.variable(e.f32, zero)
        for value in self._values(part):
            code = self._code(value, inverse)
            b.store(e.fma(value, code, b.load(products)), products)
            b.store(e.fma(code, code, b.load(squares)), squares)
        scale = b.select(is_zero, zero, b.fdiv(b.load(products), b.load(squares)))
        e.store_half(scale, e.add(self.out, (TARGET_FORMAT.halves_at + 2 * part) * e.lanes))
        return inverse

    def _values(self, part: int) -> Iterator[ir.Value]:
        """The 32 columns of a part, one after another, as a loop."""
        with cgutils.for_range(self.e.b, I64(BLOCK)) as loop:
            yield self._value(self.e.b.add(loop.index, I64(part * BLOCK)))

    def _value(self, column: ir.Value) -> ir.Value:
        e = self.e
        return e.load(e.f32, e.add(self.floats, e.b.mul(column, I64(FLOAT_BYTES))))

    def _larger(self, value: ir.Value, other: ir.Value) -> ir.Value:
        """The other one where the value is no number."""
        return self.e.b.select(self.e.b.fcmp_ordered(">", value, other), value, other)

    def _code(self, value: ir.Value, inverse: ir.Value) -> ir.Value:
        """-8 to 7, as a float; what is no number counts as -8."""
        e, b = self.e, self.e.b
        value = e.call(f"llvm.rint.v{e.lanes}f32", e.f32, b.fmul(value, inverse))
        value = self._larger(value, e.const(e.f32, -8.0))
        return b.fneg(self._larger(b.fneg(value), e.const(e.f32, -7.0)))


def make_requantize(format_name: str):
    """The kernel (operands, chunk) that requantises `groups_per_chunk` groups of packed rows."""

    @intrinsic
    def requantize_piece(typing_context, group, piece, out):
        def emit(context, builder, signature, args):
            e = Emitter(builder, TARGET, LANES)
            with builder.goto_entry_block():
                scratch = builder.alloca(ir.ArrayType(F32, PIECE * LANES))
            scratch.align = 64
            floats = builder.ptrtoint(scratch, I64)
            Dequantizer(e, format_name, floats).emit(args[0], args[1])
            Quantizer(e, floats, args[2]).emit()
            return context.get_dummy_value()

        return types.void(*[types.intp] * 3), emit

    block_bytes = TARGET_FORMAT.block_bytes * LANES
    o_source, o_bytes, o_pieces = (REQUANTIZE.offset(name) for name in ("source", "source_group_bytes", "num_pieces"))
    o_out, o_stride, o_groups, o_per_chunk = (
        REQUANTIZE.offset(name) for name in ("out", "group_stride", "num_groups", "groups_per_chunk")
    )

    def requantize(o, chunk):
        per_chunk = word(o + o_per_chunk)
        for group in range(chunk * per_chunk, min((chunk + 1) * per_chunk, word(o + o_groups))):
            source = word(o + o_source) + group * word(o + o_bytes)
            out = word(o + o_out) + group * word(o + o_stride)
            for piece in range(word(o + o_pieces)):
                requantize_piece(source, piece, out + piece * block_bytes)

    return requantize
