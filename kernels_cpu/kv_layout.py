"""How K and V of one layer lie in memory, page by page, for every cache type.

Owns the layout that rotate.py writes and attention.py reads, and its size.  Does not know sequences: a page is a
number.  K and V have types of their own.

A layer's cache is [page][KV head][K block, V block].  A page holds 64 positions.
    K block   4 groups of 16 positions side by side: a vector is one element of 16 keys
        f16         float16 [head_dim][16 positions]
        q8_0        float16 scales [head_dim / 32][16 positions], then int8 [head_dim][16 positions]
        q4_0        the same scales, then bytes [head_dim / 32][16][16 positions]: element i of 32 in the low four bits,
                    element i + 16 in the high ones; a value is scale * (bits - 8)
    V block   64 positions: a vector is 16 elements of one value
        f16         float16 [head_dim]
        q8_0, q4_0  float16 scales [head_dim / 32], then int8 [head_dim] or bytes [head_dim / 32][16] as above
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

PAGE_SIZE = 64  # positions
SPAN = 128  # positions whose partial attention is one result; a whole number of pages
GROUP = 16  # positions side by side in a vector of K
SCALE_BLOCK = 32  # elements that share a scale


@dataclass(frozen=True, kw_only=True)
class CacheType:
    """bits: of an element.  is_rotated: keys and queries pass a Hadamard transform first, which spreads outliers."""

    name: str
    bits: int
    is_rotated: bool = False

    @property
    def has_scales(self) -> bool:
        return self.bits < 16

    def vector_bytes(self, head_dim: int) -> int:
        """Bytes of one key or value of head_dim elements."""
        scales = 2 * (head_dim // SCALE_BLOCK) if self.has_scales else 0
        return scales + head_dim * self.bits // 8


CACHE_TYPES: Mapping[str, CacheType] = {
    kind.name: kind
    for kind in (
        CacheType(name="f16", bits=16),
        CacheType(name="q8_0", bits=8),
        CacheType(name="q4_0", bits=4, is_rotated=True),
    )
}


@dataclass(frozen=True, kw_only=True)
class CacheTypes:
    """What K and V are kept as."""

    k: CacheType
    v: CacheType

    @staticmethod
    def named(k: str, v: str) -> CacheTypes:
        """KeyError for a name that is not in CACHE_TYPES."""
        return CacheTypes(k=CACHE_TYPES[k], v=CACHE_TYPES[v])

    @property
    def has_scales(self) -> bool:
        return self.k.has_scales or self.v.has_scales

    def head_bytes(self, head_dim: int) -> int:
        """Bytes of one KV head of one page."""
        return PAGE_SIZE * (self.k.vector_bytes(head_dim) + self.v.vector_bytes(head_dim))

    def page_bytes(self, num_kv_heads: int, head_dim: int) -> int:
        """Bytes of one page of one layer."""
        return num_kv_heads * self.head_bytes(head_dim)
