"""How K and V of one layer lie in memory, page by page.

Owns the layout that rotate.py writes and attention.py reads, and its size.  Does not know sequences: a page is a
number.

A layer's cache is [page][KV head][K block, V block].  A page holds 64 positions.
    K block   float16 [4 groups of 16 positions][head_dim][16 positions]: a vector is one element of 16 keys
    V block   float16 [64 positions][head_dim]: a vector is 16 elements of one value
"""

from __future__ import annotations

PAGE_SIZE = 64  # positions
SPAN = 128  # positions whose partial attention is one result; a whole number of pages
GROUP = 16  # positions side by side in a vector of K


def head_bytes(head_dim: int) -> int:
    """Bytes of one KV head of one page."""
    return 2 * 2 * PAGE_SIZE * head_dim


def page_bytes(num_kv_heads: int, head_dim: int) -> int:
    """Bytes of one page of one layer."""
    return num_kv_heads * head_bytes(head_dim)
