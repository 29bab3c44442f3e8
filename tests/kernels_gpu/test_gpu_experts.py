"""Mixtures of experts on the emulated card: choices, groups, products of pairs and their sum, against the oracle."""

from __future__ import annotations

import numpy as np
import pytest
from gated_products import gate_and_up
from gguf import GGMLQuantizationType, quants
from gpu_bench import PLACES, Array, Bench, Place, bench, make_records
from tiny_models import random_rows

from kernels_gpu.device import Region
from kernels_gpu.expert_buffers import most_tiles
from kernels_gpu.layout import defines_for
from kernels_gpu.repacking import repack
from models.formats import FORMATS
from models.program import Buffer, MixExperts, Part

CLAMPED_SWIGLU = 4
EXPERTS, USED, ROWS = 5, 2, 70
FORMAT_TERMS = [("MXFP4", 1), ("Q4_K", 2), ("Q8_0", 1), ("IQ4_XS", 2)]


def columns_of(format_name: str) -> int:
    return 256 if FORMATS[format_name].block_elements == 256 else 96


def experts(format_name: str, seed: int) -> tuple[Array, Array]:
    """The packed bytes of all experts, and their float64 values [experts, rows, columns]."""
    shape = (EXPERTS * ROWS, columns_of(format_name))
    raw = random_rows(format_name, shape, np.random.default_rng(seed), std=shape[1] ** -0.5)
    values = quants.dequantize(raw, GGMLQuantizationType(FORMATS[format_name].ggml_id)).astype(np.float64)
    return repack(format_name, raw, shape[1]), values.reshape(EXPERTS, ROWS, shape[1])


def choices(count: int) -> Array:
    """Two different experts a token; the fourth is used by nobody."""
    rng = np.random.default_rng(5)
    return np.stack([rng.permutation([0, 1, 2, 4])[:USED] for _ in range(count)]).astype(np.int32)


