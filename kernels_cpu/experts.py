"""A mixture of experts: each token's choice of experts, their products, and the sum of what they give.

A pair is a token and an expert that it uses.  Pairs are sorted by expert, then by token, so that an expert's matrix is
read once for all its tokens, and not at all where nobody chose it.  Lanes: rows of a matrix in products (see product.py
and packed_formats.py), 16 neighbouring columns elsewhere.

Order of the sums: a pair's products as in product.py, whatever the other pairs are; a token's experts are added to its
row from the best to the last.  So a token's result depends on no other token.
"""

from __future__ import annotations

from numba import njit

from kernels_cpu.activations import RECORDS
from kernels_cpu.operands import CHOOSE, EXPERT_PRODUCT, GATHER, GATHER_FLOATS, GROUP, MIX, WEIGHINGS
from kernels_cpu.packed_formats import FLOAT_FORMATS
from kernels_cpu.product import LANES, SMALL_TILE, STACK_BYTES, STORE, WIDE_TILE, finish, make_tile
from kernels_cpu.product_floats import make_float_tile
from kernels_cpu.rows import INLINE
from kernels_cpu.vectors import (
    WIDTH,
    exp,
    fma,
    load,
    load_float,
    load_i32,
    max_lane,
    splat,
    stack_bytes,
    store,
    store_float,
    store_i32,
    types,
    word,
)  # fmt: skip

TAKEN = types.float32(-3.4e38)
SOFTMAX, SOFTMAX_OF_ALL, SIGMOID, NORMALIZED_SIGMOID = range(len(WEIGHINGS))


@njit(types.float32(types.float32), **INLINE)
def power_of(x):
    """e ** x."""
    return max_lane(exp(splat(x)))


@njit(types.void(types.intp, types.intp, types.intp), **INLINE)
def make_factors(scores, count, weighing):
    """The sigmoids of so many scores, or their softmax, in place."""
    if weighing != SOFTMAX_OF_ALL:
        for idx in range(count):
            power = power_of(-load_float(scores + 4 * idx))
            store_float(scores + 4 * idx, types.float32(1.0) / (types.float32(1.0) + power))
        return
    top, total = TAKEN, types.float32(0.0)
    for idx in range(count):
        top = max(top, load_float(scores + 4 * idx))
    for idx in range(count):
        power = power_of(load_float(scores + 4 * idx) - top)
        store_float(scores + 4 * idx, power)
        total += power
    for idx in range(count):
        store_float(scores + 4 * idx, load_float(scores + 4 * idx) / total)


@njit(types.void(types.intp, types.intp, types.intp), **INLINE)
def finish_factors(weights, num_used, weighing):
    """The softmax of the chosen scores, or their part of the sum, in place."""
    total = types.float32(0.0)
    if weighing == SOFTMAX:
        top = load_float(weights)
        for rank in range(num_used):
            store_float(weights + 4 * rank, power_of(load_float(weights + 4 * rank) - top))
    for rank in range(num_used):
        total += load_float(weights + 4 * rank)
    for rank in range(num_used):
        store_float(weights + 4 * rank, load_float(weights + 4 * rank) / total)


