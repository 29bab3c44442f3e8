"""Kernels of every instruction-set level in one process, called chunk by chunk with operands given by name.

Owns the loading (compiled into the user's own kernel folder, so that a second run of the tests is quick), memory with
guarded edges, and packed matrices.  Does not know what a kernel should give.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np

from kernels_cpu import operands
from kernels_cpu.isa import Isa, choose, supported
from kernels_cpu.kernel_cache import KernelCache
from kernels_cpu.operands import Layout, float_word
from kernels_cpu.packed_formats import FLOAT_FORMATS, PACKED_FORMATS, packed_bytes
from kernels_cpu.team import native
from models.formats import FORMATS
from runtime.options import DEFAULT_KERNEL_FOLDER

Array = np.ndarray[Any, np.dtype[Any]]

LEVELS: tuple[str, ...] = tuple(level.name for level in supported())
KERNEL_FOLDER = DEFAULT_KERNEL_FOLDER.expanduser()
# Types of K and V that together are both types of few bits in both places.  The code that reads and writes them is in
# vectors of 16 floats on every level, and slow to compile: the best and the plainest level stand for all.
SMALL_CACHES = ("q8_0-q4_0", "q4_0-q8_0")
SMALL_CACHE_LEVELS = (LEVELS[0], LEVELS[-1])
REQUANTIZED = ("Q5_0", "Q5_1", "Q8_0", "Q5_K", "Q6_K", "F32", "F16", "BF16")
GUARD = 0xA5
GUARD_BYTES = 4096

# What is compiled together when one of them is missing: starting a compiler takes longer than most kernels.
_SIBLINGS: tuple[tuple[str, ...], ...] = (
    (*(f"pack-{name}" for name in FORMATS), *(f"embed-{name}" for name in FORMATS)),
    tuple(f"requantize-{name}" for name in REQUANTIZED),
    tuple(f"product-{name}-{terms}" for name in PACKED_FORMATS for terms in (1, 2)),
    (*(f"product_floats-{name}" for name in FLOAT_FORMATS),),
    ("row-normalize", "row-quantize", "row-select", "row-gate", "row-cap", "executor-run", "executor-work"),
    ("recurrence-convolve", "recurrence-delta", "row-separate"),
    ("experts-choose", "experts-group", "experts-gather-1", "experts-gather-2", "experts-mix"),
    ("expert_product-Q4_0-1", "expert_product-MXFP4-2", "experts-gather_floats"),
    tuple(f"expert_product-{name}-0" for name in FLOAT_FORMATS),
    ("attend-f16-f16", "rotate-f16-f16", "combine"),
    *((f"attend-{kinds}", f"rotate-{kinds}") for kinds in SMALL_CACHES),
)
_LAYOUTS: Mapping[str, Layout] = {
    "product": operands.PRODUCT,
    "product_floats": operands.PRODUCT_FLOATS,
    "pack": operands.PACK,
    "embed": operands.EMBED,
    "requantize": operands.REQUANTIZE,
    "row-normalize": operands.NORMALIZE,
    "row-quantize": operands.QUANTIZE,
    "row-select": operands.SELECT,
    "row-gate": operands.GATE,
    "row-cap": operands.CAP,
    "row-separate": operands.SEPARATE,
    "recurrence-convolve": operands.CONVOLVE,
    "recurrence-delta": operands.DELTA,
    "experts-choose": operands.CHOOSE,
    "experts-group": operands.GROUP,
    "experts-gather-1": operands.GATHER,
    "experts-gather-2": operands.GATHER,
    "experts-gather_floats": operands.GATHER_FLOATS,
    "experts-mix": operands.MIX,
    "expert_product": operands.EXPERT_PRODUCT,
    "rotate": operands.ROTATE,
    "attend": operands.ATTEND,
    "combine": operands.ATTEND,
}


@cache
def _kernels(level: str) -> KernelCache:
    return KernelCache(KERNEL_FOLDER, choose(level), workers=os.cpu_count() or 2)


def compile_all(level: str, tell: Callable[[str], None]) -> None:
    """Compiles everything that tests call on a level and that is not there yet; tells of it when that takes long."""

    def told(done: int, total: int) -> None:
        if done == 0:
            tell(f"Compiling {total} kernels for {level}, only once ...")

    names = [name for siblings in _SIBLINGS for name in siblings]
    if level not in SMALL_CACHE_LEVELS:
        names = [name for name in names if not name.endswith(SMALL_CACHES)]
    _kernels(level).load(names, told)


@cache
def addresses(level: str, name: str) -> dict[str, int]:
    """Addresses of a kernel and of its siblings."""
    siblings = next(names for names in _SIBLINGS if name in names)
    return _kernels(level).load(siblings)


@cache
def _function(level: str, name: str) -> Callable[[int, int], None]:
    return native(addresses(level, name)[name])


def layout_of(name: str) -> Layout:
    """The operands that a kernel takes."""
    return _LAYOUTS[name] if name in _LAYOUTS else _LAYOUTS[name.split("-")[0]]


def call(level: str, name: str, chunks: int | Iterable[int], **values: Array | int | float) -> None:
    """Runs a kernel's chunks one after another.  An array stands for its address, a float for its bits."""
    words = {key: _word(value) for key, value in values.items()}
    block = np.array(layout_of(name).fill(words), np.int64)
    function = _function(level, name)
    for chunk in range(chunks) if isinstance(chunks, int) else chunks:
        function(block.ctypes.data, chunk)


def _word(value: Array | int | float) -> int:
    if isinstance(value, np.ndarray):
        return value.ctypes.data
    return float_word(value) if isinstance(value, float) else value


