"""A mixture of experts, kernel by kernel: who is chosen, how pairs are numbered, what they give, how it is summed."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from kernels import LEVELS, call, floats, pack, same_bits
from products import expected_product, prompt, weights_of
from records import make_records, padded_tokens
from tiny_models import random_rows

from kernels_cpu.isa import choose

NUM_EXPERTS, NUM_USED, NUM_TOKENS = 7, 3, 13
COLUMNS = 96


@dataclass(frozen=True, kw_only=True)
class Routes:
    """A batch's choices [token, rank], their weights, and each one's pair; starts [experts + 1]; tokens [pair]."""

    choices: np.ndarray
    weights: np.ndarray
    pairs: np.ndarray
    starts: np.ndarray
    tokens: np.ndarray
    raw: np.ndarray


def route(level: str, scores: np.ndarray) -> Routes:
    """Chooses experts by scores [tokens, experts] and numbers the pairs."""
    count = len(scores)
    memory, table = floats((count, 3 * NUM_USED + 7))
    call(
        level, "experts-choose", count, scores=(given := scores.copy()), scores_stride=given.strides[0],
        num_experts=NUM_EXPERTS, num_used=NUM_USED, route=table, route_stride=table.strides[0],
        weighing=0, preference=0, expert_scale=0, scale=1.0,
    )  # fmt: skip
    starts, tokens = np.full(NUM_EXPERTS + 1, -1, np.int32), np.full(count * NUM_USED, -1, np.int32)
    call(
        level, "experts-group", 1, route=table, route_stride=table.strides[0], num_experts=NUM_EXPERTS,
        num_used=NUM_USED, count=np.array([count]), starts=starts, pair_tokens=tokens,
    )  # fmt: skip
    memory.check()
    words = table.view(np.int32)
    return Routes(
        choices=words[:, :NUM_USED].copy(), weights=table[:, NUM_USED : 2 * NUM_USED].copy(),
        pairs=words[:, 2 * NUM_USED : 3 * NUM_USED].copy(), starts=starts, tokens=tokens, raw=table,
    )  # fmt: skip


def scores_of(count: int = NUM_TOKENS) -> np.ndarray:
    """Some with ties, some far apart, and an expert that nobody chooses."""
    scores = np.random.default_rng(2).standard_normal((count, NUM_EXPERTS)).astype(np.float32)
    scores[0] = 0.5
    scores[1] *= 60
    scores[:, 4] = -100
    return scores


@pytest.mark.parametrize("level", LEVELS)
def test_the_best_are_chosen_and_weighed_by_their_softmax(level: str) -> None:
    scores = scores_of()
    found = route(level, scores)
    expected = np.argsort(-scores, axis=1, kind="stable")[:, :NUM_USED]
    assert np.array_equal(found.choices, expected)
    chosen = np.take_along_axis(scores, expected, axis=1).astype(np.float64)
    shares = np.exp(chosen - chosen[:, :1])
    np.testing.assert_allclose(found.weights, shares / shares.sum(axis=1, keepdims=True), rtol=1e-6, atol=1e-30)


@pytest.mark.parametrize("level", LEVELS)
def test_pairs_are_numbered_by_expert_and_then_by_token(level: str) -> None:
    found = route(level, scores_of())
    expected = sorted((expert, token) for token, row in enumerate(found.choices.tolist()) for expert in row)
    assert found.tokens.tolist() == [token for _, token in expected]
    counts = np.bincount(found.choices.reshape(-1), minlength=NUM_EXPERTS)
    assert found.starts.tolist() == [0, *np.cumsum(counts).tolist()]
    for token in range(NUM_TOKENS):
        for rank in range(NUM_USED):
            assert expected[found.pairs[token, rank]] == (found.choices[token, rank], token)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_scores_that_are_no_numbers_choose_somebody(value: float) -> None:
    found = route(LEVELS[0], np.full((2, NUM_EXPERTS), value, np.float32))
    assert ((found.choices >= 0) & (found.choices < NUM_EXPERTS)).all()
    assert found.starts[-1] == 2 * NUM_USED


def gathered(level: str, terms: int, x: np.ndarray, tokens: np.ndarray) -> np.ndarray:
    """Records of every pair, [block][pair] one after another; terms 0: the rows as they are [pair, column]."""
    pairs, count = len(tokens), len(x)
    if terms == 0:
        memory, rows = floats((pairs + 4, COLUMNS))
        call(
            level, "experts-gather_floats", pairs, source=x, source_stride=x.strides[0], target=rows,
            target_stride=rows.strides[0], width=COLUMNS, pair_tokens=tokens,
        )  # fmt: skip
        memory.check()
        assert same_bits(rows[:pairs], x[tokens])
        return rows
    given = make_records(x, terms)
    blocks, size = given.data.shape[0], given.data.shape[2]
    records = np.zeros((blocks * padded_tokens(pairs) + 4, size), np.uint8)
    call(
        level, f"experts-gather-{terms}", pairs, source=given.data, count=np.array([count]), target=records,
        num_pairs=np.array([pairs]), num_blocks=blocks, pair_tokens=tokens,
    )  # fmt: skip
    return records


def products(level: str, format_name: str, terms: int, x: np.ndarray, raw: np.ndarray, bias: np.ndarray) -> np.ndarray:
    """Each pair's product, in the order of tokens and ranks [tokens, used, rows]; raw [experts, rows, bytes]."""
    count, routes = len(x), route(level, scores_of()[: len(x)])
    pairs, num_rows = count * NUM_USED, raw.shape[1]
    given = gathered(level, terms, x, routes.tokens)
    lanes = choose(level).lanes
    groups = -(-num_rows // lanes)
    padded = np.zeros((NUM_EXPERTS, groups * lanes, raw.shape[2]), np.uint8)
    padded[:, :num_rows] = raw
    matrix = pack(level, format_name, COLUMNS, padded.reshape(-1, raw.shape[2]))
    biases = np.append(bias.reshape(-1), np.zeros(lanes, np.float32))
    memory, out = floats((pairs, groups * lanes + 16))
    for per_chunk in (2, 1):
        call(
            level, f"expert_product-{format_name}-{terms}", NUM_EXPERTS * -(-groups // per_chunk),
            weights=matrix.memory.bytes, num_blocks=matrix.num_blocks if terms else COLUMNS,
            group_bytes=matrix.group_bytes, num_groups=groups, groups_per_chunk=per_chunk, starts=routes.starts,
            records=given, record_bytes=given.strides[0], num_pairs=np.array([pairs]), out=out,
            out_stride=out.strides[0], bias=biases, bias_stride=bias.strides[0],
        )  # fmt: skip
        memory.check()
    assert np.isnan(out[:, groups * lanes :]).all(), "written past the last group of rows"
    return out[routes.pairs][:, :, :num_rows]


@pytest.mark.parametrize("num_rows", [48, 21])
@pytest.mark.parametrize(("format_name", "terms"), [("Q4_0", 1), ("MXFP4", 2), ("F16", 0), ("BF16", 0), ("F32", 0)])
@pytest.mark.parametrize("level", LEVELS)
def test_products_are_those_of_each_pair_and_do_not_depend_on_the_batch(
    level: str, format_name: str, terms: int, num_rows: int
) -> None:
    rng = np.random.default_rng(4)
    raw = random_rows(format_name, (NUM_EXPERTS * num_rows, COLUMNS), rng, std=0.1)
    bias = rng.standard_normal((NUM_EXPERTS, num_rows)).astype(np.float32)
    x = prompt(NUM_TOKENS, COLUMNS)
    values = make_records(x, terms).values if terms else x.astype(np.float64)
    choices = route(level, scores_of()).choices
    expected, bound = expected_product(weights_of(format_name, raw), values)
    raw = raw.reshape(NUM_EXPERTS, num_rows, -1)
    found = products(level, format_name, terms, x, raw, bias)
    for token in range(NUM_TOKENS):
        for rank, expert in enumerate(choices[token].tolist()):
            rows = slice(expert * num_rows, (expert + 1) * num_rows)
            error = np.abs(found[token, rank] - (expected[token, rows] + bias[expert]))
            assert (error <= bound[token, rows] + 1e-6 * np.abs(bias[expert])).all()
    for count in (1, 2, 6):
        assert same_bits(products(level, format_name, terms, x[:count], raw, bias), found[:count])


@pytest.mark.parametrize("adds", [True, False])
@pytest.mark.parametrize("level", LEVELS)
def test_what_experts_give_is_added_by_weight(level: str, *, adds: bool) -> None:
    rng = np.random.default_rng(6)
    routes = route(level, scores_of())
    y = rng.standard_normal((NUM_TOKENS * NUM_USED, 80)).astype(np.float32)
    start = rng.standard_normal((NUM_TOKENS, 80)).astype(np.float32)
    memory, out = floats((NUM_TOKENS, 80))
    out[:] = start
    call(
        level, "experts-mix", NUM_TOKENS, route=routes.raw, route_stride=routes.raw.strides[0], num_used=NUM_USED,
        y=y, y_stride=y.strides[0], out=out, out_stride=out.strides[0], width=80, add=adds,
    )  # fmt: skip
    memory.check()
    expected = np.einsum("tr,trc->tc", routes.weights.astype(np.float64), y[routes.pairs].astype(np.float64))
    expected += start if adds else 0.0
    np.testing.assert_allclose(out, expected, rtol=1e-5, atol=1e-6)