def make_choose():
    """The experts of one token: those of the largest scores, and their factors.  Overwrites scores."""
    o_scores, o_stride, o_experts, o_used, o_route, o_route_stride = (CHOOSE.offset(n) for n in CHOOSE.names[:6])
    o_weighing, o_preference, o_expert_scale, o_scale = (CHOOSE.offset(n) for n in CHOOSE.names[6:])

    def choose(o, token):
        scores = word(o + o_scores) + token * word(o + o_stride)
        route = word(o + o_route) + token * word(o + o_route_stride)
        num_experts, num_used = word(o + o_experts), word(o + o_used)
        weights, weighing, preference = route + 4 * num_used, word(o + o_weighing), word(o + o_preference)
        if weighing != SOFTMAX:
            make_factors(scores, num_experts, weighing)
        for rank in range(num_used):
            best, best_score = 0, TAKEN
            for expert in range(num_experts):
                score = load_float(scores + 4 * expert)
                if preference != 0:
                    score += load_float(preference + 4 * expert)
                if score > best_score:
                    best, best_score = expert, score
            store_i32(route + 4 * rank, best)
            store_float(weights + 4 * rank, load_float(scores + 4 * best))
            store_float(scores + 4 * best, TAKEN)
        if weighing in (SOFTMAX, NORMALIZED_SIGMOID):
            finish_factors(weights, num_used, weighing)
        for rank in range(num_used):
            factor = load_float(weights + 4 * rank) * load_float(o + o_scale)
            if word(o + o_expert_scale) != 0:
                factor *= load_float(word(o + o_expert_scale) + 4 * load_i32(route + 4 * rank))
            store_float(weights + 4 * rank, factor)

    return choose


def make_group():
    """Numbers all pairs of a batch by expert and, within one, by token: one chunk."""
    o_route, o_stride, o_experts, o_used, o_count, o_starts, o_tokens = (GROUP.offset(n) for n in GROUP.names)

    def group(o, chunk):
        route, stride, num_used = word(o + o_route), word(o + o_stride), word(o + o_used)
        num_experts, starts, pair_tokens = word(o + o_experts), word(o + o_starts), word(o + o_tokens)
        num_tokens = word(word(o + o_count))
        for expert in range(num_experts + 1):
            store_i32(starts + 4 * expert, 0)
        for token in range(num_tokens):
            for rank in range(num_used):
                at = starts + 4 * load_i32(route + token * stride + 4 * rank) + 4
                store_i32(at, load_i32(at) + 1)
        for expert in range(num_experts):
            store_i32(starts + 4 * expert + 4, load_i32(starts + 4 * expert) + load_i32(starts + 4 * expert + 4))
        for token in range(num_tokens):
            for rank in range(num_used):
                at = starts + 4 * load_i32(route + token * stride + 4 * rank)
                pair = load_i32(at)
                store_i32(at, pair + 1)
                store_i32(pair_tokens + 4 * pair, token)
                store_i32(route + token * stride + 4 * (2 * num_used + rank), pair)
        for expert in range(num_experts, 0, -1):  # each start moved to the next one's place
            store_i32(starts + 4 * expert, load_i32(starts + 4 * expert - 4))
        store_i32(starts, 0)

    return group


def make_gather(terms: int):
    """Records of one pair's token."""
    record_bytes = RECORDS[terms].size_bytes
    o_source, o_count, o_target, o_pairs, o_blocks, o_tokens = (GATHER.offset(n) for n in GATHER.names)

    def gather(o, pair):
        num_tokens, num_pairs = word(word(o + o_count)), word(word(o + o_pairs))
        source_tokens = 1 if num_tokens == 1 else (num_tokens + 3) // 4 * 4
        target_tokens = 1 if num_pairs == 1 else (num_pairs + 3) // 4 * 4
        token = load_i32(word(o + o_tokens) + 4 * pair)
        for block in range(word(o + o_blocks)):
            source = word(o + o_source) + (block * source_tokens + token) * record_bytes
            target = word(o + o_target) + (block * target_tokens + pair) * record_bytes
            for at in range(0, record_bytes, 4):
                store_i32(target + at, load_i32(source + at))

    return gather


def make_gather_floats():
    """The float32 row of one pair's token."""
    o_source, o_source_stride, o_target, o_target_stride, o_width, o_tokens = (
        GATHER_FLOATS.offset(n) for n in GATHER_FLOATS.names
    )

    def gather_floats(o, pair):
        source = word(o + o_source) + load_i32(word(o + o_tokens) + 4 * pair) * word(o + o_source_stride)
        target = word(o + o_target) + pair * word(o + o_target_stride)
        for column in range(word(o + o_width)):
            store_i32(target + 4 * column, load_i32(source + 4 * column))

    return gather_floats


