"""The tile: M tokens times L rows of packed weights, as LLVM IR.

Lanes are rows.  For every unit of a packed block the weights are unpacked once and used for all M tokens while they
sit in registers; activations are broadcast from their records, folded into the dot product's memory operand.
Order of a (token, row) sum, the same for every M: blocks of 32 columns in order; in a block the scale groups in order;
then the minimum.  So a result does not depend on the tile it was computed in.

Multiplier slots (the resource that bounds Zen 4: one 512-bit multiply a cycle) for 32 columns x 16 rows and a token,
one term: 8 dot products + 2 (scale, accumulate), + 1 for a minimum or for two scale groups; two terms: 8 more.
"""

from __future__ import annotations

from collections.abc import Iterator

from llvmlite import ir
from numba.core import cgutils

from kernels_cpu.activations import RECORDS
from kernels_cpu.emitter import F32, I8, I32, I64, Emitter
from kernels_cpu.packed_formats import BLOCK, STEPS, PackedFormat


def unpack_steps(e: Emitter, form: PackedFormat, unit: ir.Value, first: int, last: int) -> Iterator[list[ir.Value]]:
    """For steps first..last-1 of a unit: one vector of unsigned weights a part, [lane][4 columns]."""
    low_at = 4 * form.high_vectors * e.lanes
    high = e.const(e.i8, 0)
    for step in range(first, last):
        raw = e.load(e.i8, unit, low_at + 4 * step * e.lanes)
        within = step % form.steps_per_high_vector if form.high_bits else 0
        if form.high_bits and (within == 0 or step == first):
            high = e.load(e.i8, unit, 4 * (step // form.steps_per_high_vector) * e.lanes)
        vectors = []
        for part in range(form.parts):
            value = raw if form.low_bits == 8 else e.shift_bytes(raw, -part * form.low_bits)
            if form.low_bits < 8:
                value = e.mask(value, (1 << form.low_bits) - 1)
            if form.code_values is not None:
                value = e.look_up(value, form.code_values)
            if form.high_bits:
                position = form.high_position(part, within)
                lifted = e.shift_bytes(high, form.low_bits - position)
                value = e.b.or_(value, e.mask(lifted, ((1 << form.high_bits) - 1) << form.low_bits))
            vectors.append(value)
        yield vectors


class Scales:
    """Emits the float scales and minima of a packed block."""

    def __init__(self, e: Emitter, form: PackedFormat, block: ir.Value) -> None:
        self.e, self.form, self.block = e, form, block
        self.factor = self.minimum_factor = None
        if form.byte_scales:
            self.factor = e.load_half(block, form.halves_at * e.lanes)
            if form.has_minima:
                self.minimum_factor = e.load_half(block, form.half_minima_at * e.lanes)

    def scale(self, group: ir.Value) -> ir.Value:
        """float32 lanes of scale group `group` (counted in the packed block)."""
        e, form = self.e, self.form
        if form.exponent_scales:
            return e.power_of_two(e.bytes_as_i32(e.add(self.block, e.b.mul(group, I64(e.lanes)))))
        if not form.byte_scales:
            return e.load_half(e.add(self.block, e.b.mul(group, I64(2 * e.lanes))), form.halves_at * e.lanes)
        at = e.add(self.block, e.b.mul(group, I64(e.lanes)))
        value = e.bytes_as_i32(at, 0, form.signed_scales)
        if form.nibble_scales:
            value = e.b.and_(value, e.const(e.i32, 15))
        return e.b.fmul(e.to_float(value), self.factor)

    def minimum(self, group: ir.Value) -> ir.Value:
        """What is added to every weight of the group."""
        e, form = self.e, self.form
        if not form.byte_scales:
            return e.load_half(e.add(self.block, e.b.mul(group, I64(2 * e.lanes))), form.half_minima_at * e.lanes)
        at = e.add(self.block, e.b.mul(group, I64(e.lanes)))
        if form.nibble_scales:
            value = e.b.lshr(e.bytes_as_i32(at), e.const(e.i32, 4))
        else:
            value = e.bytes_as_i32(at, form.minima_at * e.lanes)
        return e.b.fmul(e.to_float(value), e.b.fneg(self.minimum_factor))


class DotProduct:
    """Sums of 4-column dot products of unsigned weights with int8 activations, int32 a lane."""

    def __init__(self, e: Emitter, form: PackedFormat) -> None:
        self.e, self.dot = e, e.isa.dot
        self.is_signed = self.dot == "sdot" and form.bits == 8  # sdot takes signed weights: 8-bit ones as they were
        largest = (1 << form.bits) - 1
        self.pairs_before_overflow = max(1, 32767 // (2 * 127 * largest)) if largest < 255 else 1
        self.needs_sign_trick = self.dot == "pmaddubsw" and form.bits == 8

    def start(self, zero_point: int, negated_sum: ir.Value | None) -> ir.Value:
        """The accumulator's first value: -zero_point * (sum of activations)."""
        e = self.e
        if zero_point == 0 or negated_sum is None or self.is_signed or self.needs_sign_trick:
            return e.const(e.i32, 0)
        return e.b.shl(negated_sum, e.const(e.i32, zero_point.bit_length() - 1))

    def accumulate(self, total: ir.Value, weights: list[ir.Value], fours: list[ir.Value]) -> ir.Value:
        """total + sum over steps of weights[s] . fours[s]; fours: int32 broadcasts of 4 int8 activations."""
        if self.dot == "pmaddubsw":
            return self._accumulate_pairs(total, weights, fours)
        for vector, four in zip(weights, fours, strict=True):
            total = self._dot(total, vector, four)
        return total

    def _dot(self, total: ir.Value, weights: ir.Value, four: ir.Value) -> ir.Value:
        e, b = self.e, self.e.b
        if self.dot.startswith("vpdpbusd"):
            return e.call(f"llvm.x86.avx512.vpdpbusd.{32 * e.lanes}", e.i32, total, b.bitcast(weights, e.i32), four)
        if self.dot == "sdot":
            if self.is_signed:
                weights = b.xor(weights, e.const(e.i8, 0x80))
            return e.call("llvm.aarch64.neon.sdot.v4i32.v16i8", e.i32, total, weights, b.bitcast(four, e.i8))
        words = b.bitcast(weights, e.i32)
        for byte in range(4):
            shift = e.const(e.i32, 8 * byte)
            weight = b.and_(b.lshr(words, shift), e.const(e.i32, 255))
            value = b.ashr(b.shl(four, e.const(e.i32, 24 - 8 * byte)), e.const(e.i32, 24))
            total = b.add(total, b.mul(weight, value))
        return total

    def _accumulate_pairs(self, total: ir.Value, weights: list[ir.Value], fours: list[ir.Value]) -> ir.Value:
        e, b = self.e, self.e.b
        ones, pending, count = e.const(e.i16, 1), None, 0
        for step, (vector, four) in enumerate(zip(weights, fours, strict=True)):
            values = b.bitcast(four, e.i8)
            if self.needs_sign_trick:
                vector = b.xor(vector, e.const(e.i8, 0x80))
                values = e.call("llvm.x86.avx2.psign.b", e.i8, values, vector)
                vector = e.call(f"llvm.abs.v{4 * e.lanes}i8", e.i8, vector, ir.Constant(ir.IntType(1), 0))
            product = e.call("llvm.x86.avx2.pmadd.ub.sw", e.i16, vector, values)
            pending = product if pending is None else b.add(pending, product)
            count += 1
            if count == self.pairs_before_overflow or step == len(weights) - 1:
                total = b.add(total, e.call("llvm.x86.avx2.pmadd.wd", e.i32, pending, ones))
                pending, count = None, 0
        return total


class Tile:
    """Emits the loop over packed blocks for `tokens` tokens; see `emit`."""

    def __init__(self, e: Emitter, form: PackedFormat, terms: int, tokens: int) -> None:
        self.e, self.form, self.terms, self.tokens = e, form, terms, tokens
        self.record = RECORDS[terms]
        self.dot = DotProduct(e, form)
        self.ahead = 0 if tokens <= 2 else 512 if tokens <= 4 else 2048

    def emit(
        self, weights: ir.Value, num_blocks: ir.Value, records: ir.Value, block_stride: ir.Value, out: ir.Value
    ) -> None:
        """out[token][lane] (float32, contiguous) = products of one group of rows with the tile's tokens.

        records: of the tile's first token, block 0.  block_stride: bytes from one block of 32 columns to the next.
        """
        e, form = self.e, self.form
        totals = [e.variable(e.f32, e.const(e.f32, 0.0)) for _ in range(self.tokens)]
        unit_stride = e.b.mul(block_stride, I64(form.parts))
        with cgutils.for_range(e.b, num_blocks) as loop:
            block = e.add(weights, e.b.mul(loop.index, I64(form.block_bytes * e.lanes)))
            self._prefetch(block, form.header_bytes * e.lanes)
            scales = Scales(e, form, block)
            with cgutils.for_range(e.b, I64(form.units)) as units:
                unit_idx = e.b.add(e.b.mul(loop.index, I64(form.units)), units.index)
                unit = e.add(block, e.b.mul(units.index, I64(form.unit_bytes * e.lanes)))
                unit = e.add(unit, form.header_bytes * e.lanes)
                self._prefetch(unit, form.unit_bytes * e.lanes)
                first = e.add(records, e.b.mul(unit_idx, unit_stride))
                at = [e.add(first, e.b.mul(block_stride, I64(part))) for part in range(form.parts)]
                first_block = e.b.mul(units.index, I64(form.parts))
                self._unit(unit, at, first_block, scales, totals)
        for token, total in enumerate(totals):
            e.store(e.b.load(total), out, 4 * e.lanes * token)

    def _prefetch(self, address: ir.Value, size: int) -> None:
        if self.ahead:
            for line in range(0, size, 64):
                self.e.prefetch(address, line + self.ahead)

    def _unit(
        self, unit: ir.Value, at: list[ir.Value], first_block: ir.Value, scales: Scales, totals: list[ir.Value]
    ) -> None:
        e, form, b = self.e, self.form, self.e.b
        groups = BLOCK // form.group
        steps = STEPS // groups
        cells = [(part, token) for part in range(form.parts) for token in range(self.tokens)]
        sums: dict[tuple[int, int], ir.Value] = {}
        for group in range(groups):
            quads = list(unpack_steps(e, form, unit, group * steps, (group + 1) * steps))
            for part in range(form.parts):
                idx = b.add(b.mul(b.add(first_block, I64(part)), I64(groups)), I64(group))
                scale = scales.scale(idx)
                weights = [quad[part] for quad in quads]
                for token in range(self.tokens):
                    whole = e.to_float(self._whole(weights, at[part], token, group, groups))
                    if (part, token) in sums:
                        sums[part, token] = e.fma(whole, scale, sums[part, token])
                    else:
                        sums[part, token] = b.fmul(whole, scale)
        for part, token in cells:
            base = token * self.record.size_bytes
            total = b.load(totals[token])
            value = e.broadcast(F32, at[part], base + self.record.unit_at)
            total = e.fma(sums[part, token], value, total)
            if form.has_minima:
                total = self._add_minima(total, scales, b.add(first_block, I64(part)), at[part], base)
            b.store(total, totals[token])

    def _add_minima(self, total: ir.Value, scales: Scales, block: ir.Value, at: ir.Value, base: int) -> ir.Value:
        e = self.e
        if self.form.group == BLOCK:
            return e.fma(scales.minimum(block), e.broadcast(F32, at, base + self.record.sum_at), total)
        unit = e.broadcast(F32, at, base + self.record.unit_at)
        for group in range(2):
            negated = e.to_float(e.broadcast(I32, at, base + self.record.negated_at + 4 * group))
            minimum = scales.minimum(e.b.add(e.b.mul(block, I64(2)), I64(group)))
            total = e.fma(e.b.fneg(minimum), e.b.fmul(negated, unit), total)
        return total

    def _whole(self, weights: list[ir.Value], at: ir.Value, token: int, group: int, groups: int) -> ir.Value:
        """Sum of (q - zero_point) * activation integers over a scale group."""
        e, b, form = self.e, self.e.b, self.form
        base = token * self.record.size_bytes
        negated = None
        if form.zero_point:
            parts = [
                e.broadcast(I32, at, base + self.record.negated_at + 4 * i)
                for i in (range(2) if groups == 1 else (group,))
            ]
            negated = parts[0] if len(parts) == 1 else b.add(*parts)
        steps = len(weights)
        results = []
        for term in range(self.terms):
            begin = base + term * BLOCK + 4 * steps * group
            fours = [e.broadcast(I32, at, begin + 4 * step) for step in range(steps)]
            start = self.dot.start(form.zero_point, negated if term == self.terms - 1 else None)
            results.append(self.dot.accumulate(start, weights, fours))
        if self.terms == 1:
            return results[0]
        return b.add(b.shl(results[0], e.const(e.i32, 8)), results[1])


def emit_unpacked_block(e: Emitter, form: PackedFormat, block: ir.Value, lane: ir.Value, out: ir.Value) -> None:
    """The `columns` weights of one row of a packed block, as float32 at `out` (for embeddings and tests)."""
    b = e.b
    with b.goto_entry_block():
        scratch = b.alloca(ir.ArrayType(I8, 4 * e.lanes * form.parts))
    bytes_at = b.ptrtoint(scratch, I64)
    scales = Scales(e, form, block)
    groups = BLOCK // form.group
    with cgutils.for_range(b, I64(form.units)) as units:
        unit = e.add(block, b.mul(units.index, I64(form.unit_bytes * e.lanes)))
        unit = e.add(unit, form.header_bytes * e.lanes)
        for step, vectors in enumerate(unpack_steps(e, form, unit, 0, STEPS)):
            for part, vector in enumerate(vectors):
                e.store(vector, bytes_at, 4 * e.lanes * part)
                block_idx = b.add(b.mul(units.index, I64(form.parts)), I64(part))
                idx = b.add(b.mul(block_idx, I64(groups)), I64(step * groups // STEPS))
                scale = b.extract_element(scales.scale(idx), b.trunc(lane, I32))
                minimum = b.extract_element(scales.minimum(idx), b.trunc(lane, I32)) if form.has_minima else F32(0.0)
                for column in range(4):
                    q = e.load(I8, e.add(bytes_at, b.mul(lane, I64(4))), 4 * e.lanes * part + column)
                    whole = b.sub(b.zext(q, I32), I32(form.zero_point))
                    value = e.call("llvm.fma.f32", F32, b.sitofp(whole, F32), scale, minimum)
                    at = e.add(out, b.mul(block_idx, I64(4 * BLOCK)))
                    e.store(value, at, 4 * (4 * step + column))
