"""How fast a card runs these kernels, next to what its memory gives: the numbers behind `make bench-gpu`.

Owns what is launched and timed.  Does not know models, files or how results are shown.

Weights are taken in turn from more memory than a card's cache holds, as a model's layers are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np

from kernels_gpu.attention_steps import ATTENTION_THREADS, HEADS_OF_BLOCK, PROMPT_ROWS
from kernels_gpu.device import Device, Kernel, Region, Stream
from kernels_gpu.launches import Argument, scalars
from kernels_gpu.layout import UNIT, defines_for, matrix_layout
from kernels_gpu.matrices import Matrix
from kernels_gpu.modules import SOURCES
from kernels_gpu.plan import PAGE_SIZE, PARTIAL_HEADER, SPAN, attention_defines, page_bytes
from kernels_gpu.precision import record_bytes
from kernels_gpu.product_steps import NO_PART, PREFILL_ROWS, PREFILL_TOKENS, PRODUCT_THREADS, STORE

STEP_COUNTS = (1, 2, 4, 8)
TILES_OF_RATE, OPERATIONS_OF_TILE = 8, 2 * 16 * 8 * 32  # in int8_rate.cu


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """Of what is measured.  rows, columns: of a matrix; tokens: of a prompt; positions: in the cache.

    spread_bytes: of weights that are taken in turn; copied_bytes: of a copy; blocks, rounds: of the tensor cores' own
    rate; repeats: of everything.
    """

    rows: int = 14336
    columns: int = 4096
    tokens: int = 512
    positions: int = 8192
    num_heads: int = 32
    num_kv_heads: int = 8
    head_dim: int = 128
    spread_bytes: int = 512 << 20
    copied_bytes: int = 256 << 20
    blocks: int = 4096
    rounds: int = 256
    repeats: int = 20


@dataclass(frozen=True, kw_only=True)
class Measured:
    """elapsed_ms: the median of one launch.  moved_bytes: what it must read and write; operations: 2 a multiply-add."""

    name: str
    elapsed_ms: float
    moved_bytes: int
    operations: int

    @property
    def bytes_per_s(self) -> float:
        return self.moved_bytes / self.elapsed_ms * 1e3

    @property
    def operations_per_s(self) -> float:
        return self.operations / self.elapsed_ms * 1e3


class CardMeter:
    """Measures one card; what it allocates is given back by close()."""

    def __init__(self, device: Device, sizes: Sizes) -> None:
        self._device, self._sizes = device, sizes
        device.use()
        self._stream: Stream = device.new_stream()
        self._regions: list[Region] = []

    def copy(self) -> Measured:
        """Memory to memory on the card: what is read and what is written both count."""
        size = self._sizes.copied_bytes
        source, target = self._region(size), self._region(size)
        elapsed_ms = self._timed(lambda idx: self._device.copy(target, source, self._stream))
        self.close()
        return Measured(name="copy", elapsed_ms=elapsed_ms, moved_bytes=2 * size, operations=0)

    def int8_rate(self) -> Measured:
        """The tensor cores without loads and scales."""
        sizes, out = self._sizes, self._region(4 * PRODUCT_THREADS)
        kernel = self._device.load(SOURCES / "int8_rate.cu", (), ["int8_rate"])["int8_rate"]
        elapsed_ms = self._launches(kernel, (sizes.blocks,), PRODUCT_THREADS, [out], (), before=(sizes.rounds,))
        self.close()
        products = sizes.blocks * (PRODUCT_THREADS // 32) * sizes.rounds * TILES_OF_RATE
        return Measured(
            name="int8 products", elapsed_ms=elapsed_ms, moved_bytes=0, operations=products * OPERATIONS_OF_TILE
        )

    def products(self, format_name: str, terms: int) -> list[Measured]:
        """Decode with 1, 2, 4 and 8 tokens, and a prompt on the tensor cores."""
        sizes = self._sizes
        rows, columns = sizes.rows, sizes.columns
        units, matrix_bytes = columns // UNIT, matrix_layout(format_name, rows, columns).size_bytes
        matrix = Matrix(name="", format_name=format_name, num_rows=rows, num_columns=columns)
        copies = [self._region(matrix_bytes) for _ in range(max(1, sizes.spread_bytes // matrix_bytes))]
        capacity = max(sizes.tokens, max(STEP_COUNTS))
        records = self._region(record_bytes(capacity, columns, terms))
        out = self._region(4 * capacity * rows)
        defines = defines_for(format_name, terms)
        names = [f"product_{count}" for count in STEP_COUNTS]
        kernels = self._device.load(SOURCES / "product.cu", defines, names)
        prompt = self._device.load(SOURCES / "prefill.cu", defines, ["product_prefill"])["product_prefill"]
        found = []
        for count, name in zip(STEP_COUNTS, names, strict=True):
            before = (units, records, capacity, 0, count, matrix.shift, 1.0, STORE)
            after = (rows, None, out, rows, *NO_PART, *NO_PART)
            elapsed_ms = self._launches(kernels[name], (matrix.blocks,), PRODUCT_THREADS, copies, after, before=before)
            moved_bytes = matrix_bytes + record_bytes(count, columns, terms) + 4 * count * rows
            found.append(self._measured(f"{format_name} {name}", elapsed_ms, moved_bytes, count * terms))
        grid = (-(-rows // PREFILL_ROWS), -(-sizes.tokens // PREFILL_TOKENS))
        arguments = (rows, units, records, capacity, sizes.tokens, None, 1.0, STORE, out, rows)
        elapsed_ms = self._launches(prompt, grid, PRODUCT_THREADS, copies, arguments)
        moved_bytes = matrix_bytes + record_bytes(sizes.tokens, columns, terms) + 4 * sizes.tokens * rows
        found.append(self._measured(f"{format_name} prompt", elapsed_ms, moved_bytes, sizes.tokens * terms))
        self.close()
        return found

    def attention(self, cache_types: tuple[str, str]) -> list[Measured]:
        """One token that sees all positions, and a prompt's tokens that are the last of them."""
        sizes = self._sizes
        heads, kv_heads, head_dim = sizes.num_heads, sizes.num_kv_heads, sizes.head_dim
        num_pages, max_spans = -(-sizes.positions // PAGE_SIZE), -(-sizes.positions // SPAN)
        cache_bytes = num_pages * page_bytes(kv_heads, head_dim, cache_types)
        caches = [self._region(cache_bytes) for _ in range(max(1, sizes.spread_bytes // cache_bytes))]
        width, tokens = heads * head_dim, min(sizes.tokens, sizes.positions)
        q, out = self._region(4 * tokens * width), self._region(4 * tokens * width)
        partial = self._region(4 * heads * max_spans * (head_dim + PARTIAL_HEADER))
        positions = self._put(np.arange(sizes.positions - tokens, sizes.positions, dtype=np.int32))
        slots, tables = self._put(np.zeros(tokens, np.int32)), self._put(np.arange(num_pages, dtype=np.int32))
        defines, batches = attention_defines(cache_types), -(-heads // kv_heads // HEADS_OF_BLOCK)
        loaded = self._device.load(SOURCES / "attention.cu", defines, ["attend"])
        loaded |= self._device.load(SOURCES / "attention_prompt.cu", defines, ["attend_prompt"])
        last = positions.part(4 * (tokens - 1), 4)
        shape = (heads, kv_heads, head_dim, head_dim**-0.5, 0)
        attend_ms = self._launches(
            loaded["attend"], (max_spans, kv_heads * batches, 1), ATTENTION_THREADS, caches,
            (last, slots, tables, num_pages, *shape, 0.0, partial, max_spans), before=(q, width),
            shared_bytes=4 * (HEADS_OF_BLOCK * head_dim + 8 * ATTENTION_THREADS),
        )  # fmt: skip
        rows = PROMPT_ROWS // min(heads // kv_heads, HEADS_OF_BLOCK)
        prompt_ms = self._launches(
            loaded["attend_prompt"], (-(-tokens // rows), kv_heads * batches), ATTENTION_THREADS, caches,
            (positions, slots, tables, num_pages, tokens, *shape, 0.0, None, out, width), before=(q, width),
        )  # fmt: skip
        pairs = tokens * sizes.positions - tokens * (tokens - 1) // 2
        named = "/".join(cache_types)
        self.close()
        return [
            Measured(
                name=f"attention {named}, 1 token", elapsed_ms=attend_ms, moved_bytes=cache_bytes,
                operations=4 * width * sizes.positions,
            ),
            Measured(
                name=f"attention {named}, {tokens} tokens", elapsed_ms=prompt_ms, moved_bytes=cache_bytes,
                operations=4 * width * pairs,
            ),
        ]  # fmt: skip

    def _measured(self, name: str, elapsed_ms: float, moved_bytes: int, num_rows: int) -> Measured:
        operations = 2 * num_rows * self._sizes.rows * self._sizes.columns
        return Measured(name=name, elapsed_ms=elapsed_ms, moved_bytes=moved_bytes, operations=operations)

    def _launches(
        self,
        kernel: Kernel,
        grid: tuple[int, ...],
        block: int,
        turns: Sequence[Region],
        arguments: Sequence[Argument],
        *,
        before: Sequence[Argument] = (),
        shared_bytes: int = 0,
    ) -> float:
        """Milliseconds of a launch whose argument after `before` is one region after the other."""
        rest, first = scalars(arguments), scalars(before)

        def launch(idx: int) -> None:
            self._device.launch(
                kernel,
                grid=grid,
                block=(block,),
                arguments=[*first, turns[idx % len(turns)].pointer, *rest],
                stream=self._stream,
                shared_bytes=shared_bytes,
            )

        return self._timed(launch)

    def _timed(self, work: Callable[[int], None]) -> float:
        """The median; the first time is not counted."""
        work(0)
        self._stream.wait()
        spans = []
        for idx in range(1, self._sizes.repeats + 1):
            start = self._stream.record()
            work(idx)
            spans.append((start, self._stream.record()))
        self._stream.wait()
        return median(end.elapsed_ms(start) for start, end in spans)

    def _region(self, size_bytes: int) -> Region:
        """Zeros."""
        region = self._device.allocate(size_bytes, "a measurement")
        self._regions.append(region)
        self._device.clear(region, self._stream)
        return region

    def _put(self, values: np.ndarray) -> Region:
        region = self._region(values.nbytes)
        self._device.upload(region, values, self._stream)
        self._stream.wait()
        return region

    def close(self) -> None:
        """Gives the memory back.  May be called twice."""
        for region in self._regions:
            self._device.free(region)
        self._regions = []
