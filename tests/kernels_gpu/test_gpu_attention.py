"""Rotation, pages and attention on the emulated card, against the oracle in float64."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest
from gpu_bench import PLACES, Array, Bench, Place, bench, make_records, record_bytes
from kv_types import hadamard, round_to
from oracle import attend, normalize, rotate

from kernels_gpu.device import Region
from kernels_gpu.plan import attention_defines
from models.program import Rope

PAGE, SPAN = 64, 128
HALVES = attention_defines(("f16", "f16"))


@dataclass(frozen=True, kw_only=True)
class Case:
    """A cache and tokens: one sequence a length, whose last `tokens` positions ask."""

    num_heads: int
    num_kv_heads: int
    head_dim: int
    lengths: tuple[int, ...]
    tokens: int
    window: int = 0
    soft_cap: float = 0.0
    sinks: tuple[float, ...] = ()

    def positions(self) -> Array:
        return np.concatenate([np.arange(n - self.tokens, n) for n in self.lengths]).astype(np.int32)

    def slots(self) -> Array:
        return np.repeat(np.arange(len(self.lengths)), self.tokens).astype(np.int32)

    def page_tables(self) -> Array:
        """Pages in no order; -1 beyond a sequence's end."""
        counts = [-(-length // PAGE) for length in self.lengths]
        pages = np.random.default_rng(7).permutation(sum(counts)).astype(np.int32)
        tables = np.full((len(counts), max(counts) + 1), -1, np.int32)
        for row, count in enumerate(counts):
            tables[row, :count], pages = pages[:count], pages[count:]
        return tables


def pages_of(case: Case, keys: list[Array], values: list[Array]) -> Array:
    """The cache as uint16 with NaNs where nothing was stored."""
    tables = case.page_tables()
    num_pages = int(tables.max()) + 1
    cache = np.full((num_pages, case.num_kv_heads, 2, PAGE * case.head_dim), 0xFFFF, np.uint16)
    for slot, (k, v) in enumerate(zip(keys, values, strict=True)):
        for position in range(len(k)):
            page = cache[tables[slot, position // PAGE]]
            in_page = position % PAGE
            k_block = page[:, 0].reshape(case.num_kv_heads, case.head_dim // 8, PAGE, 8)
            k_block[:, :, in_page] = k[position].view(np.uint16).reshape(case.num_kv_heads, -1, 8)
            v_block = page[:, 1].reshape(case.num_kv_heads, PAGE, case.head_dim)
            v_block[:, in_page] = v[position].view(np.uint16)
    return cache


def sinks_of(stand: Bench, case: Case) -> Region | None:
    return stand.put(np.array(case.sinks, np.float32)) if case.sinks else None


def attended_as_prompt(
    stand: Bench, case: Case, q: Array, cache: Region, first: int, count: int, defines: tuple[str, ...] = HALVES
) -> Array:
    """The answer of the kernel for prompts."""
    width, chosen, tables = case.num_heads * case.head_dim, slice(first, first + count), case.page_tables()
    group = case.num_heads // case.num_kv_heads
    out = stand.empty(count * width * 4)
    stand.run(
        "attention_prompt.cu", "attend_prompt", stand.put(q[chosen]), width, cache, stand.put(case.positions()[chosen]),
        stand.put(case.slots()[chosen]), stand.put(tables), tables.shape[1], count, case.num_heads, case.num_kv_heads,
        case.head_dim, case.head_dim**-0.5, case.window, case.soft_cap, sinks_of(stand, case), out, width,
        grid=(-(-count // (32 // min(group, 4))), case.num_kv_heads * -(-group // 4)), block=128, defines=defines,
    )  # fmt: skip
    return stand.get(out, (count, width))


def attended(
    stand: Bench, case: Case, q: Array, cache: Region, first: int, count: int, defines: tuple[str, ...] = HALVES
) -> Array:
    """The answer of the kernels for a few tokens."""
    max_spans = -(-max(case.lengths) // SPAN)
    width = case.num_heads * case.head_dim
    chosen = slice(first, first + count)
    tables = case.page_tables()
    positions = stand.put(case.positions()[chosen])
    partial = stand.empty(count * case.num_heads * max_spans * (case.head_dim + 4) * 4)
    batches = -(-case.num_heads // case.num_kv_heads // 4)
    stand.run(
        "attention.cu", "attend", stand.put(q[chosen]), width, cache, positions, stand.put(case.slots()[chosen]),
        stand.put(tables), tables.shape[1], case.num_heads, case.num_kv_heads, case.head_dim, case.head_dim**-0.5,
        case.window, case.soft_cap, partial, max_spans, grid=(max_spans, case.num_kv_heads * batches, count), block=128,
        shared_bytes=4 * (4 * case.head_dim + 1024), defines=defines,
    )  # fmt: skip
    out = stand.empty(count * width * 4)
    stand.run(
        "attention.cu", "combine", partial, max_spans, positions, case.num_heads, case.head_dim, case.window,
        sinks_of(stand, case), out, width, width // 32, None, None, 0, 0, grid=(case.num_heads, count), block=128,
        defines=defines,
    )  # fmt: skip
    return stand.get(out, (count, width))


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize(("head_dim", "spans", "window"), [(32, 1, 0), (64, 131, 0), (256, 300, 129 * 128 + 5)])
def test_partial_results_are_combined_and_rounded(head_dim: int, spans: int, window: int, place: Place) -> None:
    """Also more of them than a block has threads; the records are those of the result."""
    heads, count, first = 2, 2, 1
    width, positions = heads * head_dim, np.array([spans * 128 - 5, spans * 128 - 128], np.int32)
    rng = np.random.default_rng(4)
    cells = rng.standard_normal((count, heads, spans, head_dim + 4)).astype(np.float32)
    cells[..., 0] *= 3
    cells[..., 1] = np.abs(cells[..., 1]) + 0.1
    sinks = np.array([1.0, 8.0], np.float32)
    stand = bench(place)
    out, capacity = stand.empty(4 * count * width), first + count
    records = [stand.empty(record_bytes(capacity, width, terms)) for terms in (1, 2)]
    stand.run(
        "attention.cu", "combine", stand.put(cells), spans, stand.put(positions), heads, head_dim, window,
        stand.put(sinks), out, width, width // 32, *records, capacity, first, grid=(heads, count), block=128,
        defines=HALVES,
    )  # fmt: skip
    found = stand.get(out, (count, width))
    for token in range(count):
        begin = max(0, positions[token] - window + 1) // 128 if window else 0
        seen = cells[token, :, begin:].astype(np.float64)
        most = np.maximum(seen[..., 0].max(axis=1), sinks)
        factors = np.exp(seen[..., 0] - most[:, None])
        total = (factors * seen[..., 1]).sum(axis=1) + np.exp(sinks - most)
        expected = (factors[..., None] * seen[..., 4:]).sum(axis=1) / total[:, None]
        np.testing.assert_allclose(found[token], expected.reshape(-1), rtol=1e-4, atol=2e-6)
    for terms, region in zip((1, 2), records, strict=True):
        padded = np.concatenate([np.zeros((first, width), np.float32), found])
        wanted, _ = make_records(padded, terms, capacity)
        given = stand.get(region, (len(wanted),), np.uint8)
        planes = [capacity * width] * terms + [capacity * width // 8, capacity * width // 4]
        begins = np.cumsum([0, *planes])
        for begin, size in zip(begins, planes, strict=False):
            part = slice(begin + size * first // capacity, begin + size)
            np.testing.assert_array_equal(given[part], wanted[part])


Attention = Callable[..., Array]
# Where the transform of K rounds otherwise than the oracle's, a code of four bits may be the next one.
MOST_OFF_TRANSFORMED = 5e-3
CASES = {
    "one position": Case(num_heads=2, num_kv_heads=1, head_dim=32, lengths=(1,), tokens=1),
    "spans and slots": Case(num_heads=6, num_kv_heads=2, head_dim=64, lengths=(300, 129), tokens=2),
    "many heads of one": Case(num_heads=5, num_kv_heads=1, head_dim=80, lengths=(140,), tokens=2),
    "a window": Case(num_heads=2, num_kv_heads=1, head_dim=256, lengths=(290,), tokens=2, window=70),
    "more tokens than a tile": Case(num_heads=4, num_kv_heads=1, head_dim=32, lengths=(100, 70), tokens=11, window=40),
    "a wide window": Case(num_heads=3, num_kv_heads=3, head_dim=16, lengths=(200, 40), tokens=1, window=160),
    "a soft cap": Case(num_heads=4, num_kv_heads=2, head_dim=64, lengths=(190,), tokens=2, soft_cap=0.8),
    "sinks": Case(
        num_heads=3, num_kv_heads=1, head_dim=32, lengths=(150, 7), tokens=3, window=60, sinks=(0.5, 9.0, -30.0)
    ),
}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("attend_with", [attended, attended_as_prompt])
def test_attention_equals_the_oracle(attend_with: Attention, name: str, place: Place) -> None:
    case = CASES[name]
    rng = np.random.default_rng(1)
    count = case.tokens * len(case.lengths)
    q = rng.standard_normal((count, case.num_heads * case.head_dim)).astype(np.float32)
    shapes = [(length, case.num_kv_heads, case.head_dim) for length in case.lengths]
    keys = [rng.standard_normal(shape).astype(np.float16) for shape in shapes]
    values = [rng.standard_normal(shape).astype(np.float16) for shape in shapes]
    stand = bench(place)
    cache = stand.put(pages_of(case, keys, values))
    found = attend_with(stand, case, q, cache, 0, count)
    for slot in range(len(case.lengths)):
        own = case.slots() == slot
        expected = attend(
            q[own].astype(np.float64).reshape(-1, case.num_heads, case.head_dim),
            keys[slot].astype(np.float64),
            values[slot].astype(np.float64),
            case.positions()[own],
            scale=case.head_dim**-0.5,
            window=case.window or None,
            cap=case.soft_cap or None,
            sinks=np.array(case.sinks) if case.sinks else None,
        )
        np.testing.assert_allclose(found[own], expected.reshape(own.sum(), -1), rtol=2e-5, atol=2e-6)
    single = np.concatenate([attend_with(stand, case, q, cache, token, 1) for token in range(count)])
    np.testing.assert_array_equal(single, found)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("pairing", ["halves", "neighbours", None])
def test_rotation_and_pages_equal_the_oracle(pairing: str | None, place: Place) -> None:
    case = Case(num_heads=3, num_kv_heads=2, head_dim=48, lengths=(70, 66), tokens=2)
    has_norm, dimensions = pairing != "neighbours", 32
    warmth = (0.5, 20) if pairing is None else (0.0, 0)
    rng = np.random.default_rng(2)
    count, q_width, kv_width = 4, 3 * 48, 2 * 48
    q, k, v = (rng.standard_normal((count, width)).astype(np.float32) for width in (q_width, kv_width, kv_width))
    norms = [(1 + 0.1 * rng.standard_normal(48)).astype(np.float32) for _ in range(2)]
    frequencies = tuple(100.0 ** (-2 * i / dimensions) for i in range(dimensions // 2))
    rope = Rope(dimensions=dimensions, pairing="halves" if pairing == "halves" else "neighbours",
                frequencies=frequencies)  # fmt: skip
    phase = np.arange(80)[:, None] * np.array(frequencies)
    angles = np.stack([np.cos(phase), np.sin(phase)], axis=-1).astype(np.float32)
    stand, tables = bench(place), case.page_tables()
    q_region = stand.put(q)
    cache_shape = (int(tables.max()) + 1, 2, 2, PAGE * 48)
    cache = stand.empty(2 * int(np.prod(cache_shape)))
    stand.run(
        "attention.cu", "rotate_and_store", q_region, q_width, stand.put(k), stand.put(v), kv_width, 3, 2, 48,
        *[stand.put(norm) if has_norm else None for norm in norms], 1e-6, stand.put(angles) if pairing else None,
        dimensions, int(pairing == "neighbours"), *warmth, stand.put(case.positions()), stand.put(case.slots()),
        stand.put(tables), tables.shape[1], cache, grid=(2, count), block=128, defines=HALVES,
    )  # fmt: skip

    def expected(x: Array, norm: Array) -> Array:
        heads = x.astype(np.float64).reshape(count, -1, 48)
        heads = normalize(heads, norm, 1e-6) if has_norm else heads
        return rotate(heads, case.positions(), rope) if pairing else heads

    found_q = stand.get(q_region, q.shape)
    growth = 1 + warmth[0] * np.log1p(case.positions() // max(warmth[1], 1)) if pairing is None else np.ones(count)
    np.testing.assert_allclose(found_q, growth[:, None] * expected(q, norms[0]).reshape(q.shape), rtol=1e-5, atol=2e-5)
    stored = stand.get(cache, cache_shape, np.uint16)
    wanted_k = expected(k, norms[1])
    for token, (position, slot) in enumerate(zip(case.positions(), case.slots(), strict=True)):
        page = stored[tables[slot, position // PAGE]]
        k_block = page[:, 0].reshape(2, 6, PAGE, 8)[:, :, position % PAGE].reshape(2, 48)
        v_block = page[:, 1].reshape(2, PAGE, 48)[:, position % PAGE]
        np.testing.assert_allclose(k_block.view(np.float16), wanted_k[token], rtol=2e-3, atol=1e-4)
        np.testing.assert_array_equal(v_block.view(np.float16), v[token].astype(np.float16).reshape(2, 48))

    assert (stored != 0xFFFF).sum() == 4 * 2 * 2 * 48


def stored_bytes(stand: Bench, case: Case, k: Array, v: Array, defines: tuple[str, ...]) -> Region:
    """A cache that the kernel wrote, of all positions of a case's one sequence."""
    count, width = k.shape
    tables = case.page_tables()
    positions = np.arange(count, dtype=np.int32)
    q = np.zeros((count, case.num_heads * case.head_dim), np.float32)
    cache = stand.empty((int(tables.max()) + 1) * case.num_kv_heads * PAGE * case.head_dim * 4)
    heads = case.num_heads + 2 * case.num_kv_heads
    stand.run(
        "attention.cu", "rotate_and_store", stand.put(q), q.shape[1], stand.put(k), stand.put(v), width, case.num_heads,
        case.num_kv_heads, case.head_dim, None, None, 0.0, None, 0, 0, 0.0, 0, stand.put(positions),
        stand.put(0 * positions), stand.put(tables), tables.shape[1], cache, grid=(-(-heads // 4), count), block=128,
        defines=defines,
    )  # fmt: skip
    return cache


def transformed(x: Array) -> Array:
    """Heads [..., 96] after the Hadamard transform of each 32 elements: 32 is the largest power of two in 96."""
    return (x.astype(np.float64).reshape(*x.shape[:-1], -1, 32) @ hadamard(32)).reshape(x.shape)


def kept(x: Array, kind: str, *, is_key: bool) -> Array:
    """float64: what is left of K (or V) when it is kept as that type."""
    return round_to(kind, transformed(x).astype(np.float32) if kind == "q4_0" and is_key else x).values()


@pytest.mark.parametrize(
    "types", [("q8_0", "q8_0"), ("q8_0", "f16"), ("f16", "q8_0"), ("q4_0", "q4_0"), ("q4_0", "f16"), ("f16", "q4_0")]
)
@pytest.mark.parametrize("attend_with", [attended, attended_as_prompt])
def test_attention_over_fewer_bits_equals_the_oracle(attend_with: Attention, types: tuple[str, str]) -> None:
    case = Case(num_heads=4, num_kv_heads=2, head_dim=96, lengths=(150,), tokens=6)
    rng = np.random.default_rng(4)
    k, v = (rng.standard_normal((150, 2 * 96)).astype(np.float32) for _ in range(2))
    k[3] = 0.0
    q = rng.standard_normal((6, 4 * 96)).astype(np.float32)
    stand, defines = bench("shuffled"), attention_defines(types)
    found = attend_with(stand, case, q, stored_bytes(stand, case, k, v, defines), 0, 6, defines)
    keys, values = kept(k, types[0], is_key=True), kept(v, types[1], is_key=False)
    expected = attend(
        q.astype(np.float64).reshape(6, 4, 96), keys.reshape(150, 2, 96), values.reshape(150, 2, 96), case.positions(),
        scale=96**-0.5, window=None,
    )  # fmt: skip
    rtol, atol = (0.0, MOST_OFF_TRANSFORMED) if types[0] == "q4_0" else (2e-5, 2e-6)
    np.testing.assert_allclose(found, expected.reshape(6, -1), rtol=rtol, atol=atol)


@pytest.mark.parametrize("place", PLACES)
def test_keys_of_four_bits_and_their_queries_are_transformed(place: Place) -> None:
    case = Case(num_heads=3, num_kv_heads=1, head_dim=96, lengths=(70,), tokens=1)
    rng = np.random.default_rng(5)
    q, k, v = (rng.standard_normal((1, width)).astype(np.float32) for width in (3 * 96, 96, 96))
    stand, tables = bench(place), case.page_tables()
    rope = Rope(dimensions=96, pairing="halves", frequencies=tuple(100.0 ** (-i / 48) for i in range(48)))
    phase = np.arange(80)[:, None] * np.array(rope.frequencies)
    angles = np.stack([np.cos(phase), np.sin(phase)], axis=-1).astype(np.float32)
    q_region, cache = stand.put(q), stand.empty(2 * 2 * PAGE * 54)
    stand.run(
        "attention.cu", "rotate_and_store", q_region, 3 * 96, stand.put(k), stand.put(v), 96, 3, 1, 96, None, None, 0.0,
        stand.put(angles), 96, 0, 0.0, 0, stand.put(case.positions()), stand.put(case.slots()), stand.put(tables),
        tables.shape[1], cache, grid=(2, 1), block=128, defines=attention_defines(("q4_0", "q4_0")),
    )  # fmt: skip
    turned = [rotate(x.astype(np.float64).reshape(1, -1, 96), case.positions(), rope).reshape(x.shape) for x in (q, k)]
    found_q = stand.get(q_region, q.shape)
    np.testing.assert_allclose(found_q, transformed(turned[0].reshape(3, 96)).reshape(q.shape), rtol=1e-5, atol=2e-6)
    page = stand.get(cache, (2, 2 * PAGE * 54), np.uint8)[tables[0, 1]]
    place_in_page = 69 % PAGE
    for stored, x, is_key in ((page[: PAGE * 54], transformed(turned[1]), True), (page[PAGE * 54 :], v, False)):
        codes, scales = stored[: PAGE * 48], stored[PAGE * 48 :].view(np.float16)
        if is_key:
            own, scale = codes.reshape(12, PAGE, 4)[:, place_in_page].ravel(), scales.reshape(3, PAGE)[:, place_in_page]
        else:
            own, scale = codes.reshape(PAGE, 48)[place_in_page], scales.reshape(PAGE, 3)[place_in_page]
        numbers = np.stack([own & 15, own >> 4], axis=-1).ravel().astype(np.float32) - 8
        values = numbers.reshape(3, 32) * scale.astype(np.float32)[:, None]
        expected = round_to("q4_0", x.astype(np.float32).reshape(3, 32))
        np.testing.assert_allclose(scale, expected.scales[:, 0], rtol=1e-3)
        assert (np.abs(values - expected.values()) <= 1.001 * np.abs(scale[:, None])).all()
        assert (np.abs(values - expected.values()) > 0.01 * np.abs(scale[:, None])).mean() < 0.03