def _make_tiles(format_name: str, terms: int):
    """Tiles of one token, of a few and of many (as few, where that is all there is), and how many are many."""
    if format_name in FLOAT_FORMATS:
        few = make_float_tile(format_name, SMALL_TILE)
        return make_float_tile(format_name, 1), few, few, SMALL_TILE
    few = make_tile(format_name, terms, SMALL_TILE)
    many = make_tile(format_name, terms, WIDE_TILE) if WIDE_TILE > SMALL_TILE else few
    return make_tile(format_name, terms, 1), few, many, WIDE_TILE


def make_expert_product(format_name: str, terms: int):
    """One run of row groups of one expert, for all its pairs; chunk = expert * runs + run.

    terms: of the records; 0 where the format is a float one, whose products take float32 rows.
    """
    single, small, wide, tile_tokens = _make_tiles(format_name, terms)
    is_float = terms == 0
    o_weights, o_blocks, o_group_bytes, o_groups, o_per_chunk, o_starts, o_records, o_record_bytes = (
        EXPERT_PRODUCT.offset(n) for n in EXPERT_PRODUCT.names[:8]
    )
    o_pairs, o_out, o_stride, o_bias, o_bias_stride = (EXPERT_PRODUCT.offset(n) for n in EXPERT_PRODUCT.names[8:])

    def expert_product(o, chunk):
        num_groups, per_chunk = word(o + o_groups), word(o + o_per_chunk)
        runs = (num_groups + per_chunk - 1) // per_chunk
        expert, first_group = chunk // runs, chunk % runs * per_chunk
        first, last = load_i32(word(o + o_starts) + 4 * expert), load_i32(word(o + o_starts) + 4 * expert + 4)
        num_pairs, record_bytes = word(word(o + o_pairs)), word(o + o_record_bytes)
        block_stride = record_bytes if is_float or num_pairs == 1 else (num_pairs + 3) // 4 * 4 * record_bytes
        blocks, group_bytes, records = word(o + o_blocks), word(o + o_group_bytes), word(o + o_records)
        bias = word(o + o_bias) + expert * word(o + o_bias_stride) if word(o + o_bias) != 0 else 0
        results, one = stack_bytes(STACK_BYTES), types.float32(1.0)
        for group in range(first_group, min(first_group + per_chunk, num_groups) if first < last else first_group):
            at = word(o + o_weights) + (expert * num_groups + group) * group_bytes
            row, pair = group * LANES * 4, first
            while pair < last:
                left, size = last - pair, 1
                if left >= tile_tokens:
                    wide(at, blocks, records + pair * record_bytes, block_stride, results)
                    size = tile_tokens
                elif left > 1:
                    small(at, blocks, records + pair * record_bytes, block_stride, results)
                    size = SMALL_TILE
                else:
                    single(at, blocks, records + pair * record_bytes, block_stride, results)
                for i in range(min(size, left)):
                    out = word(o + o_out) + (pair + i) * word(o + o_stride) + row
                    finish(STORE, results + i * LANES * 4, results, bias + row if bias != 0 else 0, one, out)
                pair += size

    return expert_product


def make_mix():
    """What a token's experts gave, each by its weight, summed from the best to the last; or added."""
    o_route, o_route_stride, o_used, o_y, o_y_stride, o_out, o_stride, o_width, o_add = (
        MIX.offset(n) for n in MIX.names
    )

    def mix(o, token):
        route, num_used = word(o + o_route) + token * word(o + o_route_stride), word(o + o_used)
        out = word(o + o_out) + token * word(o + o_stride)
        for column in range(0, word(o + o_width), WIDTH):
            value = load(out + 4 * column) if word(o + o_add) != 0 else splat(types.float32(0.0))
            for rank in range(num_used):
                weight = splat(load_float(route + 4 * (num_used + rank)))
                pair = load_i32(route + 4 * (2 * num_used + rank))
                value = fma(weight, load(word(o + o_y) + pair * word(o + o_y_stride) + 4 * column), value)
            store(out + 4 * column, value)

    return mix
