"""The inner loops of attention: scores of up to 8 query rows with 16 keys, and weighted sums of values.

Owns how a cache type is read (see kv_layout.py).  A key or value that is read and widened once serves all rows of the
tile.  Sums run over elements, or positions, in order, the same for any number of rows; with scales, the elements of a
block of 32 are summed first and then scaled.
"""

from __future__ import annotations

from collections.abc import Callable

from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

from kernels_cpu.emitter import F32, I32, I64, Emitter
from kernels_cpu.kv_layout import GROUP, SCALE_BLOCK, SPAN, CacheType
from kernels_cpu.rows import INLINE
from kernels_cpu.vectors import TARGET, WIDTH

ROWS = 8  # of a sub-tile: its scores stand in as many registers

Tile = Callable[..., None]


def _signed_bytes(e: Emitter, address: ir.Value, offset: int = 0) -> ir.Value:
    return e.to_float(e.bytes_as_i32(address, offset, signed=True))


def _nibbles(e: Emitter, address: ir.Value, offset: int = 0) -> tuple[ir.Value, ir.Value]:
    """Low and high four bits of 16 bytes, less 8."""
    whole, eight = e.bytes_as_i32(address, offset), e.const(e.i32, 8)
    low, high = e.b.and_(whole, e.const(e.i32, 15)), e.b.lshr(whole, e.const(e.i32, 4))
    return e.to_float(e.b.sub(low, eight)), e.to_float(e.b.sub(high, eight))


