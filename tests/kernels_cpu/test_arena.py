"""Arenas: aligned pieces of zeroed memory, and what happens when there is none."""

from __future__ import annotations

import numpy as np
import pytest

from kernels_cpu.arena import ALIGNMENT, Arena, OutOfMemoryError, aligned, huge_pages_bytes, view


def test_pieces_are_aligned_zeroed_and_apart() -> None:
    sizes = (1, 64, 65, 0, 4096)
    arena = Arena(sum(map(aligned, sizes)), "the pieces")
    addresses = [arena.take(size) for size in sizes]
    assert all(address % ALIGNMENT == 0 for address in addresses)
    for number, (address, size) in enumerate(zip(addresses, sizes, strict=True)):
        assert (view(address, (size,), np.uint8) == 0).all()
        view(address, (size,), np.uint8)[:] = number
    for number, (address, size) in enumerate(zip(addresses, sizes, strict=True)):
        assert (view(address, (size,), np.uint8) == number).all()
    assert arena.used_bytes == arena.size_bytes
    arena.close()


def test_taking_too_much_is_our_own_bug() -> None:
    arena = Arena(128, "the pieces")
    arena.take(64)
    with pytest.raises(AssertionError, match="arena of 128 bytes is full: 64 used, 65 wanted"):
        arena.take(65)
    arena.close()


def test_an_empty_arena_can_be_closed() -> None:
    arena = Arena(0, "nothing")
    assert arena.take(0) % ALIGNMENT == 0
    arena.close()


def test_what_the_system_does_not_give_is_one_sentence() -> None:
    with pytest.raises(OutOfMemoryError) as caught:
        Arena(1 << 62, "the weights")
    text = str(caught.value)
    assert text.startswith("the weights need 4,611,686,018,427 MB, which the system does not give (")
    assert text.endswith("close other programs, or choose a smaller context (-c) or model")


def test_a_view_is_an_array_over_the_memory() -> None:
    arena = Arena(256, "numbers")
    address = arena.take(256)
    view(address, (4, 8), np.float32)[2, 3] = 1.5
    assert view(address + 4 * (2 * 8 + 3), (1,), np.float32)[0] == 1.5
    arena.close()


def test_huge_pages_are_counted_where_the_system_tells() -> None:
    counted = huge_pages_bytes()
    assert counted is None or counted % 2**10 == 0
