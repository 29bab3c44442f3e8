"""The tile: M tokens times L rows of packed weights, as LLVM IR.

Lanes are rows.  For every unit of a packed block the weights are unpacked once and used for all M tokens.  With 32
registers they sit in these meanwhile; with 16, the sums of 8 tokens do, and a weight is used by all as it is unpacked.
Activations are broadcast from their records, folded into the dot product's memory operand where it can have one.
Order of a (token, row) sum, the same for every M: blocks of 32 columns in order; in a block the scale groups in order;
then the minimum.  So a result does not depend on the tile it was computed in.

Multiplier slots (the resource that bounds Zen 4: one 512-bit multiply a cycle) for 32 columns x 16 rows and a token,
one term: 8 dot products + 2 (scale, accumulate), + 1 for a minimum or for two scale groups; two terms: 8 more.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from llvmlite import ir
from numba.core import cgutils

from kernels_cpu.activations import RECORDS
from kernels_cpu.emitter import F32, I8, I32, I64, Emitter
from kernels_cpu.isa import Isa
from kernels_cpu.packed_formats import BLOCK, STEPS, PackedFormat


def unpack_steps(
    e: Emitter, form: PackedFormat, unit: ir.Value, first: int, last: int, parts: Iterable[int] | None = None
) -> Iterator[list[ir.Value]]:
    """For steps first..last-1 of a unit: one vector of unsigned weights a part (None: all), [lane][4 columns]."""
    low_at = 4 * form.high_vectors * e.lanes
    high = e.const(e.i8, 0)
    for step in range(first, last):
        raw = e.load(e.i8, unit, low_at + 4 * step * e.lanes)
        within = step % form.steps_per_high_vector if form.high_bits else 0
        if form.high_bits and (within == 0 or step == first):
            high = e.load(e.i8, unit, 4 * (step // form.steps_per_high_vector) * e.lanes)
        vectors = []
        for part in range(form.parts) if parts is None else parts:
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

    def add(self, total: ir.Value, weights: ir.Value, four: ir.Value) -> ir.Value:
        """total + one step's products."""
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

    def multiply(self, weights: ir.Value, four: ir.Value) -> ir.Value:
        """Pairs of products, int16 (pmaddubsw)."""
        e, b, values = self.e, self.e.b, self.e.b.bitcast(four, self.e.i8)
        if self.needs_sign_trick:
            weights = b.xor(weights, e.const(e.i8, 0x80))
            values = e.call("llvm.x86.avx2.psign.b", e.i8, values, weights)
            weights = e.call(f"llvm.abs.v{4 * e.lanes}i8", e.i8, weights, ir.Constant(ir.IntType(1), 0))
        return e.call("llvm.x86.avx2.pmadd.ub.sw", e.i16, weights, values)


class Chain:
    """total + sum over steps of weights . fours, one token's; fours: int32 broadcasts of 4 int8 activations."""

    def __init__(self, dot: DotProduct, total: ir.Value) -> None:
        self._dot, self._total = dot, total
        self._pending: ir.Value | None = None  # sums of pairs, int16, as long as they can't overflow
        self._num_pending = 0

    def add(self, weights: ir.Value, four: ir.Value) -> None:
        """One step more."""
        if self._dot.dot != "pmaddubsw":
            self._total = self._dot.add(self._total, weights, four)
            return
        product = self._dot.multiply(weights, four)
        self._pending = product if self._pending is None else self._dot.e.b.add(self._pending, product)
        self._num_pending += 1
        if self._num_pending == self._dot.pairs_before_overflow:
            self.collect()

    def end(self) -> ir.Value:
        """The sum, int32 a lane."""
        self.collect()
        return self._total

    def collect(self) -> None:
        """Adds the sums of pairs to the total."""
        if self._pending is not None:
            e = self._dot.e
            whole = e.call("llvm.x86.avx2.pmadd.wd", e.i32, self._pending, e.const(e.i16, 1))
            self._total = e.b.add(self._total, whole)
            self._pending, self._num_pending = None, 0


def _prefetching(isa: Isa, terms: int, tokens: int) -> tuple[int, int]:
    """How many bytes ahead weights are asked for, and into which cache; 0: the processor's own way is best.

    Where few multiplications are done with a weight (Zen 4's take four or eight tokens in one term at 10 GB/s a core),
    it must be asked for long before, and the first cache can't wait for so many lines: into the second, passes of eight
    tokens were 12 % quicker, of four 5 % (AVX-512, one term; with twice the multiplications the first is better).
    """
    if tokens <= 2:
        return 0, 1
    if isa.vector_bits == 512 and tokens * terms <= 8:
        return 8192, 2
    return (512 if tokens <= 4 else 2048), 1