class Guarded:
    """`size_bytes` of zeros (or of `fill`), aligned to 64, between guards that nobody may touch."""

    def __init__(self, size_bytes: int, fill: int = 0) -> None:
        self._all = np.full(size_bytes + 2 * GUARD_BYTES + 64, GUARD, np.uint8)
        start = -(-(self._all.ctypes.data + GUARD_BYTES) // 64) * 64 - self._all.ctypes.data
        self.bytes = self._all[start : start + size_bytes]
        self.bytes[:] = fill
        self._start = start

    @property
    def address(self) -> int:
        return self.bytes.ctypes.data

    def view(self, shape: tuple[int, ...], dtype: Any) -> Array:
        """The first bytes as an array."""
        count = int(np.prod(shape)) * np.dtype(dtype).itemsize
        return self.bytes[:count].view(dtype).reshape(shape)

    def check(self) -> None:
        """Fails when something was written before the first byte or past the last."""
        before, after = self._all[: self._start], self._all[self._start + len(self.bytes) :]
        assert (before == GUARD).all(), "written before the first byte"
        assert (after == GUARD).all(), "written past the last byte"


def floats(shape: tuple[int, ...], fill: float = np.nan) -> tuple[Guarded, Array]:
    """Guarded float32 memory and the array over it."""
    memory = Guarded(4 * int(np.prod(shape)))
    array = memory.view(shape, np.float32)
    array[:] = fill
    return memory, array


@dataclass(frozen=True, kw_only=True)
class PackedMatrix:
    """A matrix, or two of one format whose groups of rows alternate, as a level's kernels read it."""

    level: str
    format_name: str
    num_rows: int
    num_columns: int
    sides: int
    memory: Guarded

    @property
    def isa(self) -> Isa:
        return choose(self.level)

    @property
    def group_bytes(self) -> int:
        return packed_bytes(self.format_name, self.isa.lanes, self.num_columns, self.isa.lanes)

    @property
    def num_groups(self) -> int:
        return -(-self.num_rows // self.isa.lanes)

    @property
    def is_float(self) -> bool:
        return self.format_name in FLOAT_FORMATS

    @property
    def num_blocks(self) -> int:
        """Packed blocks of a row; columns for float formats."""
        return self.num_columns if self.is_float else -(-self.num_columns // PACKED_FORMATS[self.format_name].columns)


def pack(level: str, format_name: str, num_columns: int, *matrices: Array, groups_per_chunk: int = 1) -> PackedMatrix:
    """Packs raw rows (uint8 [rows, row_bytes]) of one matrix, or of gate and up."""
    num_rows, lanes = len(matrices[0]), choose(level).lanes
    size = packed_bytes(format_name, num_rows, num_columns, lanes) * len(matrices)
    packed = PackedMatrix(
        level=level, format_name=format_name, num_rows=num_rows, num_columns=num_columns,
        sides=len(matrices), memory=Guarded(size),
    )  # fmt: skip
    zeros = np.zeros(512, np.uint8)
    for side, raw in enumerate(matrices):
        # Placed against the end of its memory: a read past the last row would meet the guard.
        source = Guarded(raw.nbytes)
        source.bytes[:] = raw.reshape(-1)
        call(
            level, f"pack-{format_name}", -(-packed.num_groups // groups_per_chunk),
            source=source.bytes, row_bytes=raw.shape[1], num_rows=num_rows,
            source_blocks=num_columns // FORMATS[format_name].block_elements,
            out=packed.memory.address + side * packed.group_bytes,
            group_stride=packed.group_bytes * len(matrices), groups_per_chunk=groups_per_chunk, zeros=zeros,
        )  # fmt: skip
    packed.memory.check()
    return packed


def embed(packed: PackedMatrix, token_ids: Array, scale: float = 1.0) -> Array:
    """Rows of a packed matrix as float32 [ids, columns], by the embedding's kernel."""
    width = -(-packed.num_columns // 256) * 256
    memory, out = floats((len(token_ids), width))
    call(
        packed.level, f"embed-{packed.format_name}", len(token_ids),
        weights=packed.memory.bytes, num_blocks=packed.num_blocks, group_bytes=packed.group_bytes,
        token_ids=token_ids.astype(np.int32), out=out, out_stride=4 * width, scale=float(scale),
    )  # fmt: skip
    memory.check()
    return out[:, : packed.num_columns]


def requantize(matrix: PackedMatrix, groups_per_chunk: int = 1) -> PackedMatrix:
    """A packed matrix as packed Q4_0."""
    size = packed_bytes("Q4_0", matrix.num_rows, matrix.num_columns, matrix.isa.lanes)
    narrow = replace(matrix, format_name="Q4_0", memory=Guarded(size))
    call(
        matrix.level, f"requantize-{matrix.format_name}", -(-matrix.num_groups // groups_per_chunk),
        source=matrix.memory.bytes, source_group_bytes=matrix.group_bytes, num_pieces=narrow.num_blocks,
        out=narrow.memory.bytes, group_stride=narrow.group_bytes, num_groups=matrix.num_groups,
        groups_per_chunk=groups_per_chunk,
    )  # fmt: skip
    narrow.memory.check()
    return narrow


def bits(array: Array) -> Array:
    """A float32 array's bits: equal bits are equal results, zeros' signs and NaNs included."""
    return np.ascontiguousarray(array, np.float32).view(np.uint32)


def same_bits(left: Array, right: Array) -> bool:
    """Whether two float32 arrays are equal to the last bit."""
    return left.shape == right.shape and bool((bits(left) == bits(right)).all())
