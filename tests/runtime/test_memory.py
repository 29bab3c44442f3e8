"""The bill before loading, and the context size that memory allows."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.devices.binding import PAGE_SIZE, DeviceMemory, pages_for
from runtime.errors import CapacityError
from runtime.memory import DEFAULT_CONTEXT_SIZE, MIN_DEFAULT_CONTEXT_SIZE, make_bill

WEIGHTS = 100_000_000
PAGE_BYTES = 1_000_000


def price(context_size: int) -> DeviceMemory:
    return DeviceMemory(weights_bytes=WEIGHTS, kv_bytes=pages_for(context_size) * PAGE_BYTES, workspace_bytes=5_000_000)


@pytest.mark.parametrize(("trained", "chosen"), [(512, 512), (8192, 8192), (131_072, DEFAULT_CONTEXT_SIZE)])
def test_with_memory_to_spare_the_context_is_what_was_trained_up_to_a_limit(trained: int, chosen: int) -> None:
    for available in (10**12, None):
        bill = make_bill(price=price, trained_context_size=trained, asked_context_size=None, available_bytes=available)
        assert bill.context_size == chosen
        assert bill.memory == price(chosen)


@given(st.integers(0, 500_000_000))
def test_the_default_context_is_the_largest_that_fits(available: int) -> None:
    budget = available - available // 10
    try:
        bill = make_bill(price=price, trained_context_size=10_000, asked_context_size=None, available_bytes=available)
    except CapacityError as error:
        assert price(MIN_DEFAULT_CONTEXT_SIZE).total_bytes > budget
        assert (error.needed_bytes, error.available_bytes) == (price(MIN_DEFAULT_CONTEXT_SIZE).total_bytes, budget)
    else:
        assert bill.memory.total_bytes <= budget
        larger = bill.context_size + PAGE_SIZE
        assert bill.context_size == DEFAULT_CONTEXT_SIZE or price(larger).total_bytes > budget


def test_a_context_that_was_asked_for_is_never_made_smaller() -> None:
    asked = make_bill(price=price, trained_context_size=512, asked_context_size=20_000, available_bytes=10**9)
    assert asked.context_size == 20_000
    with pytest.raises(CapacityError, match="context of 20000 tokens.*weights 100.0 MB.*smaller context"):
        make_bill(price=price, trained_context_size=512, asked_context_size=20_000, available_bytes=300_000_000)


def test_on_a_large_machine_no_more_than_half_a_gigabyte_stays_aside() -> None:
    bill = make_bill(
        price=lambda size: DeviceMemory(weights_bytes=10**11, kv_bytes=size, workspace_bytes=0),
        trained_context_size=8192,
        asked_context_size=None,
        available_bytes=10**11 + 2**29 + 8192,
    )
    assert bill.context_size == 8192
