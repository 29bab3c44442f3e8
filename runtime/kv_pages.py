"""The pool of KV pages: which are free, and how many hold on to each.

Owns the reference counts.  Does not know what a page contains, nor tokens, nor devices.  A page with more than one
holder is read-only: whoever wants to write into it copies it first.
"""

from __future__ import annotations


class PagePool:
    """Pages 0 to num_pages - 1."""

    def __init__(self, num_pages: int) -> None:
        self._counts = [0] * num_pages
        self._free = list(range(num_pages - 1, -1, -1))

    @property
    def num_pages(self) -> int:
        """How many pages there are."""
        return len(self._counts)

    @property
    def num_free(self) -> int:
        """How many nobody holds."""
        return len(self._free)

    def allocate(self) -> int | None:
        """A page with one holder; None when all are held."""
        if not self._free:
            return None
        page = self._free.pop()
        self._counts[page] = 1
        return page

    def retain(self, page: int) -> None:
        """One holder more."""
        assert self._counts[page] > 0, f"page {page} is free and can't be shared"
        self._counts[page] += 1

    def release(self, page: int) -> None:
        """One holder less; the last one frees the page."""
        assert self._counts[page] > 0, f"page {page} is free already"
        self._counts[page] -= 1
        if self._counts[page] == 0:
            self._free.append(page)

    def holders(self, page: int) -> int:
        """How many hold the page."""
        return self._counts[page]
