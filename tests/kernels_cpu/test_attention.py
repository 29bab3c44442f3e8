"""Attention over pages: right against float64, the same bits however it is cut, and blind to what it may not see."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import oracle
import pytest
from attention_pages import Heads, Pages, attend
from kernels import LEVELS, SMALL_CACHE_LEVELS, same_bits

SHAPES = (
    Heads(head_dim=64, num_kv=3, per_kv=3),
    Heads(head_dim=64, num_kv=2, per_kv=6),
    Heads(head_dim=80, num_kv=2, per_kv=1),
    Heads(head_dim=96, num_kv=1, per_kv=8),
    Heads(head_dim=128, num_kv=2, per_kv=6),
    Heads(head_dim=256, num_kv=1, per_kv=4),
    Heads(head_dim=16, num_kv=1, per_kv=5),
)
IDS = [f"{heads.head_dim}x{heads.num_kv}x{heads.per_kv}" for heads in SHAPES]
# Depths around the borders of vectors (16), pages (64) and spans (128), as the number of positions that are kept.
DEPTHS = (1, 2, 15, 16, 17, 63, 64, 65, 127, 128, 129, 255, 256, 257)
QUANTISED = (("q8_0", "q4_0"), ("q4_0", "q8_0"))
MIXED = Heads(head_dim=64, num_kv=2, per_kv=3)


@dataclass(frozen=True, kw_only=True)
class Sequence:
    """What a sequence keeps, K and V float32 of float16 values [positions, KV heads, head_dim], and its queries."""

    q: np.ndarray
    k: np.ndarray
    v: np.ndarray

    @classmethod
    def new(cls, heads: Heads, count: int, seed: int = 0) -> Sequence:
        rng = np.random.default_rng([seed, count])

        def draw(number: int) -> np.ndarray:
            return rng.standard_normal((count, number, heads.head_dim)).astype(np.float16).astype(np.float32)

        # Sharper than noise: some keys get nearly all of the weight.
        return cls(q=4 * draw(heads.num_queries), k=draw(heads.num_kv), v=draw(heads.num_kv))

    def pages(self, heads: Heads, seed: int = 1) -> Pages:
        """The sequence in pages that stand anywhere, with one page more than it needs; all else is NaN."""
        pages = Pages.new(heads, -(-len(self.k) // 64) + 1, seed=seed)
        pages.write(self.k, self.v)
        return pages

    def expected(
        self,
        heads: Heads,
        positions: np.ndarray,
        window: int = 0,
        cap: float | None = None,
        sinks: np.ndarray | None = None,
    ) -> np.ndarray:
        q, k, v = (part.astype(np.float64) for part in (self.q[positions], self.k, self.v))
        scale = heads.head_dim**-0.5
        return oracle.attend(q, k, v, positions, scale=scale, window=window or None, cap=cap, sinks=sinks)


def assert_close(found: np.ndarray, expected: np.ndarray) -> None:
    assert np.isfinite(found).all()
    assert np.abs(found - expected).max() <= 1.5e-5


@pytest.mark.parametrize("heads", SHAPES, ids=IDS)
@pytest.mark.parametrize("level", LEVELS)
def test_the_last_token_of_every_depth(level: str, heads: Heads) -> None:
    """As in decoding: whole, and with each span a chunk of its own, to the same bits."""
    scale = heads.head_dim**-0.5
    for depth in DEPTHS:
        sequence = Sequence.new(heads, depth)
        pages, last = sequence.pages(heads), np.array([depth - 1])
        whole = attend(level, pages, sequence.q[last], last, scale=scale)
        assert_close(whole, sequence.expected(heads, last))
        assert same_bits(attend(level, pages, sequence.q[last], last, scale=scale, is_split=True), whole)


@pytest.mark.parametrize("heads", SHAPES, ids=IDS)
@pytest.mark.parametrize("level", LEVELS)
def test_a_prompt_gives_the_same_bits_however_it_is_cut(level: str, heads: Heads) -> None:
    count, scale = 140, heads.head_dim**-0.5
    sequence = Sequence.new(heads, count)
    pages, positions = sequence.pages(heads), np.arange(count)
    whole = attend(level, pages, sequence.q, positions, scale=scale)
    assert_close(whole, sequence.expected(heads, positions))
    for size, step, is_split in ((1, 9, False), (7, 7, False), (64, 64, False), (3, 40, True), (8, 33, True)):
        for start in range(0, count, step):
            part = positions[start : start + size]
            found = attend(level, pages, sequence.q[part], part, scale=scale, is_split=is_split)
            assert same_bits(found, whole[part])


@pytest.mark.parametrize("window", [1, 2, 16, 60, 64, 100, 128, 129, 1000])
@pytest.mark.parametrize("level", LEVELS)
def test_a_window_hides_what_is_older(level: str, window: int) -> None:
    count, scale = 300, MIXED.head_dim**-0.5
    sequence = Sequence.new(MIXED, count)
    pages, positions = sequence.pages(MIXED), np.arange(count)
    whole = attend(level, pages, sequence.q, positions, scale=scale, window=window)
    assert_close(whole, sequence.expected(MIXED, positions, window))
    for start in (0, 60, 126, 255, 292):
        part = positions[start : start + 8]
        for is_split in (False, True):
            found = attend(level, pages, sequence.q[part], part, scale=scale, window=window, is_split=is_split)
            assert same_bits(found, whole[part])


@pytest.mark.parametrize("is_split", [False, True])
@pytest.mark.parametrize("level", LEVELS)
def test_several_sequences_in_a_batch(level: str, is_split: bool) -> None:
    """Each at its own depth, in its own pages, in any order of slots: what it would get alone."""
    scale = MIXED.head_dim**-0.5
    depths, new = (5, 200, 64, 129), (5, 1, 30, 3)
    sequences = [Sequence.new(MIXED, depth, seed) for seed, depth in enumerate(depths)]
    pages = Pages.new(MIXED, *(-(-depth // 64) + 1 for depth in depths), seed=3)
    for slot, sequence in enumerate(sequences):
        pages.write(sequence.k, sequence.v, slot=slot)
    order = (2, 0, 3, 1)
    slots = np.concatenate([np.full(new[slot], slot) for slot in order])
    positions = np.concatenate([np.arange(depths[slot] - new[slot], depths[slot]) for slot in order])
    q = np.concatenate([sequences[slot].q[depths[slot] - new[slot] :] for slot in order])
    found = attend(level, pages, q, positions, scale=scale, slots=slots, is_split=is_split)
    for slot, sequence in enumerate(sequences):
        part = np.arange(depths[slot] - new[slot], depths[slot])
        alone = attend(level, sequence.pages(MIXED), sequence.q[part], part, scale=scale)
        assert_close(alone, sequence.expected(MIXED, part))
        assert same_bits(found[slots == slot], alone)


@pytest.mark.parametrize("level", LEVELS)
def test_chunks_may_be_done_in_any_order(level: str) -> None:
    sequence = Sequence.new(MIXED, 300)
    pages, part, scale = sequence.pages(MIXED), np.arange(295, 300), MIXED.head_dim**-0.5
    whole = attend(level, pages, sequence.q[part], part, scale=scale, is_split=True)
    order = np.random.default_rng(4).permutation(MIXED.num_kv * 3).tolist()
    assert same_bits(attend(level, pages, sequence.q[part], part, scale=scale, is_split=True, order=order), whole)


@pytest.mark.parametrize("level", LEVELS)
def test_a_later_position_never_changes_an_earlier_one(level: str) -> None:
    """Positions of the same tile that a row may not see get no weight at all, whatever they hold."""
    scale, positions = MIXED.head_dim**-0.5, np.arange(20)
    sequence = Sequence.new(MIXED, 20)
    before = attend(level, sequence.pages(MIXED), sequence.q, positions, scale=scale)
    sequence.k[12:], sequence.v[12:] = 65504.0, -65504.0
    after = attend(level, sequence.pages(MIXED), sequence.q, positions, scale=scale)
    assert same_bits(after[:12], before[:12])
    assert not same_bits(after[12:], before[12:])


@pytest.mark.parametrize("level", LEVELS)
def test_one_key_of_overwhelming_weight(level: str) -> None:
    """Scores of tens of thousands: the largest key's value comes out, nothing overflows."""
    heads = Heads(head_dim=32, num_kv=1, per_kv=2)
    sequence = Sequence.new(heads, 140)
    sequence.k[:] = 0.0
    sequence.k[[3, 131], 0, 0] = (3e4, -3e4)
    sequence.q[:] = 0.0
    sequence.q[:, 0, 0], sequence.q[:, 1, 0] = 100.0, -100.0
    part = np.array([139])
    for is_split in (False, True):
        found = attend(level, sequence.pages(heads), sequence.q[part], part, scale=0.1, is_split=is_split)
        assert same_bits(found[0], sequence.v[[3, 131], 0])


