"""Packs a matrix of GGUF blocks into groups of L rows, lane by lane, from the table of block formats.

A word of 4 columns is the unit of work: 4 bytes of the file's block, shifted and masked, become 4 bytes of a lane of a
packed vector.  Where each column's bits lie comes from models.formats, where they go from packed_formats.
One chunk is a run of row groups.  Rows past the end of the matrix stay zero, as the arena was.
"""

from __future__ import annotations

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from kernels_cpu.emitter import I8, I16, I32, I64, Emitter
from kernels_cpu.operands import PACK
from kernels_cpu.packed_formats import BLOCK, PACKED_FORMATS, STEPS, PackedFormat
from kernels_cpu.vectors import TARGET, word
from models.formats import FORMATS, BlockFormat, Field, FieldName

LANES = TARGET.lanes
BYTES_OF_NIBBLE = 0x00204081  # times a nibble, masked with 0x01010101: bit j moves to byte j


def _repeat(byte: int) -> int:
    return byte * 0x01010101


class BlockPacker:
    """Emits the code that packs one lane of one packed block."""

    def __init__(
        self, e: Emitter, source: BlockFormat, form: PackedFormat, blocks: list[ir.Value], out: ir.Value
    ) -> None:
        """blocks: addresses of the file's blocks that make up the packed block; out: the packed block."""
        self.e, self.source, self.form, self.blocks, self.out = e, source, form, blocks, out

    def emit(self, lane: ir.Value) -> None:
        """Packs lane number `lane`."""
        self._scales(lane)
        for unit in range(self.form.units):
            base = (self.form.header_bytes + unit * self.form.unit_bytes) * LANES
            for vector in range(self.form.high_vectors):
                self._store_word(self._high_word(unit, vector), lane, base + 4 * vector * LANES)
            for step in range(STEPS):
                at = base + 4 * (self.form.high_vectors + step) * LANES
                self._store_word(self._low_word(unit, step), lane, at)

    def _store_word(self, value: ir.Value, lane: ir.Value, at: int) -> None:
        self.e.store(value, self.e.add(self.out, self.e.b.mul(lane, I64(4))), at)

    def _locate(self, field: Field, column: int) -> tuple[ir.Value, int, int]:
        """Block address, byte and bit of a column of the packed block."""
        block, within = divmod(column, self.source.block_elements)
        per_byte, run = 8 // field.bits, field.run_bytes
        byte = within // (run * per_byte) * run + within % run
        return self.blocks[block], field.offset_bytes + byte, within // run % per_byte * field.bits

    def _word(self, field: Field, column: int, mask: int, left: int) -> ir.Value:
        """4 columns from `column`: their bits, moved to bit `left` of each byte."""
        b = self.e.b
        block, byte, bit = self._locate(field, column)
        if field.bits < 8 and field.run_bytes < 4:  # a bit a column in one number: spread them over bytes
            number = self.e.load(I32, block, field.offset_bytes)
            within = column % self.source.block_elements
            nibble = b.and_(b.lshr(number, I32(within)), I32(15))
            value = b.and_(b.mul(nibble, I32(BYTES_OF_NIBBLE)), I32(_repeat(1)))
        else:
            value = b.lshr(self.e.load(I32, block, byte), I32(bit))
            value = b.and_(value, I32(_repeat(mask)))
        return b.shl(value, I32(left))

    def _low_word(self, unit: int, step: int) -> ir.Value:
        form = self.form
        if self.source.has_field("values"):  # signed bytes become unsigned
            raw = self._word(self.source.field("values"), BLOCK * unit + 4 * step, 255, 0)
            return self.e.b.xor(raw, I32(_repeat(form.zero_point)))
        field, total = self.source.field("low_bits"), I32(0)
        for part in range(form.parts):
            column = (unit * form.parts + part) * BLOCK + 4 * step
            total = self.e.b.or_(total, self._word(field, column, (1 << form.low_bits) - 1, part * form.low_bits))
        return total

    def _high_word(self, unit: int, vector: int) -> ir.Value:
        form, field, total = self.form, self.source.field("high_bits"), I32(0)
        for within in range(form.steps_per_high_vector):
            for part in range(form.parts):
                column = (unit * form.parts + part) * BLOCK + 4 * (vector * form.steps_per_high_vector + within)
                left = form.high_position(part, within)
                total = self.e.b.or_(total, self._word(field, column, (1 << form.high_bits) - 1, left))
        return total

    def _scales(self, lane: ir.Value) -> None:
        form, source = self.form, self.source
        for idx, block in enumerate(self.blocks if form.exponent_scales else []):
            exponent = self.e.load(I8, block, source.field("scale").offset_bytes)
            self.e.store(exponent, self.e.add(self.out, lane), idx * LANES)
        for group in range(form.num_groups if form.byte_scales else 0):
            scale, minimum = self._sub_scale(group)
            self.e.store(scale, self.e.add(self.out, lane), group * LANES)
            if minimum is not None:
                self.e.store(minimum, self.e.add(self.out, lane), (form.minima_at + group) * LANES)
        halves: tuple[tuple[FieldName, int], ...] = (("scale", form.halves_at), ("minimum", form.half_minima_at))
        for name, at in halves:
            if not source.has_field(name) or form.exponent_scales:
                continue
            for idx, block in enumerate(self.blocks):
                half = self.e.load(I16, block, source.field(name).offset_bytes)
                self.e.store(half, self.e.add(self.out, self.e.b.mul(lane, I64(2))), (at + 2 * idx) * LANES)

    def _sub_scale(self, group: int) -> tuple[ir.Value, ir.Value | None]:
        """The byte of a scale group, and of its minimum where that has a byte of its own."""
        b, block, start = self.e.b, self.blocks[0], self.source.field("sub_scales").offset_bytes
        byte = lambda idx: self.e.load(I8, block, start + idx)  # noqa: E731
        part = lambda idx, right, mask: b.and_(b.lshr(byte(idx), I8(right)), I8(mask))  # noqa: E731
        join = lambda low, high: b.or_(low, b.shl(high, I8(4)))  # noqa: E731
        match self.source.sub_scale_encoding:
            case "nibble_pairs" | "int8":
                return byte(group), None
            case "six_bit_pairs" if group < 4:
                return part(group, 0, 63), part(group + 4, 0, 63)
            case "six_bit_pairs":
                return (
                    join(part(group + 4, 0, 15), part(group - 4, 6, 3)),
                    join(part(group + 4, 4, 15), part(group, 6, 3)),
                )
            case "six_bit":
                value = join(part(group % 8, group // 8 * 4, 15), part(8 + group % 4, group // 4 * 2, 3))
                return b.sub(value, I8(32)), None
            case "four_and_two_bits":
                value = join(part(2 + group // 2, group % 2 * 4, 15), part(group // 4, group % 4 * 2, 3))
                return b.sub(value, I8(32)), None
        raise AssertionError(f"{self.source.name}: sub-scales {self.source.sub_scale_encoding} cannot be packed")


def make_block_packer(format_name: str):
    """(source block, next source block, packed block, lane): packs one lane."""
    source, form = FORMATS[format_name], PACKED_FORMATS[format_name]

    @intrinsic
    def pack_block(typing_context, first, second, out, lane):
        def emit(context, builder, signature, args):
            blocks = [args[0]] if source.block_elements == form.columns else [args[0], args[1]]
            BlockPacker(Emitter(builder, TARGET, LANES), source, form, blocks, args[2]).emit(args[3])
            return context.get_dummy_value()

        return types.void(*[types.intp] * 4), emit

    return pack_block


def make_pack(format_name: str):
    """The kernel (operands, chunk) that packs `groups_per_chunk` groups."""
    source, form = FORMATS[format_name], PACKED_FORMATS[format_name]
    pack_block = make_block_packer(format_name)
    source_block_bytes, packed_block_bytes = source.block_bytes, form.block_bytes * LANES
    blocks_each = form.columns // source.block_elements
    o_source, o_row_bytes, o_rows = PACK.offset("source"), PACK.offset("row_bytes"), PACK.offset("num_rows")
    o_columns, o_out, o_zeros = PACK.offset("source_blocks"), PACK.offset("out"), PACK.offset("zeros")
    o_group_bytes, o_per_chunk = PACK.offset("group_stride"), PACK.offset("groups_per_chunk")

    def pack(o, chunk):
        source, row_bytes, num_rows = word(o + o_source), word(o + o_row_bytes), word(o + o_rows)
        source_blocks, out, zeros = word(o + o_columns), word(o + o_out), word(o + o_zeros)
        group_stride, per_chunk = word(o + o_group_bytes), word(o + o_per_chunk)
        num_groups = (num_rows + LANES - 1) // LANES
        for group in range(chunk * per_chunk, min((chunk + 1) * per_chunk, num_groups)):
            for block in range((source_blocks + blocks_each - 1) // blocks_each):
                target = out + group * group_stride + block * packed_block_bytes
                for lane in range(min(LANES, num_rows - group * LANES)):
                    first = source + (group * LANES + lane) * row_bytes + block * blocks_each * source_block_bytes
                    has_second = block * blocks_each + 1 < source_blocks
                    pack_block(first, first + source_block_bytes if has_second else zeros, target, lane)

    return pack


@intrinsic
def copy_element(typing_context, source, out, size):
    """Copies 2 or 4 bytes."""

    def emit(context, builder, signature, args):
        e = Emitter(builder, TARGET, LANES)
        with cgutils.if_likely(builder, builder.icmp_signed("==", args[2], I64(2))):
            e.store(e.load(I16, args[0]), args[1])
        with builder.if_then(builder.icmp_signed("==", args[2], I64(4))):
            e.store(e.load(I32, args[0]), args[1])
        return context.get_dummy_value()

    return types.void(*[types.intp] * 3), emit


def make_pack_floats(size: int):
    """The kernel that packs F32, F16 or BF16 (`size` bytes an element): [group][column][lane]."""
    o_source, o_row_bytes, o_rows = PACK.offset("source"), PACK.offset("row_bytes"), PACK.offset("num_rows")
    o_columns, o_out = PACK.offset("source_blocks"), PACK.offset("out")
    o_group_bytes, o_per_chunk = PACK.offset("group_stride"), PACK.offset("groups_per_chunk")

    def pack_floats(o, chunk):
        source, row_bytes, num_rows = word(o + o_source), word(o + o_row_bytes), word(o + o_rows)
        num_columns, out = word(o + o_columns), word(o + o_out)
        group_stride, per_chunk = word(o + o_group_bytes), word(o + o_per_chunk)
        num_groups = (num_rows + LANES - 1) // LANES
        for group in range(chunk * per_chunk, min((chunk + 1) * per_chunk, num_groups)):
            for lane in range(min(LANES, num_rows - group * LANES)):
                row = source + (group * LANES + lane) * row_bytes
                for column in range(num_columns):
                    at = out + group * group_stride + (column * LANES + lane) * size
                    copy_element(row + column * size, at, size)

    return pack_floats
