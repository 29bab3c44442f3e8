"""The prefix cache: against a list of everything it was told, under any sequence of operations."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from runtime.devices.binding import PAGE_SIZE, pages_for
from runtime.kv_pages import PagePool
from runtime.prefix_cache import PrefixCache

# Prompts are made of whole blocks and a rest, so that short descriptions give prefixes that branch at page borders,
# inside pages, and at the very beginning.
blocks = st.lists(st.sampled_from([1, 2]), max_size=3)
rests = st.tuples(st.integers(0, 2), st.integers(0, PAGE_SIZE - 1))


def make_prompt(block_kinds: list[int], rest: tuple[int, int]) -> list[int]:
    ids = [kind * 100 + offset for kind in block_kinds for offset in range(PAGE_SIZE)]
    kind, length = rest
    common = [500 + offset for offset in range(length // 2)]
    return ids + common + [kind * 1000 + offset for offset in range(length - len(common))]


prompts = st.builds(make_prompt, blocks, rests).filter(bool)


def store(
    pool: PagePool, cache: PrefixCache, prompt: list[int], written: dict[int, list[int]] | None = None
) -> list[int]:
    """Tells the cache of a prompt on pages of its own, and lets go of them as the scheduler does.

    written: the device's memory, the ids that were written into each page last.
    """
    pages: list[int] = []
    for _ in range(pages_for(len(prompt))):
        page = pool.allocate()
        while page is None:
            assert cache.evict()
            page = pool.allocate()
        if written is not None:
            written[page] = prompt[len(pages) * PAGE_SIZE : (len(pages) + 1) * PAGE_SIZE]
        pages.append(page)
    for index, known in cache.insert(prompt, pages).items():
        pool.retain(known)
        pool.release(pages[index])
        pages[index] = known
    for page in pages:
        pool.release(page)
    return pages


def shared(left: list[int], right: list[int]) -> int:
    length = 0
    while length < min(len(left), len(right)) and left[length] == right[length]:
        length += 1
    return length


def test_an_equal_prompt_is_known_but_for_its_last_token() -> None:
    pool = PagePool(8)
    cache = PrefixCache(pool)
    prompt = list(range(150))
    pages = store(pool, cache, prompt)
    match = cache.match(prompt, 149)
    assert match.pages == tuple(pages[:2])
    assert (match.partial_page, match.partial_tokens) == (pages[2], 21)
    assert match.num_tokens == 149


def test_a_full_page_serves_a_prompt_that_leaves_it_half_way() -> None:
    pool = PagePool(8)
    cache = PrefixCache(pool)
    pages = store(pool, cache, list(range(100)))
    match = cache.match([*range(30), 999, *range(31, 90)], 90)
    assert (match.pages, match.partial_page, match.partial_tokens) == ((), pages[0], 30)


def test_a_longer_rest_takes_the_place_of_a_shorter_one() -> None:
    pool = PagePool(8)
    cache = PrefixCache(pool)
    store(pool, cache, [1, 2, 3])
    store(pool, cache, [1, 2, 3, 4])
    store(pool, cache, [1, 2])
    assert [ids for ids, _ in cache.prefixes()] == [(1, 2, 3, 4)]
    assert pool.num_free == 7


def test_equal_pages_are_kept_once() -> None:
    pool = PagePool(8)
    cache = PrefixCache(pool)
    first = store(pool, cache, list(range(128)))
    second = store(pool, cache, [*range(128), 7])
    assert second[:2] == first
    assert cache.num_pages == 3


def test_what_was_used_last_is_forgotten_last() -> None:
    pool = PagePool(3)
    cache = PrefixCache(pool)
    for start in (100, 200, 300):
        store(pool, cache, [start, start + 1])
    cache.match([100, 101], 2)
    assert cache.evict()
    assert sorted(ids[0] for ids, _ in cache.prefixes()) == [100, 300]


def test_pages_in_use_are_not_forgotten() -> None:
    pool = PagePool(2)
    cache = PrefixCache(pool)
    (page,) = store(pool, cache, [1, 2])
    pool.retain(page)
    assert cache.num_evictable() == 0
    assert not cache.evict()
    assert not cache.surrender(page)
    pool.release(page)
    assert cache.surrender(page)
    assert pool.holders(page) == 1
    assert cache.num_pages == 0


@given(st.lists(prompts, max_size=6), prompts)
def test_the_longest_known_prefix_is_found(stored: list[list[int]], wanted: list[int]) -> None:
    pool = PagePool(100)
    cache = PrefixCache(pool)
    for prompt in stored:
        store(pool, cache, prompt)
    match = cache.match(wanted, len(wanted))
    assert match.num_tokens == max((shared(wanted, prompt) for prompt in stored), default=0)


class CacheMachine(RuleBasedStateMachine):
    """Remembers what was written into each page and who uses it."""

    @initialize(num_pages=st.integers(5, 12))
    def begin(self, num_pages: int) -> None:
        self.pool = PagePool(num_pages)
        self.cache = PrefixCache(self.pool)
        self.written: dict[int, list[int]] = {}
        self.users: list[list[int]] = []

    @rule(prompt=prompts)
    def tell(self, prompt: list[int]) -> None:
        if pages_for(len(prompt)) > self.pool.num_free + self.cache.num_evictable():
            return
        store(self.pool, self.cache, prompt, self.written)

    @rule(prompt=prompts)
    def use(self, prompt: list[int]) -> None:
        match = self.cache.match(prompt, len(prompt) - 1)
        assert match.num_tokens < len(prompt)
        for index, page in enumerate(match.pages):
            assert self.written[page] == prompt[index * PAGE_SIZE : (index + 1) * PAGE_SIZE]
            self.pool.retain(page)
        if match.partial_page is not None:
            start = len(match.pages) * PAGE_SIZE
            wanted = prompt[start : start + match.partial_tokens]
            assert self.written[match.partial_page][: match.partial_tokens] == wanted
        self.users.append(list(match.pages))

    @precondition(lambda self: bool(getattr(self, "users", [])))
    @rule(data=st.data())
    def stop_using(self, data: st.DataObject) -> None:
        for page in self.users.pop(data.draw(st.integers(0, len(self.users) - 1))):
            self.pool.release(page)

    @rule()
    def forget(self) -> None:
        before = self.cache.num_evictable()
        assert self.cache.evict() == (before > 0)
        assert self.cache.num_evictable() == max(0, before - 1)

    @rule()
    def forget_all(self) -> None:
        self.cache.clear()

    @invariant()
    def counts_are_right(self) -> None:
        if not hasattr(self, "pool"):
            return
        held = {page for _, path in self.cache.prefixes() for page in path}
        assert len(held) == self.cache.num_pages
        for page in range(self.pool.num_pages):
            uses = sum(pages.count(page) for pages in self.users)
            assert self.pool.holders(page) == uses + (page in held)


TestCache = CacheMachine.TestCase
TestCache.settings = settings(max_examples=60, stateful_step_count=25)