class Tile:
    """Emits the loop over packed blocks for `tokens` tokens; see `emit`."""

    def __init__(self, e: Emitter, form: PackedFormat, terms: int, tokens: int) -> None:
        self.e, self.form, self.terms, self.tokens = e, form, terms, tokens
        self.record = RECORDS[terms]
        self.dot = DotProduct(e, form)
        self.has_room = e.isa.vector_registers >= 32 or tokens == 1
        self.ahead, self.cache = _prefetching(e.isa, terms, tokens)

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
                self.e.prefetch(address, line + self.ahead, self.cache)

    def _unit(
        self, unit: ir.Value, at: list[ir.Value], first_block: ir.Value, scales: Scales, totals: list[ir.Value]
    ) -> None:
        """All parts side by side where registers hold the weights of 8 steps, else one part after another."""
        parts = range(self.form.parts)
        for together in [parts] if self.has_room else [range(part, part + 1) for part in parts]:
            self._parts(together, unit, at, first_block, scales, totals)

    def _parts(
        self,
        parts: range,
        unit: ir.Value,
        at: list[ir.Value],
        first_block: ir.Value,
        scales: Scales,
        totals: list[ir.Value],
    ) -> None:
        e, form, b = self.e, self.form, self.e.b
        groups = BLOCK // form.group
        sums: dict[tuple[int, int], ir.Value] = {}
        for group in range(groups):
            for part, wholes in zip(parts, self._wholes(parts, unit, at, group, groups), strict=True):
                idx = b.add(b.mul(b.add(first_block, I64(part)), I64(groups)), I64(group))
                scale = scales.scale(idx)
                for token, whole in enumerate(wholes):
                    value = e.to_float(whole)
                    known = sums.get((part, token))
                    sums[part, token] = b.fmul(value, scale) if known is None else e.fma(value, scale, known)
        for part in parts:
            for token in range(self.tokens):
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

    def _wholes(
        self, parts: range, unit: ir.Value, at: list[ir.Value], group: int, groups: int
    ) -> Iterator[list[ir.Value]]:
        """For each part and token: sum of (q - zero_point) * activation integers over a scale group.

        With room, a token's steps follow one another and weights stay; without, a step's tokens do, and sums stay.
        """
        steps = range(group * STEPS // groups, (group + 1) * STEPS // groups)
        unpack = lambda: unpack_steps(self.e, self.form, unit, steps.start, steps.stop, parts)  # noqa: E731
        chains = lambda part: [  # noqa: E731
            [self._chain(at[part], token, term, group, groups) for term in range(self.terms)]
            for token in range(self.tokens)
        ]
        if self.has_room:
            quads = list(unpack())
            for place, part in enumerate(parts):
                weights, found = [quad[place] for quad in quads], chains(part)
                for token, term in self._cells():
                    for step, vector in zip(steps, weights, strict=True):
                        found[token][term].add(vector, self._four(at[part], token, term, step))
                yield [self._joined(of_token) for of_token in found]
            return
        found = chains(parts.start)
        for term in range(self.terms):
            for step, (vector,) in zip(steps, unpack(), strict=True):
                for token in range(self.tokens):
                    found[token][term].add(vector, self._four(at[parts.start], token, term, step))
            for of_token in found:
                of_token[term].collect()
        yield [self._joined(of_token) for of_token in found]

    def _cells(self) -> list[tuple[int, int]]:
        return [(token, term) for token in range(self.tokens) for term in range(self.terms)]

    def _four(self, at: ir.Value, token: int, term: int, step: int) -> ir.Value:
        """4 of a token's bytes in every lane."""
        return self.e.broadcast(I32, at, token * self.record.size_bytes + term * BLOCK + 4 * step)

    def _chain(self, at: ir.Value, token: int, term: int, group: int, groups: int) -> Chain:
        """A sum that begins with -zero_point * (sum of the scale group's activations), in the last term."""
        negated = None
        if self.form.zero_point and term == self.terms - 1:
            at_first = token * self.record.size_bytes + self.record.negated_at
            halves = range(2) if groups == 1 else (group,)
            parts = [self.e.broadcast(I32, at, at_first + 4 * half) for half in halves]
            negated = parts[0] if len(parts) == 1 else self.e.b.add(*parts)
        return Chain(self.dot, self.dot.start(self.form.zero_point, negated))

    def _joined(self, chains: list[Chain]) -> ir.Value:
        """256 * the first term + the second."""
        results = [chain.end() for chain in chains]
        return (
            results[0]
            if self.terms == 1
            else self.e.b.add(self.e.b.shl(results[0], self.e.const(self.e.i32, 8)), results[1])
        )


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