@pytest.mark.parametrize(
    "heads", [heads for heads in SHAPES if heads.head_dim % 32 == 0], ids=lambda h: f"{h.head_dim}"
)
@pytest.mark.parametrize("kinds", QUANTISED, ids="-".join)
@pytest.mark.parametrize("level", SMALL_CACHE_LEVELS)
def test_keys_and_values_of_eight_and_four_bits(level: str, kinds: tuple[str, str], heads: Heads) -> None:
    """Right for what the cache holds, and the same bits for any tile and split."""
    count, scale, positions = 200, heads.head_dim**-0.5, np.arange(200)
    sequence = Sequence.new(heads, count)
    pages = Pages.new(heads, 5, seed=5, kinds=kinds)
    pages.write(sequence.k, sequence.v)
    sequence.k[:], sequence.v[:] = pages.read(count)
    whole = attend(level, pages, sequence.q, positions, scale=scale)
    assert_close(whole, sequence.expected(heads, positions))
    for start, size, is_split in ((0, 200, False), (120, 1, True), (126, 5, True), (192, 8, False), (199, 1, True)):
        part = positions[start : start + size]
        assert same_bits(attend(level, pages, sequence.q[part], part, scale=scale, is_split=is_split), whole[part])


def bits_of(level: str, kinds: tuple[str, str]) -> np.ndarray:
    sequence = Sequence.new(MIXED, 270)
    pages = Pages.new(MIXED, 5, kinds=kinds)
    pages.write(sequence.k, sequence.v)
    return attend(level, pages, sequence.q, np.arange(270), scale=MIXED.head_dim**-0.5, window=150)


