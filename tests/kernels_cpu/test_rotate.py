"""Rotating and normalising heads, and where keys and values go in their pages."""

from __future__ import annotations

from typing import get_args

import numpy as np
import pytest
from attention_pages import Heads, Pages, Rotation, store
from kernels import LEVELS, SMALL_CACHE_LEVELS, same_bits
from kv_types import hadamard, round_to
from oracle import normalize, rotate

from models.program import Pairing, Rope

PAIRINGS: tuple[Pairing, ...] = get_args(Pairing)
SHAPES = (
    Heads(head_dim=64, num_kv=3, per_kv=3),
    Heads(head_dim=80, num_kv=2, per_kv=4),
    Heads(head_dim=256, num_kv=1, per_kv=4),
    Heads(head_dim=16, num_kv=2, per_kv=1),
    Heads(head_dim=512, num_kv=1, per_kv=1),
)
COUNT = 70
QUANTISED = (("q8_0", "q4_0"), ("q4_0", "q8_0"))


def make_rope(dimensions: int, pairing: Pairing, magnitude: float = 1.0) -> Rope:
    frequencies = tuple((10000.0 ** (-2 * np.arange(dimensions // 2) / dimensions)).tolist())
    return Rope(dimensions=dimensions, pairing=pairing, frequencies=frequencies, magnitude=magnitude)


def angles_of(rope: Rope, count: int) -> np.ndarray:
    """float32 [position, (cosines, sines), pairs]."""
    turns = np.arange(count)[:, None] * np.array(rope.frequencies)
    return (np.stack([np.cos(turns), np.sin(turns)], axis=1) * rope.magnitude).astype(np.float32)


def heads_of(heads: Heads, count: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    shapes = ((count, number, heads.head_dim) for number in (heads.num_queries, heads.num_kv, heads.num_kv))
    q, k, v = (rng.standard_normal(shape).astype(np.float32) for shape in shapes)
    return q, k, v


@pytest.mark.parametrize("pairing", PAIRINGS)
@pytest.mark.parametrize("heads", SHAPES, ids=lambda heads: f"{heads.head_dim}x{heads.num_kv}x{heads.per_kv}")
@pytest.mark.parametrize("level", LEVELS)
def test_heads_are_turned_by_their_positions(level: str, heads: Heads, pairing: Pairing) -> None:
    q, k, v = heads_of(heads, COUNT)
    rope = make_rope(heads.head_dim, pairing, magnitude=1.25)
    rng = np.random.default_rng(1)
    positions = rng.permutation(128)[:COUNT]
    pages = Pages.new(heads, 2, seed=2)
    rotation = Rotation(angles=angles_of(rope, 128), is_neighbours=pairing == "neighbours")
    turned_q, turned_k = store(level, pages, q, k, v, positions, rotation=rotation)
    for found, before in ((turned_q, q), (turned_k, k)):
        expected = rotate(before.astype(np.float64), positions, rope)
        np.testing.assert_allclose(found, expected, rtol=1e-6, atol=2e-6)
    keys, values = pages.read(128)
    assert np.array_equal(keys[positions], turned_k.astype(np.float16))
    assert np.array_equal(values[positions], v.astype(np.float16))
    untouched = np.setdiff1d(np.arange(128), positions)
    assert np.isnan(keys[untouched]).all() and np.isnan(values[untouched]).all()


@pytest.mark.parametrize("pairing", PAIRINGS)
@pytest.mark.parametrize("level", LEVELS)
def test_elements_past_the_rotated_ones_are_left_alone(level: str, pairing: Pairing) -> None:
    heads = Heads(head_dim=96, num_kv=2, per_kv=2)
    q, k, v = heads_of(heads, 9)
    rope = make_rope(24, pairing)
    rotation = Rotation(angles=angles_of(rope, 9), is_neighbours=pairing == "neighbours")
    turned_q, turned_k = store(level, Pages.new(heads, 1), q, k, v, rotation=rotation)
    for found, before in ((turned_q, q), (turned_k, k)):
        assert same_bits(found[..., 24:], before[..., 24:])
        np.testing.assert_allclose(found, rotate(before.astype(np.float64), np.arange(9), rope), rtol=1e-6, atol=2e-6)


@pytest.mark.parametrize("heads", SHAPES, ids=lambda heads: f"{heads.head_dim}x{heads.num_kv}x{heads.per_kv}")
@pytest.mark.parametrize("level", LEVELS)
def test_heads_are_normalised_before_they_turn(level: str, heads: Heads) -> None:
    q, k, v = heads_of(heads, 5)
    rng = np.random.default_rng(3)
    q_norm, k_norm = (rng.uniform(0.5, 2.0, heads.head_dim).astype(np.float32) for _ in range(2))
    rope = make_rope(heads.head_dim, "halves")
    rotation = Rotation(angles=angles_of(rope, 5), q_norm=q_norm, k_norm=k_norm, epsilon=1e-6)
    found_q, found_k = store(level, Pages.new(heads, 1), 3 * q, k, v, rotation=rotation)
    for found, before, weight in ((found_q, q, q_norm), (found_k, k, k_norm)):
        expected = rotate(normalize(before.astype(np.float64), weight, 1e-6), np.arange(5), rope)
        np.testing.assert_allclose(found, expected, rtol=2e-6, atol=4e-6)


@pytest.mark.parametrize("level", LEVELS)
def test_heads_may_be_normalised_after_they_have_turned(level: str) -> None:
    heads = Heads(head_dim=64, num_kv=2, per_kv=2)
    q, k, v = heads_of(heads, 9)
    q_norm, k_norm = (np.random.default_rng(3).uniform(0.5, 2.0, (2, heads.head_dim))).astype(np.float32)
    rope = make_rope(heads.head_dim, "halves", magnitude=1.25)
    rotation = Rotation(angles=angles_of(rope, 9), q_norm=q_norm, k_norm=k_norm, epsilon=1e-2, norms_after=True)
    found_q, found_k = store(level, Pages.new(heads, 1), q, k, v, rotation=rotation)
    for found, before, weight in ((found_q, q, q_norm), (found_k, k, k_norm)):
        expected = normalize(rotate(before.astype(np.float64), np.arange(9), rope), weight, 1e-2)
        np.testing.assert_allclose(found, expected, rtol=2e-6, atol=4e-6)


@pytest.mark.parametrize("level", LEVELS)
def test_queries_grow_far_into_a_text(level: str) -> None:
    heads = Heads(head_dim=32, num_kv=2, per_kv=2)
    q, k, v = heads_of(heads, COUNT)
    positions = np.arange(100, 100 + COUNT)
    rotation = Rotation(temperature=0.25, temperature_length=7)
    found_q, found_k = store(level, Pages.new(heads, 3), q, k, v, positions, rotation=rotation)
    factors = 1.0 + 0.25 * np.log(1.0 + np.floor(positions / 7))
    np.testing.assert_allclose(found_q, q * factors[:, None, None], rtol=1e-6)
    assert same_bits(found_k, k)


@pytest.mark.parametrize("level", LEVELS)
def test_a_layer_without_rotation_stores_keys_as_they_are(level: str) -> None:
    heads = Heads(head_dim=64, num_kv=2, per_kv=2)
    q, k, v = heads_of(heads, 20)
    pages = Pages.new(heads, 1)
    same_q, same_k = store(level, pages, q, k, v)
    assert same_bits(same_q, q) and same_bits(same_k, k)
    assert np.array_equal(pages.read(20)[0], k.astype(np.float16))


@pytest.mark.parametrize("level", LEVELS)
def test_tokens_of_several_sequences_go_to_their_own_pages(level: str) -> None:
    heads = Heads(head_dim=32, num_kv=2, per_kv=1)
    q, k, v = heads_of(heads, 12)
    pages = Pages.new(heads, 2, 1, 3, seed=5)
    slots = np.repeat([2, 0, 1], 4)
    positions = np.array([126, 127, 128, 129, 62, 63, 64, 65, 0, 1, 2, 3])
    store(level, pages, q, k, v, positions, slots)
    for slot, first, count in ((2, 126, 4), (0, 62, 4), (1, 0, 4)):
        keys, values = pages.read(first + count, slot=slot)
        rows = slots == slot
        assert np.array_equal(keys[first:], k[rows].astype(np.float16))
        assert np.array_equal(values[first:], v[rows].astype(np.float16))
        assert np.isnan(keys[:first]).all() and np.isnan(values[:first]).all()


@pytest.mark.parametrize("kinds", QUANTISED, ids="-".join)
@pytest.mark.parametrize("level", SMALL_CACHE_LEVELS)
def test_keys_and_values_are_rounded_to_their_types(level: str, kinds: tuple[str, str]) -> None:
    """Exactly as described, also zeros, an outlier, what a half cannot hold, and what is not a number."""
    heads = Heads(head_dim=96, num_kv=2, per_kv=1)
    q, k, v = heads_of(heads, 70)
    v[1], v[2, :, 5], v[3], v[4, 0, 7], v[5] = 0.0, 1e4, v[3] * 1e-7, 1e9, -np.abs(v[5])
    pages = Pages.new(heads, 2, kinds=kinds)
    _, kept = store(level, pages, q, k, v)
    keys, values = pages.read(70)
    assert np.array_equal(keys, round_to(kinds[0], kept).values())
    assert np.array_equal(values, round_to(kinds[1], v).values())
    steps = np.abs(v).reshape(70, 2, 3, 32).max(axis=3) / {"q8_0": 127, "q4_0": 8}[kinds[1]]
    errors = np.abs(values - v).reshape(70, 2, 3, 32)[6:]
    assert (errors <= 1.01 * np.maximum(steps[6:, ..., None], 1e-6)).all()
    v[:] = np.nan
    store(level, pages, q, k, v)
    assert np.isfinite(pages.read(70)[1]).all()


@pytest.mark.parametrize("head_dim", [64, 96, 128])
@pytest.mark.parametrize("level", SMALL_CACHE_LEVELS)
def test_keys_of_four_bits_and_their_queries_are_transformed(level: str, head_dim: int) -> None:
    """By the same orthogonal matrix, so that their products are what they were; others are left alone."""
    heads = Heads(head_dim=head_dim, num_kv=2, per_kv=2)
    q, k, v = heads_of(heads, 5)
    size = head_dim & -head_dim
    turned = store(level, Pages.new(heads, 1, kinds=("q4_0", "q8_0")), q, k, v)
    for found, before in zip(turned, (q, k), strict=True):
        parts = before.astype(np.float64).reshape(5, -1, head_dim // size, size)
        np.testing.assert_allclose(found, (parts @ hadamard(size)).reshape(before.shape), atol=5e-6)
    same = store(level, Pages.new(heads, 1, kinds=("q8_0", "q4_0")), q, k, v)
    assert same_bits(same[0], q) and same_bits(same[1], k)


@pytest.mark.parametrize("level", LEVELS[1:])
def test_levels_agree_to_the_bit(level: str) -> None:
    heads = Heads(head_dim=80, num_kv=2, per_kv=3)
    q, k, v = heads_of(heads, COUNT)
    weight = np.linspace(0.5, 2.0, 80, dtype=np.float32)
    rotation = Rotation(angles=angles_of(make_rope(80, "halves"), 128), q_norm=weight, k_norm=weight, epsilon=1e-6)
    found = []
    for name in (level, LEVELS[0]):
        pages = Pages.new(heads, 2)
        found.append((*store(name, pages, q, k, v, rotation=rotation), pages.read(COUNT)[0]))
    assert all(same_bits(left, right) for left, right in zip(*found, strict=True))
