"""What is known of prefixes computed before: a radix tree from token ids to KV pages.

Owns the tree and the choice of what is forgotten first.  Does not know sequences, devices or models; K and V depend
on a token and those before it alone, so that equal prefixes have equal pages.

An edge is a page: its up to PAGE_SIZE token ids.  Only full pages have children; of siblings none begins with all of
another.  The tree holds one reference to each of its pages, and whoever uses a page uses those above it too, so that
the pages only the tree holds can always be forgotten, leaves first.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from runtime.devices.binding import PAGE_SIZE
from runtime.kv_pages import PagePool

_Block = tuple[int, ...]


@dataclass(eq=False, kw_only=True, slots=True)
class _Node:
    block: _Block
    page: int
    parent: _Node | None
    last_used: int = 0
    children: dict[_Block, _Node] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class PrefixMatch:
    """The longest known prefix: full pages, and then perhaps the first partial_tokens positions of one page more."""

    pages: tuple[int, ...]
    partial_page: int | None
    partial_tokens: int

    @property
    def num_tokens(self) -> int:
        """Positions whose K and V are known."""
        return len(self.pages) * PAGE_SIZE + self.partial_tokens


class PrefixCache:
    """Finds, keeps and forgets pages of prefixes."""

    def __init__(self, pool: PagePool) -> None:
        self._pool = pool
        self._root = _Node(block=(), page=-1, parent=None)
        self._leaves: set[_Node] = set()
        self._num_nodes = 0
        self._clock = 0

    @property
    def num_pages(self) -> int:
        """How many pages the tree holds."""
        return self._num_nodes

    def match(self, token_ids: Sequence[int], limit: int) -> PrefixMatch:
        """The longest prefix of token_ids[:limit] that is known.

        Holds nothing: who uses a page retains it before anything is forgotten.
        """
        self._clock += 1
        node = self._root
        pages: list[int] = []
        for start in range(0, limit - PAGE_SIZE + 1, PAGE_SIZE):
            child = node.children.get(tuple(token_ids[start : start + PAGE_SIZE]))
            if child is None:
                break
            node = child
            node.last_used = self._clock
            pages.append(node.page)
        start = len(pages) * PAGE_SIZE
        wanted = tuple(token_ids[start : min(start + PAGE_SIZE, limit)])
        best, length = _closest(node, wanted)
        if best is None:
            return PrefixMatch(pages=tuple(pages), partial_page=None, partial_tokens=0)
        best.last_used = self._clock
        return PrefixMatch(pages=tuple(pages), partial_page=best.page, partial_tokens=length)

    def insert(self, token_ids: Sequence[int], pages: Sequence[int]) -> dict[int, int]:
        """Remembers that these pages hold these tokens.

        The last page may be partly filled.  Returns {index in pages: page} for full pages that the tree had already:
        the caller should use those and release its own.
        """
        self._clock += 1
        node = self._root
        known: dict[int, int] = {}
        for index, page in enumerate(pages):
            block = tuple(token_ids[index * PAGE_SIZE : (index + 1) * PAGE_SIZE])
            if not block:
                break
            if len(block) < PAGE_SIZE:
                self._insert_partial(node, block, page)
                break
            child = node.children.get(block)
            if child is None:
                child = self._add(node, block, page)
            elif child.page != page:
                known[index] = child.page
            child.last_used = self._clock
            node = child
        return known

    def evict(self) -> bool:
        """Forgets the page that was not used for longest, of those only the tree holds; False when there is none."""
        unused = [leaf for leaf in self._leaves if self._pool.holders(leaf.page) == 1]
        if not unused:
            return False
        self._remove(min(unused, key=_last_used))
        return True

    def surrender(self, page: int) -> bool:
        """Hands a leaf's page and its reference to the caller; False if others use it, or it has children."""
        for leaf in self._leaves:
            if leaf.page == page and self._pool.holders(page) == 1:
                self._pool.retain(page)
                self._remove(leaf)
                return True
        return False

    def num_evictable(self) -> int:
        """How many pages only the tree holds."""
        return sum(self._pool.holders(node.page) == 1 for node in self._nodes())

    def clear(self) -> None:
        """Forgets every page; those in use stay with their users."""
        for node in list(self._nodes()):
            self._pool.release(node.page)
        self._root.children.clear()
        self._leaves.clear()
        self._num_nodes = 0

    def prefixes(self) -> Iterator[tuple[_Block, tuple[int, ...]]]:
        """(token ids, pages) of every leaf, for tests and for a look inside."""
        for leaf in self._leaves:
            path: list[_Node] = []
            node = leaf
            while node.parent is not None:
                path.append(node)
                node = node.parent
            path.reverse()
            yield tuple(token_id for step in path for token_id in step.block), tuple(step.page for step in path)

    def _insert_partial(self, parent: _Node, block: _Block, page: int) -> None:
        closest, length = _closest(parent, block)
        if closest is not None and length == len(block):
            closest.last_used = self._clock  # something known begins with all of it
            return
        self._add(parent, block, page).last_used = self._clock

    def _add(self, parent: _Node, block: _Block, page: int) -> _Node:
        for sibling in list(parent.children.values()):
            if len(sibling.block) < len(block) and sibling.block == block[: len(sibling.block)]:
                self._remove(sibling)
        node = _Node(block=block, page=page, parent=parent)
        parent.children[block] = node
        self._pool.retain(page)
        self._leaves.discard(parent)
        self._leaves.add(node)
        self._num_nodes += 1
        return node

    def _remove(self, node: _Node) -> None:
        assert node.parent is not None and not node.children
        del node.parent.children[node.block]
        self._leaves.discard(node)
        if not node.parent.children and node.parent is not self._root:
            self._leaves.add(node.parent)
        self._num_nodes -= 1
        self._pool.release(node.page)

    def _nodes(self) -> Iterator[_Node]:
        pending = list(self._root.children.values())
        while pending:
            node = pending.pop()
            yield node
            pending.extend(node.children.values())


def _last_used(node: _Node) -> int:
    return node.last_used


def _closest(parent: _Node, wanted: _Block) -> tuple[_Node | None, int]:
    """The child that shares the longest beginning with `wanted`, and that length; None when none shares a token."""
    best: _Node | None = None
    best_length = 0
    for block, child in parent.children.items():
        length = _shared(block, wanted)
        if length > best_length:
            best, best_length = child, length
    return best, best_length


def _shared(left: _Block, right: _Block) -> int:
    length = 0
    for one, other in zip(left, right, strict=False):
        if one != other:
            break
        length += 1
    return length