@pytest.mark.parametrize("level", LEVELS[1:])
def test_levels_agree_to_the_bit(level: str) -> None:
    assert same_bits(bits_of(level, ("f16", "f16")), bits_of(LEVELS[0], ("f16", "f16")))


@pytest.mark.parametrize("kinds", QUANTISED, ids="-".join)
def test_levels_agree_on_caches_of_few_bits(kinds: tuple[str, str]) -> None:
    best, plainest = (bits_of(level, kinds) for level in SMALL_CACHE_LEVELS)
    assert same_bits(best, plainest)


@pytest.mark.parametrize("cap", [0.0, 2.0, 50.0])
@pytest.mark.parametrize("has_sinks", [False, True])
@pytest.mark.parametrize("level", LEVELS)
def test_soft_caps_and_sinks(level: str, has_sinks: bool, cap: float) -> None:
    """Against float64, and the same bits whole, cut and split; a sink far from all scores overflows nothing."""
    count, scale = 200, MIXED.head_dim**-0.5
    sequence = Sequence.new(MIXED, count)
    sinks = np.array([0.0, 3.0, -2.0, 90.0, -1e4, 1.0], np.float32) if has_sinks else None
    pages, positions = sequence.pages(MIXED), np.arange(count)
    whole = attend(level, pages, sequence.q, positions, scale=scale, soft_cap=cap, sinks=sinks)
    wide_sinks = None if sinks is None else sinks.astype(np.float64)
    assert_close(whole, sequence.expected(MIXED, positions, cap=cap or None, sinks=wide_sinks))
    for start in (0, 100, 126, 192):
        part = positions[start : start + 8]
        for is_split in (False, True):
            found = attend(
                level, pages, sequence.q[part], part, scale=scale, soft_cap=cap, sinks=sinks, is_split=is_split
            )
            assert same_bits(found, whole[part])
