"""Keys and values in pages, in NumPy: written and read by the description of kv_layout, attended to by the kernels.

Owns the layout's meaning and the calls of the attention kernels.  Does not know what attention should give.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from kernels import Guarded, call, floats
from kv_types import Rounded, item_type, num_scales, round_to, vector_bytes

from kernels_cpu.kv_layout import PAGE_SIZE, SPAN

Array = np.ndarray[Any, np.dtype[Any]]
MAX_TILE_ROWS = 64
NOT_A_NUMBER = 0x7E00  # as a float16


@dataclass(frozen=True, kw_only=True)
class Heads:
    """KV heads of head_dim values, each read by per_kv query heads."""

    head_dim: int
    num_kv: int = 1
    per_kv: int = 1

    @property
    def num_queries(self) -> int:
        return self.num_kv * self.per_kv


@dataclass(frozen=True, kw_only=True)
class Pages:
    """A layer's cache, and a page table for each slot: int32 [slots, entries], -1 where there is no page.

    kinds: the types of K and V.
    """

    heads: Heads
    kinds: tuple[str, str]
    memory: Guarded
    tables: Array

    @classmethod
    def new(
        cls, heads: Heads, *pages_of_slots: int, seed: int | None = None, kinds: tuple[str, str] = ("f16", "f16")
    ) -> Pages:
        """Pages for each slot, in order or, with a seed, anywhere; every half in them is NaN."""
        total = sum(pages_of_slots)
        numbers = np.arange(total + 1) if seed is None else np.random.default_rng(seed).permutation(total + 1)
        tables = np.full((len(pages_of_slots), max(pages_of_slots)), -1, np.int32)
        first = 0
        for slot, count in enumerate(pages_of_slots):
            tables[slot, :count] = numbers[first : first + count]
            first += count
        head_bytes = PAGE_SIZE * sum(vector_bytes(kind, heads.head_dim) for kind in kinds)
        memory = Guarded((total + 1) * heads.num_kv * head_bytes)
        memory.view((-1,), np.uint16)[:] = NOT_A_NUMBER
        return cls(heads=heads, kinds=kinds, memory=memory, tables=tables)

    @property
    def head_bytes(self) -> int:
        """Of K and V of one head of one page."""
        return PAGE_SIZE * sum(vector_bytes(kind, self.heads.head_dim) for kind in self.kinds)

    def _key(self, slot: int, position: int) -> tuple[Array, Array]:
        """Scales [KV head, n] and items [KV head, n] of a key, as views."""
        group, lane = divmod(position % PAGE_SIZE, 16)
        kind, dim = self.kinds[0], self.heads.head_dim
        size = 16 * vector_bytes(kind, dim)
        block = self._page(slot, position)[:, group * size : (group + 1) * size]
        cut = 2 * 16 * num_scales(kind, dim)
        scales = block[:, :cut].view(np.float16).reshape(len(block), -1, 16)
        items = block[:, cut:].view(item_type(kind)).reshape(len(block), -1, 16)
        return scales[:, :, lane], items[:, :, lane]

    def _value(self, slot: int, position: int) -> tuple[Array, Array]:
        """The same of a value."""
        kind, dim = self.kinds[1], self.heads.head_dim
        size = vector_bytes(kind, dim)
        start = PAGE_SIZE * vector_bytes(self.kinds[0], dim) + position % PAGE_SIZE * size
        vector = self._page(slot, position)[:, start : start + size]
        cut = 2 * num_scales(kind, dim)
        return vector[:, :cut].view(np.float16), vector[:, cut:].view(item_type(kind))

    def _page(self, slot: int, position: int) -> Array:
        """uint8 [KV head, head bytes]."""
        page = self.tables[slot, position // PAGE_SIZE]
        return self.memory.bytes.reshape(-1, self.heads.num_kv, self.head_bytes)[page]

    def write(self, k: Array, v: Array, *, slot: int = 0) -> None:
        """float32 K and V [tokens, KV heads, head_dim] at positions from 0, rounded to the types."""
        for kind, vectors, place in zip(self.kinds, (k, v), (self._key, self._value), strict=True):
            rounded = round_to(kind, vectors)
            for token in range(len(vectors)):
                scales, items = place(slot, token)
                scales[:], items[:] = rounded.scales[token], rounded.items[token]

    def read(self, count: int, *, slot: int = 0) -> tuple[Array, Array]:
        """float32 K and V [count, KV heads, head_dim] of the first positions, as their types hold them."""
        found = []
        for kind, place in zip(self.kinds, (self._key, self._value), strict=True):
            vectors = [Rounded(name=kind, scales=s, items=i) for s, i in (place(slot, n) for n in range(count))]
            found.append(np.stack([vector.values() for vector in vectors]))
        return found[0], found[1]

    def operands(self) -> dict[str, Array | int]:
        """What rotate and attend both want."""
        heads = self.heads
        return {
            "cache": self.memory.bytes,
            "page_bytes": heads.num_kv * self.head_bytes,
            "head_bytes": self.head_bytes,
            "page_tables": self.tables,
            "table_stride": self.tables.strides[0],
            "num_kv_heads": heads.num_kv,
            "heads_per_kv": heads.per_kv,
            "head_dim": heads.head_dim,
        }


@dataclass(frozen=True, kw_only=True)
class Rotation:
    """What the rotating kernel does beside storing; angles: float32 [position, (cosines, sines), dimensions / 2]."""

    angles: Array | None = None
    is_neighbours: bool = False
    q_norm: Array | None = None
    k_norm: Array | None = None
    epsilon: float = 0.0
    norms_after: bool = False
    temperature: float = 0.0
    temperature_length: int = 0


def store(
    level: str, pages: Pages, q: Array, k: Array, v: Array,
    positions: Array | None = None, slots: Array | None = None, rotation: Rotation = Rotation(),
) -> tuple[Array, Array]:  # fmt: skip
    """Runs the rotating kernel; q [tokens, query heads, head_dim], k and v [tokens, KV heads, head_dim].

    Returns q and k as it leaves them.
    """
    count, heads = len(k), pages.heads
    memories = []
    arrays: dict[str, Array] = {}
    for name, values in (("q", q), ("k", k), ("v", v)):
        memory, array = floats((count, values[0].size + 16))
        array[:, :-16] = values.reshape(count, -1)
        memories.append(memory)
        arrays[name] = array
    positions = np.arange(count) if positions is None else positions
    slots = np.zeros(count) if slots is None else slots
    angles = rotation.angles
    call(
        level, f"rotate-{'-'.join(pages.kinds)}", count * heads.num_kv,
        **arrays, **{f"{name}_stride": array.strides[0] for name, array in arrays.items()},
        q_norm=0 if rotation.q_norm is None else rotation.q_norm,
        k_norm=0 if rotation.k_norm is None else rotation.k_norm,
        epsilon=rotation.epsilon, angles=0 if angles is None else angles,
        dimensions=0 if angles is None else angles.shape[1] * angles.shape[2],
        is_neighbours=int(rotation.is_neighbours), norms_after=int(rotation.norms_after),
        temperature=rotation.temperature, temperature_length=rotation.temperature_length,
        positions=positions.astype(np.int32), slots=slots.astype(np.int32), **pages.operands(),
    )  # fmt: skip
    for memory in (*memories, pages.memory):
        memory.check()
    return arrays["q"][:, :-16].reshape(q.shape), arrays["k"][:, :-16].reshape(k.shape)


def cut_tiles(slots: Array, per_kv: int) -> Array:
    """int32 [tile, (first token, tokens, slot)]: runs of tokens of one slot, at most 64 query rows each."""
    most = max(1, MAX_TILE_ROWS // per_kv)
    edges = [0, *(np.flatnonzero(np.diff(slots)) + 1).tolist(), len(slots)]
    tiles = [
        (start, min(most, last - start), slots[start])
        for first, last in zip(edges, edges[1:], strict=False)
        for start in range(first, last, most)
    ]
    return np.array(tiles, np.int32)


def attend(
    level: str, pages: Pages, q: Array, positions: Array,
    *, scale: float, slots: Array | None = None, window: int = 0, is_split: bool = False,
    soft_cap: float = 0.0, sinks: Array | None = None, order: Sequence[int] | None = None,
) -> Array:  # fmt: skip
    """Attention of q [tokens, query heads, head_dim] at `positions`; is_split: each span is a chunk of its own."""
    count, heads = len(q), pages.heads
    slots = np.zeros(count, np.int32) if slots is None else slots
    memory, out = floats((count, q[0].size + 16))
    wide = np.full((count, q[0].size + 16), np.nan, np.float32)
    wide[:, :-16] = q.reshape(count, -1)
    tiles = cut_tiles(slots, heads.per_kv)
    spans = -(-(int(positions.max()) + 1) // SPAN) if is_split else 0
    partial_memory, partial = floats((count * heads.num_queries * max(spans, 1), heads.head_dim + 16))
    values: dict[str, Array | int | float] = {
        "q": wide, "q_stride": wide.strides[0], "out": out, "out_stride": out.strides[0], "scale": float(scale),
        "window": window, "tiles": tiles, "positions": positions.astype(np.int32), "spans": np.array([spans]),
        "partial": partial, "soft_cap": float(soft_cap), "sinks": 0 if sinks is None else sinks, **pages.operands(),
    }  # fmt: skip
    chunks = len(tiles) * heads.num_kv * max(spans, 1)
    call(level, f"attend-{'-'.join(pages.kinds)}", range(chunks) if order is None else order, **values)
    if is_split:
        call(level, "combine", count * heads.num_kv, **values)
    for part in (memory, partial_memory, pages.memory):
        part.check()
    assert np.isnan(out[:, -16:]).all(), "written past the last head"
    return out[:, :-16].reshape(q.shape)
