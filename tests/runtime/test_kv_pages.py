"""The page pool: reference counts under any sequence of operations."""

from __future__ import annotations

from collections import Counter

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from runtime.kv_pages import PagePool

NUM_PAGES = 5


class PoolMachine(RuleBasedStateMachine):
    """Compares the pool with a counter of holders."""

    def __init__(self) -> None:
        super().__init__()
        self.pool = PagePool(NUM_PAGES)
        self.holders: Counter[int] = Counter()

    @rule()
    def allocate(self) -> None:
        page = self.pool.allocate()
        if page is None:
            assert len(self.holders) == NUM_PAGES
        else:
            assert page not in self.holders
            self.holders[page] = 1

    @precondition(lambda self: self.holders)
    @rule(data=st.data())
    def retain(self, data: st.DataObject) -> None:
        page = data.draw(st.sampled_from(sorted(self.holders)))
        self.pool.retain(page)
        self.holders[page] += 1

    @precondition(lambda self: self.holders)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        page = data.draw(st.sampled_from(sorted(self.holders)))
        self.pool.release(page)
        self.holders[page] -= 1
        self.holders += Counter()  # drops what nobody holds

    @invariant()
    def counts_agree(self) -> None:
        assert self.pool.num_free == NUM_PAGES - len(self.holders)
        for page in range(NUM_PAGES):
            assert self.pool.holders(page) == self.holders[page]


TestPool = PoolMachine.TestCase
TestPool.settings = settings(max_examples=40, stateful_step_count=20)