def put(stand: Bench, values: Array) -> Region:
    return stand.put(np.ascontiguousarray(values))


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize(("num_experts", "used"), [(3, 3), (40, 8), (128, 1)])
def test_the_best_experts_are_chosen_and_weighed(num_experts: int, used: int, place: Place) -> None:
    count, stride = 6, num_experts + 3
    scores = np.random.default_rng(1).standard_normal((count, stride)).astype(np.float32)
    scores[2] = 0.5  # all alike: the first win
    stand = bench(place)
    chosen, weights = stand.empty(4 * count * used), stand.empty(4 * count * used)
    stand.run(
        "experts.cu", "choose", put(stand, scores), stride, count, num_experts, used, chosen, weights,
        grid=(-(-count // 4),), block=128,
    )  # fmt: skip
    expected = np.argsort(-scores[:, :num_experts], axis=1, kind="stable")[:, :used]
    np.testing.assert_array_equal(stand.get(chosen, (count, used), np.int32), expected)
    best = np.take_along_axis(scores.astype(np.float64), expected, axis=1)
    shares = np.exp(best - best[:, :1])
    found = stand.get(weights, (count, used))
    np.testing.assert_allclose(found, shares / shares.sum(axis=1, keepdims=True), rtol=1e-6)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("count", [1, 90])
def test_pairs_are_sorted_and_cut_into_tiles_of_one_expert(count: int, place: Place) -> None:
    chosen = choices(count)
    pairs, most = chosen.size, most_tiles(operation(), count)
    stand = bench(place)
    ordered, tiles = stand.empty(4 * pairs), stand.empty(16 * most)
    stand.run("experts.cu", "group", put(stand, chosen), pairs, EXPERTS, ordered, tiles, most, grid=(1,), block=256)
    np.testing.assert_array_equal(stand.get(ordered, (pairs,), np.int32), np.argsort(chosen.reshape(-1), kind="stable"))
    found = stand.get(tiles, (most, 4), np.int32)
    seen = found[found[:, 0] >= 0]
    assert seen[:, 2].max() <= 64 and (found[len(seen) :, 0] == -1).all()
    np.testing.assert_array_equal(np.repeat(seen[:, 0], seen[:, 2]), np.sort(chosen.reshape(-1)))
    np.testing.assert_array_equal(seen[:, 1], np.cumsum(seen[:, 2]) - seen[:, 2])


def operation() -> MixExperts:
    x = Buffer(name="x", width=96)
    return MixExperts(
        x=x, router=Part(weight="r", out=Buffer(name="s", width=EXPERTS)), gate="g", up="u", down="d", out=x,
        num_experts=EXPERTS, num_used=USED, width=ROWS, activation="silu", layer_idx=0,
    )  # fmt: skip


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize(("format_name", "terms"), FORMAT_TERMS)
def test_products_of_pairs_equal_the_oracle_in_both_phases(format_name: str, terms: int, place: Place) -> None:
    count, columns, stride, defines = 37, columns_of(format_name), ROWS + 2, defines_for(format_name, terms)
    chosen, pairs = choices(count), count * USED
    stand = bench(place)
    packed, weights = experts(format_name, 1)
    bias = np.random.default_rng(2).standard_normal((EXPERTS, ROWS)).astype(np.float32)
    for is_of_pair, rows in ((0, count), (1, pairs)):
        x = np.random.default_rng(3).standard_normal((rows, columns)).astype(np.float32)
        records, values = make_records(x, terms, rows + 1)
        of_pair = values if is_of_pair else np.repeat(values, USED, axis=0)
        owners = chosen.reshape(-1)
        expected = np.einsum("pc,prc->pr", of_pair, weights[owners]) + bias[owners]
        shared = (put(stand, packed), EXPERTS, ROWS, columns // 32, put(stand, records), rows + 1)
        out = stand.empty(4 * pairs * stride)
        stand.run(
            "product_experts.cu", "product_experts", *shared, put(stand, chosen), USED, is_of_pair, 1,
            put(stand, bias), out, stride, grid=(-(-ROWS // 2), pairs), block=128, defines=defines,
        )  # fmt: skip
        np.testing.assert_allclose(stand.get(out, (pairs, stride))[:, :ROWS], expected, rtol=3e-6, atol=3e-5)
        most = most_tiles(operation(), count)
        ordered, tiles, out = stand.empty(4 * pairs), stand.empty(16 * most), stand.empty(4 * pairs * stride)
        stand.run("experts.cu", "group", put(stand, chosen), pairs, EXPERTS, ordered, tiles, most, grid=(1,), block=256)
        stand.run(
            "prefill_experts.cu", "prefill_experts", *shared, tiles, ordered, USED, is_of_pair, put(stand, bias), out,
            stride, grid=(-(-ROWS // 64), most), block=128, defines=defines,
        )  # fmt: skip
        found = stand.get(out, (pairs, stride))
        np.testing.assert_allclose(found[:, :ROWS], expected, rtol=3e-6, atol=3e-5)
        assert np.isnan(found[:, ROWS:]).all()


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize(("format_name", "terms"), FORMAT_TERMS)
def test_gated_products_of_pairs_equal_the_oracle_whatever_is_beside_them(
    format_name: str, terms: int, place: Place
) -> None:
    count, columns = 3, columns_of(format_name)
    chosen = choices(count)
    (gate_bytes, gate), (up_bytes, up) = experts(format_name, 1), experts(format_name, 2)
    biases = np.random.default_rng(4).standard_normal((2, EXPERTS, ROWS)).astype(np.float32)
    x = np.random.default_rng(3).standard_normal((count, columns)).astype(np.float32)
    stand = bench(place)

    def run(first: int, last: int) -> tuple[Array, Array]:
        records, values = make_records(x[first:last], terms, last - first)
        out = stand.empty(4 * (last - first) * USED * ROWS)
        stand.run(
            "product_experts.cu", "gated_experts", put(stand, gate_bytes), put(stand, up_bytes), EXPERTS, ROWS,
            columns // 32, put(stand, records), last - first, put(stand, chosen[first:last]), USED, 0,
            *(put(stand, bias) for bias in biases), CLAMPED_SWIGLU, out, ROWS,
            grid=(-(-ROWS // 4), (last - first) * USED), block=128, defines=defines_for(format_name, terms),
        )  # fmt: skip
        return stand.get(out, ((last - first) * USED, ROWS)), values

    found, values = run(0, count)
    owners, of_pair = chosen.reshape(-1), np.repeat(values, USED, axis=0)
    opened, raised = (
        np.einsum("pc,prc->pr", of_pair, part[owners]) + bias[owners]
        for part, bias in zip((gate, up), biases, strict=True)
    )
    np.testing.assert_allclose(found, gate_and_up(opened, raised, "clamped_swiglu"), rtol=1e-5, atol=5e-5)
    np.testing.assert_array_equal(np.concatenate([run(token, token + 1)[0] for token in range(count)]), found)


@pytest.mark.parametrize("place", PLACES)
def test_what_experts_give_is_added_by_weight(place: Place) -> None:
    rng = np.random.default_rng(6)
    y = rng.standard_normal((6, 320)).astype(np.float32)
    weights, before = rng.random((3, USED)).astype(np.float32), rng.standard_normal((3, 310)).astype(np.float32)
    stand = bench(place)
    out = put(stand, before)
    stand.run("experts.cu", "mix", put(stand, weights), USED, put(stand, y), 320, out, 310, 300, grid=(2, 3), block=256)
    expected = before.astype(np.float64)
    expected[:, :300] += (weights[..., None] * y.reshape(3, USED, 320).astype(np.float64)).sum(axis=1)[:, :300]
    np.testing.assert_allclose(stand.get(out, before.shape), expected, rtol=1e-6, atol=1e-6)
