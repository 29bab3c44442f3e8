"""What a bound program needs: every matrix, vector and buffer with its size.

Owns these shapes.  weights.py and binding.py take exactly these pieces, in this order; bill.py adds them up.
planning.py decides which there are.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from kernels_cpu.activations import RECORDS
from kernels_cpu.arena import aligned
from kernels_cpu.kv_layout import CacheTypes
from kernels_cpu.packed_formats import BLOCK, FLOAT_FORMATS, PACKED_FORMATS, packed_bytes, padded_columns
from models.program import (
    Buffer,
    GatedProject,
)

ROW_ALIGNMENT = 256  # floats: packed blocks of an embedding are unpacked whole
MAX_SPLIT_CELLS = 512  # (token, span) pairs of partial attention results that are kept at a time
MAX_SPLIT_TOKENS = 8
OPERAND_BYTES = 256  # reserved for each step
REQUANTIZED_FORMAT = "Q4_0"
WORTH_REQUANTIZING = 0.85  # of the bytes: what 5 bits and more become, while 4-bit formats stay as they are


@dataclass(frozen=True, kw_only=True)
class CpuLimits:
    """How much a binding is made for; pages hold 64 positions.

    num_states: of layers that keep one, for all sequences together; 0 for programs without such layers.
    """

    max_batch_tokens: int
    max_outputs: int
    max_sequences: int
    context_size: int
    num_pages: int
    num_states: int = 0
    cache_types: CacheTypes = CacheTypes.named("f16", "f16")


@dataclass(frozen=True, kw_only=True)
class Matrix:
    """A packed matrix, or two whose groups of rows alternate (gate, up).  stored_format: of its file.

    num_parts: matrices of num_rows rows, such as experts, that stand one after another; each begins a group of rows.
    """

    names: tuple[str, ...]
    format_name: str
    stored_format: str
    num_rows: int
    num_columns: int
    lanes: int
    num_parts: int = 1

    @property
    def group_bytes(self) -> int:
        return packed_bytes(self.format_name, self.lanes, self.num_columns, self.lanes)

    @property
    def groups_per_part(self) -> int:
        """Groups of rows of one part; the last may have rows of zeros at its end."""
        return -(-self.num_rows // self.lanes)

    @property
    def num_groups(self) -> int:
        """Groups of rows of one of the matrices."""
        return self.groups_per_part * self.num_parts

    @property
    def size_bytes(self) -> int:
        return self.group_bytes * self.num_groups * len(self.names)

    @property
    def is_float(self) -> bool:
        return self.format_name in FLOAT_FORMATS

    @property
    def is_requantized(self) -> bool:
        return self.format_name != self.stored_format

    def requantized(self) -> Matrix:
        """In fewer bits, where that takes a good deal less and columns fill the blocks."""
        narrow = replace(self, format_name=REQUANTIZED_FORMAT)
        has_blocks = self.num_columns % (2 * BLOCK if self.is_float else BLOCK) == 0
        return narrow if has_blocks and narrow.group_bytes < WORTH_REQUANTIZING * self.group_bytes else self

    @property
    def as_stored(self) -> Matrix:
        """As it would be packed in its file's format."""
        return replace(self, format_name=self.stored_format)

    @property
    def blocks_per_row(self) -> int:
        """Packed blocks of a row; columns for float formats."""
        return self.num_columns if self.is_float else -(-self.num_columns // PACKED_FORMATS[self.format_name].columns)


@dataclass(frozen=True, kw_only=True)
class Area:
    """A buffer in memory: floats [rows][row_floats] and records where products want them."""

    buffer: Buffer
    rows: int
    is_output: bool
    terms: frozenset[int]

    @property
    def row_bytes(self) -> int:
        return 4 * (-(-self.buffer.width // ROW_ALIGNMENT) * ROW_ALIGNMENT)

    @property
    def float_bytes(self) -> int:
        return self.row_bytes * self.rows

    @property
    def num_blocks(self) -> int:
        """Blocks of 32 columns that records hold."""
        return padded_columns(self.buffer.width) // BLOCK

    def record_bytes(self, terms: int) -> int:
        return self.num_blocks * padded_tokens(self.rows) * RECORDS[terms].size_bytes

    @property
    def size_bytes(self) -> int:
        return aligned(self.float_bytes) + sum(aligned(self.record_bytes(terms)) for terms in self.terms)


def padded_tokens(count: int) -> int:
    """Tokens for which records have room: tiles of four, or a single one."""
    return 1 if count == 1 else -(-count // 4) * 4


@dataclass
class Plan:
    """The pieces of a bound program."""

    matrices: dict[tuple[str, ...], Matrix] = field(default_factory=dict)
    vectors: dict[str, int] = field(default_factory=dict)  # float32 weights: values
    turned: set[str] = field(default_factory=set)  # of them, those [rows, columns] that are kept column by column
    areas: dict[str, Area] = field(default_factory=dict)
    num_steps: int = 0
    num_tables: int = 0  # of steps: one for each run
    requantized: frozenset[str] = frozenset()  # weights that become Q4_0 where they would take more
    experts_used: int = 0  # by every token, in each layer with experts

    def matrix_of(self, name: str) -> Matrix:
        return self.matrices[(name,)]


def up_buffer(operation: GatedProject) -> Buffer:
    """Where `up` goes when it cannot stand together with the gate."""
    return Buffer(name=f"{operation.out.name}.up", width=operation.out.width)