class _Scores:
    """Emits the scores of `rows` rows with one group of 16 keys."""

    def __init__(self, e: Emitter, kind: CacheType, rows: int, q: ir.Value, q_stride: ir.Value) -> None:
        self.e, self.kind, self.rows = e, kind, rows
        self.at = [e.b.add(q, e.b.mul(q_stride, I64(row))) for row in range(rows)]

    def _add(self, sums: list[ir.Value], element: ir.Value, offset: int, key: ir.Value) -> None:
        for at, total in zip(self.at, sums, strict=True):
            value = self.e.broadcast(F32, self.e.add(at, self.e.b.mul(element, I64(4))), 4 * offset)
            self.e.b.store(self.e.fma(value, key, self.e.b.load(total)), total)

    def _fresh(self) -> list[ir.Value]:
        return [self.e.variable(self.e.f32, self.e.const(self.e.f32, 0.0)) for _ in range(self.rows)]

    def emit(self, keys: ir.Value, head_dim: ir.Value) -> list[ir.Value]:
        """The sums, one register a row."""
        e, b, sums = self.e, self.e.b, self._fresh()
        if not self.kind.has_scales:
            with cgutils.for_range(b, head_dim) as loop:
                self._add(sums, loop.index, 0, e.load_half(e.add(keys, b.mul(loop.index, I64(2 * GROUP)))))
            return sums
        parts = self._fresh()
        num_blocks = b.sdiv(head_dim, I64(SCALE_BLOCK))
        data = e.add(keys, b.mul(num_blocks, I64(2 * GROUP)))
        with cgutils.for_range(b, num_blocks) as blocks:
            for part in parts:
                b.store(e.const(e.f32, 0.0), part)
            first = b.mul(blocks.index, I64(SCALE_BLOCK))
            self._block(parts, first, data)
            scale = e.load_half(e.add(keys, b.mul(blocks.index, I64(2 * GROUP))))
            for part, total in zip(parts, sums, strict=True):
                b.store(e.fma(b.load(part), scale, b.load(total)), total)
        return sums

    def _block(self, parts: list[ir.Value], first: ir.Value, data: ir.Value) -> None:
        """Adds one block of 32 elements, without its scale."""
        e, b = self.e, self.e.b
        if self.kind.bits == 8:
            with cgutils.for_range(b, I64(SCALE_BLOCK)) as loop:
                element = b.add(first, loop.index)
                self._add(parts, element, 0, _signed_bytes(e, e.add(data, b.mul(element, I64(GROUP)))))
            return
        with cgutils.for_range(b, I64(SCALE_BLOCK // 2)) as loop:
            at = e.add(data, b.mul(first, I64(GROUP // 2)))
            low, high = _nibbles(e, e.add(at, b.mul(loop.index, I64(GROUP))))
            element = b.add(first, loop.index)
            self._add(parts, element, 0, low)
            self._add(parts, element, SCALE_BLOCK // 2, high)


def make_scores(kind: CacheType, rows: int) -> Tile:
    """(q, q_stride, keys, head_dim, out): scores of `rows` query rows with one group of 16 keys."""

    @intrinsic
    def scores(typing_context, q, q_stride, keys, head_dim, out):
        def emit(context, builder, signature, args):
            q, q_stride, keys, head_dim, out = args
            e = Emitter(builder, TARGET, WIDTH)
            sums = _Scores(e, kind, rows, q, q_stride).emit(keys, head_dim)
            for row, total in enumerate(sums):
                e.store(builder.load(total), out, 4 * SPAN * row)
            return context.get_dummy_value()

        return types.void(*[types.intp] * 5), emit

    return scores


def _read_value(
    e: Emitter, kind: CacheType, at: ir.Value, element: ir.Value, blocks: ir.Value, vectors: int
) -> list[ir.Value]:
    """`vectors` vectors of one position's value from `element` on; blocks: scales a value has."""
    b = e.b
    if not kind.has_scales:
        address = e.add(at, b.mul(element, I64(2)))
        return [e.load_half(address, 2 * WIDTH * vector) for vector in range(vectors)]
    data = e.add(at, b.mul(blocks, I64(2)))
    scales = e.add(at, b.mul(b.sdiv(element, I64(SCALE_BLOCK)), I64(2)))
    values = []
    for pair in range(vectors // 2):
        one = b.extract_element(e.load_half(scales, 2 * pair, lanes=1), I32(0))
        if kind.bits == 8:
            address = e.add(data, element)
            both = [_signed_bytes(e, address, WIDTH * (2 * pair + i)) for i in range(2)]
        else:
            both = list(_nibbles(e, e.add(data, b.sdiv(element, I64(2))), WIDTH * pair))
        values += [b.fmul(value, e.splat(one)) for value in both]
    return values


def make_values(kind: CacheType, rows: int, vectors: int) -> Tile:
    """(weights, v, v_stride, count, element, blocks, out, out_stride).

    out[row][16 * vectors elements] += sum over `count` positions of weight * V from `element` on, one chain in order.
    """

    @intrinsic
    def values(typing_context, weights, v, v_stride, count, element, blocks, out, out_stride):
        def emit(context, builder, signature, args):
            weights, v, v_stride, count, element, blocks, out, out_stride = args
            e = Emitter(builder, TARGET, WIDTH)
            cells = [(row, vector) for row in range(rows) for vector in range(vectors)]
            at = [builder.add(out, builder.mul(out_stride, I64(row))) for row in range(rows)]
            sums = {c: e.variable(e.f32, e.load(e.f32, at[c[0]], 64 * c[1])) for c in cells}
            with cgutils.for_range(builder, count) as loop:
                value = _read_value(e, kind, e.add(v, builder.mul(loop.index, v_stride)), element, blocks, vectors)
                for row in range(rows):
                    at_weight = e.add(weights, builder.mul(loop.index, I64(4)))
                    weight = e.broadcast(F32, at_weight, 4 * SPAN * row)
                    for vector in range(vectors):
                        slot = sums[row, vector]
                        builder.store(e.fma(weight, value[vector], builder.load(slot)), slot)
            for row, vector in cells:
                e.store(builder.load(sums[row, vector]), at[row], 64 * vector)
            return context.get_dummy_value()

        return types.void(*[types.intp] * 8), emit

    return values


def make_score_group(kind: CacheType) -> Tile:
    """(rows, q, q_stride, keys, head_dim, out): 1 to 8 rows; rows past the last are computed on what stands there."""
    scores_1, scores_4, scores_6, scores_8 = (make_scores(kind, rows) for rows in (1, 4, 6, ROWS))

    @njit(types.void(*[types.intp] * 6), **INLINE)
    def score_group(rows, q, q_stride, keys, head_dim, out):
        if rows == 1:
            scores_1(q, q_stride, keys, head_dim, out)
        elif rows <= 4:
            scores_4(q, q_stride, keys, head_dim, out)
        elif rows <= 6:
            scores_6(q, q_stride, keys, head_dim, out)
        else:
            scores_8(q, q_stride, keys, head_dim, out)

    return score_group


def make_sum_values(kind: CacheType) -> Tile:
    """(rows, weights, v, head_dim, count, out, out_stride): adds `count` positions' values to 1 to 8 rows."""
    narrow = 2 if kind.has_scales else 1  # vectors: scales come in blocks of 32
    values_1, values_4, values_6, values_8 = (
        make_values(kind, rows, vectors) for rows, vectors in ((1, 4), (4, 4), (6, 2), (ROWS, 2))
    )
    rest_1, rest_4, rest_6, rest_8 = (make_values(kind, rows, narrow) for rows in (1, 4, 6, ROWS))
    rest_step = narrow * WIDTH
    bits, scale_bytes = kind.bits, 2 if kind.has_scales else 0

    @njit(types.void(*[types.intp] * 7), **INLINE)
    def sum_values(rows, weights, v, head_dim, count, out, out_stride):
        blocks = head_dim // SCALE_BLOCK
        stride = head_dim * bits // 8 + blocks * scale_bytes
        step = 2 * WIDTH if rows > 4 else 4 * WIDTH
        whole = head_dim // step * step
        for element in range(0, whole, step):
            if rows == 1:
                values_1(weights, v, stride, count, element, blocks, out + 4 * element, out_stride)
            elif rows <= 4:
                values_4(weights, v, stride, count, element, blocks, out + 4 * element, out_stride)
            elif rows <= 6:
                values_6(weights, v, stride, count, element, blocks, out + 4 * element, out_stride)
            else:
                values_8(weights, v, stride, count, element, blocks, out + 4 * element, out_stride)
        for element in range(whole, head_dim, rest_step):
            if rows == 1:
                rest_1(weights, v, stride, count, element, blocks, out + 4 * element, out_stride)
            elif rows <= 4:
                rest_4(weights, v, stride, count, element, blocks, out + 4 * element, out_stride)
            elif rows <= 6:
                rest_6(weights, v, stride, count, element, blocks, out + 4 * element, out_stride)
            else:
                rest_8(weights, v, stride, count, element, blocks, out + 4 * element, out_stride)

    return sum_values
