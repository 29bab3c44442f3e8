"""Attention over pages: softmax(scale * q K^T) V, causal and within a window.

A tile is a run of tokens of one sequence; its rows are those tokens times the query heads of one KV head (GQA), so K
and V are read once for all of them.  Lanes: 16 keys while scores are computed, 16 elements of V while values are
summed.

Keys are taken in spans of 128 absolute positions.  Every (row, span) gives one partial result (maximum, sum, vector),
and partial results are folded in span order, by the same code whether one thread computes all spans of a tile (prefill)
or each span is a chunk of its own and `combine` folds them (decode).  So a row's bits do not depend on the batch,
the threads or how a prompt was cut.  Positions that a row may not see take no part: no infinities are subtracted.

Multiply-adds for 16 keys x a row: head_dim for the scores, head_dim for the values, as float32 fma.
"""

from __future__ import annotations

from numba import njit, types

from kernels_cpu.attention_tiles import ROWS, make_score_group, make_sum_values
from kernels_cpu.kv_layout import GROUP, PAGE_SIZE, SCALE_BLOCK, SPAN, CacheTypes
from kernels_cpu.operands import ATTEND
from kernels_cpu.rows import INLINE, cap_row
from kernels_cpu.vectors import (
    WIDTH,
    exp,
    fma,
    keep_lanes,
    load,
    load_float,
    load_i32,
    max_lane,
    maximum,
    splat,
    stack_bytes,
    store,
    store_float,
    store_i32,
    sum_lanes,
    word,
)  # fmt: skip

MAX_ROWS = 64  # of a tile
MAX_HEAD_DIM = 512
QUERY_BYTES = 4 * MAX_ROWS * MAX_HEAD_DIM
SCORE_BYTES = 4 * ROWS * SPAN
SUM_BYTES = 4 * ROWS * MAX_HEAD_DIM
STATE_BYTES = 8 * MAX_ROWS
NOTHING = types.float32(-3.0e38)


@njit(types.void(*[types.intp] * 5), **INLINE)
def soften(scores, first, last, count, result):
    """Scores of one row in place to exp(score - maximum) in positions first..last-1, 0 elsewhere up to `count`.

    result: float32 maximum and sum.
    """
    nothing, zero = splat(NOTHING), splat(types.float32(0.0))
    whole = last // WIDTH * WIDTH if first == 0 else 0  # vectors that are seen from the first lane to the last
    seen = (last + WIDTH - 1) // WIDTH * WIDTH
    peak = nothing
    for position in range(0, whole, WIDTH):
        peak = maximum(load(scores + 4 * position), peak)
    for position in range(whole, seen, WIDTH):
        peak = maximum(keep_lanes(load(scores + 4 * position), first - position, last - position, nothing), peak)
    top = max_lane(peak)
    total = zero
    for position in range(0, whole, WIDTH):
        weight = exp(load(scores + 4 * position) - splat(top))
        total = total + weight
        store(scores + 4 * position, weight)
    for position in range(whole, seen, WIDTH):
        weight = exp(load(scores + 4 * position) - splat(top))
        weight = keep_lanes(weight, first - position, last - position, zero)
        total = total + weight
        store(scores + 4 * position, weight)
    for position in range(seen, count, WIDTH):
        store(scores + 4 * position, zero)
    store_float(result, top)
    store_float(result + 4, sum_lanes(total))


@njit(types.void(*[types.intp] * 5), **INLINE)
def fold(state, vector, partial, partial_vector, head_dim):
    """Adds a span's partial result (maximum, sum; vector) to a row's."""
    old, new = load_float(state), load_float(partial)
    top = max(old, new)
    one, less = splat(types.float32(1.0)), exp(splat(min(old, new) - top))
    keep, add = (one, less) if old >= new else (less, one)
    total = fma(splat(load_float(partial + 4)), add, splat(load_float(state + 4)) * keep)
    store_float(state, top)
    store_float(state + 4, max_lane(total))
    for element in range(0, head_dim, WIDTH):
        value = fma(load(partial_vector + 4 * element), add, load(vector + 4 * element) * keep)
        store(vector + 4 * element, value)


@njit(types.void(*[types.intp] * 5), **INLINE)
def finish(state, vector, out, head_dim, sink):
    """out = vector / sum; sink: address of a score that joins the sum, 0: none."""
    total, keep = splat(load_float(state + 4)), splat(types.float32(1.0))
    if sink != 0:
        top = max(load_float(state), load_float(sink))
        keep = exp(splat(load_float(state) - top))
        total = fma(total, keep, exp(splat(load_float(sink) - top)))
    for element in range(0, head_dim, WIDTH):
        store(out + 4 * element, load(vector + 4 * element) * keep / total)


O = {name: ATTEND.offset(name) for name in ATTEND.names}  # noqa: E741
O_Q, O_Q_STRIDE, O_OUT, O_OUT_STRIDE = O["q"], O["q_stride"], O["out"], O["out_stride"]
O_PER_KV, O_KV_HEADS, O_DIM, O_SCALE, O_WINDOW = (
    O["heads_per_kv"],
    O["num_kv_heads"],
    O["head_dim"],
    O["scale"],
    O["window"],
)
O_TILES, O_POSITIONS, O_TABLES, O_TABLE_STRIDE = O["tiles"], O["positions"], O["page_tables"], O["table_stride"]
O_SOFT_CAP, O_SINKS = O["soft_cap"], O["sinks"]
O_CACHE, O_PAGE_BYTES, O_HEAD_BYTES, O_SPANS, O_PARTIAL = (
    O["cache"],
    O["page_bytes"],
    O["head_bytes"],
    O["spans"],
    O["partial"],
)


@njit(types.int64(*[types.intp] * 4), **INLINE)
def gather_queries(o, tile, kv_head, work):
    """Copies the tile's query rows, times the scale, and their positions; returns the number of rows."""
    head_dim, per_kv = word(o + O_DIM), word(o + O_PER_KV)
    seen = work + SCORE_BYTES + SUM_BYTES + 8 * ROWS
    queries = seen + 4 * MAX_ROWS
    scale = splat(load_float(o + O_SCALE))
    first, count = load_i32(tile), load_i32(tile + 4)
    row = 0
    for token in range(first, first + count):
        q = word(o + O_Q) + token * word(o + O_Q_STRIDE) + kv_head * per_kv * head_dim * 4
        for _ in range(per_kv):
            store_i32(seen + 4 * row, load_i32(word(o + O_POSITIONS) + 4 * token))
            for element in range(0, head_dim, WIDTH):
                store(queries + 4 * (row * head_dim + element), load(q + 4 * element) * scale)
            q += 4 * head_dim
            row += 1
    return row


WORK_BYTES = SCORE_BYTES + SUM_BYTES + 8 * ROWS + 4 * MAX_ROWS + QUERY_BYTES + 8 * 4 * MAX_HEAD_DIM
VECTOR_BYTES = 4 * MAX_ROWS * MAX_HEAD_DIM


@njit(types.intp(types.intp, types.int64), **INLINE)
def sink_of(o, head):
    """Address of a head's sink, 0 where there are none."""
    sinks = word(o + O_SINKS)
    return sinks + 4 * head if sinks != 0 else 0


@njit(types.int64(types.intp, types.intp), **INLINE)
def first_span(o, position):
    """The first span that a token at `position` sees."""
    window = word(o + O_WINDOW)
    return max(0, position - window + 1) // SPAN if window > 0 else 0


def make_partial_span(cache_types: CacheTypes):
    """(o, table, kv_head, rows, first_row, span, work): partial results of up to 8 rows with one span of keys.

    work: scores, then sums [row][head_dim], then (maximum, sum) a row, then each row's position (int32), then queries.
    A row that sees nothing of the span gets a sum of 0.
    """
    score_group, sum_values = make_score_group(cache_types.k), make_sum_values(cache_types.v)
    key_bits, key_scale_bytes = cache_types.k.bits, 2 if cache_types.k.has_scales else 0

    @njit(types.void(*[types.intp] * 7), **INLINE)
    def partial_span(o, table, kv_head, rows, first_row, span, work):
        head_dim, window = word(o + O_DIM), word(o + O_WINDOW)
        sums, results = work + SCORE_BYTES, work + SCORE_BYTES + SUM_BYTES
        seen = results + 8 * ROWS
        queries = seen + 4 * MAX_ROWS + 4 * head_dim * first_row
        key_bytes = head_dim * key_bits // 8 + head_dim // SCALE_BLOCK * key_scale_bytes
        start = span * SPAN
        last_position = load_i32(seen + 4 * first_row)
        for row in range(rows):
            last_position = max(last_position, load_i32(seen + 4 * (first_row + row)))
        count = min(last_position + 1 - start, SPAN)
        for position in range(0, count, GROUP):
            page = load_i32(table + (start + position) // PAGE_SIZE * 4)
            block = word(o + O_CACHE) + page * word(o + O_PAGE_BYTES) + kv_head * word(o + O_HEAD_BYTES)
            keys = block + position % PAGE_SIZE * key_bytes
            score_group(rows, queries, 4 * head_dim, keys, head_dim, work + 4 * position)
        padded = (count + WIDTH - 1) // WIDTH * WIDTH
        zero, cap = splat(types.float32(0.0)), load_float(o + O_SOFT_CAP)
        for row in range(rows):
            position = load_i32(seen + 4 * (first_row + row))
            first = max(0, position - window + 1 - start) if window > 0 else 0
            last = min(position + 1 - start, count)
            if first < last:
                if cap > types.float32(0.0):
                    cap_row(work + 4 * SPAN * row, padded, cap)
                soften(work + 4 * SPAN * row, first, last, padded, results + 8 * row)
            else:
                store_float(results + 8 * row + 4, types.float32(0.0))
                for column in range(0, padded, WIDTH):
                    store(work + 4 * SPAN * row + 4 * column, zero)
            for element in range(0, head_dim, WIDTH):
                store(sums + 4 * (head_dim * row + element), zero)
        for position in range(0, count, PAGE_SIZE):
            page = load_i32(table + (start + position) // PAGE_SIZE * 4)
            block = word(o + O_CACHE) + page * word(o + O_PAGE_BYTES) + kv_head * word(o + O_HEAD_BYTES)
            values = block + PAGE_SIZE * key_bytes
            sum_values(
                rows, work + 4 * position, values, head_dim, min(PAGE_SIZE, count - position), sums, 4 * head_dim
            )

    return partial_span


def make_attend_whole(partial_span):
    """(o, tile, kv_head, table) for one way to compute partial results."""

    @njit(types.void(*[types.intp] * 4), **INLINE)
    def attend_whole(o, tile, kv_head, table):
        """All spans of a tile, folded in order; writes the tile's outputs."""
        work, vectors, states = stack_bytes(WORK_BYTES), stack_bytes(VECTOR_BYTES), stack_bytes(STATE_BYTES)
        head_dim, per_kv = word(o + O_DIM), word(o + O_PER_KV)
        rows = gather_queries(o, tile, kv_head, work)
        sums, results = work + SCORE_BYTES, work + SCORE_BYTES + SUM_BYTES
        positions = word(o + O_POSITIONS)
        first, count = load_i32(tile), load_i32(tile + 4)
        for row in range(rows):
            store_float(states + 8 * row, NOTHING)
            store_float(states + 8 * row + 4, types.float32(0.0))
            for element in range(0, head_dim, WIDTH):
                store(vectors + 4 * (row * head_dim + element), splat(types.float32(0.0)))
        begin = first_span(o, load_i32(positions + 4 * first))
        end = load_i32(positions + 4 * (first + count - 1)) // SPAN + 1
        for span in range(begin, end):
            for first_row in range(0, rows, ROWS):
                size = min(ROWS, rows - first_row)
                if load_i32(positions + 4 * (first + (first_row + size - 1) // per_kv)) < span * SPAN:
                    continue
                partial_span(o, table, kv_head, size, first_row, span, work)
                for row in range(size):
                    if load_float(results + 8 * row + 4) > types.float32(0.0):
                        at = vectors + 4 * (first_row + row) * head_dim
                        fold(states + 8 * (first_row + row), at, results + 8 * row, sums + 4 * row * head_dim, head_dim)
        for row in range(rows):
            out = word(o + O_OUT) + (first + row // per_kv) * word(o + O_OUT_STRIDE)
            head = kv_head * per_kv + row % per_kv
            finish(
                states + 8 * row, vectors + 4 * row * head_dim, out + head * head_dim * 4, head_dim, sink_of(o, head)
            )

    return attend_whole


def make_attend_span(partial_span):
    """(o, tile, kv_head, table, span) for one way to compute partial results."""

    @njit(types.void(*[types.intp] * 5), **INLINE)
    def attend_span(o, tile, kv_head, table, span):
        """One span of a tile: its partial results go to memory, for `combine`."""
        work = stack_bytes(WORK_BYTES)
        head_dim, per_kv, num_spans = word(o + O_DIM), word(o + O_PER_KV), word(word(o + O_SPANS))
        sums, results = work + SCORE_BYTES, work + SCORE_BYTES + SUM_BYTES
        first, count = load_i32(tile), load_i32(tile + 4)
        last_position = load_i32(word(o + O_POSITIONS) + 4 * (first + count - 1))
        cell_bytes = 4 * (head_dim + WIDTH)
        num_heads = per_kv * word(o + O_KV_HEADS)
        rows = count * per_kv
        is_seen = span >= first_span(o, load_i32(word(o + O_POSITIONS) + 4 * first)) and span * SPAN <= last_position
        if is_seen:
            gather_queries(o, tile, kv_head, work)
        for first_row in range(0, rows, ROWS):
            size = min(ROWS, rows - first_row)
            if is_seen:
                partial_span(o, table, kv_head, size, first_row, span, work)
            for row in range(size):
                token, head = first + (first_row + row) // per_kv, kv_head * per_kv + (first_row + row) % per_kv
                cell = word(o + O_PARTIAL) + ((token * num_heads + head) * num_spans + span) * cell_bytes
                store_float(cell, load_float(results + 8 * row))
                store_float(cell + 4, load_float(results + 8 * row + 4) if is_seen else types.float32(0.0))
                for element in range(0, head_dim if is_seen else 0, WIDTH):
                    store(cell + 4 * (WIDTH + element), load(sums + 4 * (row * head_dim + element)))

    return attend_span


def make_attend(cache_types: CacheTypes):
    """The kernel: chunk = (tile * KV heads + KV head) * spans + span (spans 1 and not split: a whole tile)."""

    partial_span = make_partial_span(cache_types)
    attend_whole, attend_span = make_attend_whole(partial_span), make_attend_span(partial_span)

    def attend(o, chunk):
        num_spans, num_kv_heads = word(word(o + O_SPANS)), word(o + O_KV_HEADS)
        pieces = max(num_spans, 1)
        span, rest = chunk % pieces, chunk // pieces
        kv_head = rest % num_kv_heads
        tile = word(o + O_TILES) + rest // num_kv_heads * 12
        table = word(o + O_TABLES) + load_i32(tile + 8) * word(o + O_TABLE_STRIDE)
        if num_spans == 0:
            attend_whole(o, tile, kv_head, table)
        else:
            attend_span(o, tile, kv_head, table, span)

    return attend


def make_combine():
    """Folds the partial results of a token and KV head in span order; chunk = token * KV heads + KV head."""

    def combine(o, chunk):
        num_spans, num_kv_heads, per_kv = word(word(o + O_SPANS)), word(o + O_KV_HEADS), word(o + O_PER_KV)
        head_dim = word(o + O_DIM)
        vector, state = stack_bytes(SUM_BYTES), stack_bytes(64)
        cell_bytes = 4 * (head_dim + WIDTH)
        token, kv_head = chunk // num_kv_heads, chunk % num_kv_heads
        for head in range(kv_head * per_kv, (kv_head + 1) * per_kv):
            cells = word(o + O_PARTIAL) + (token * per_kv * num_kv_heads + head) * num_spans * cell_bytes
            store_float(state, NOTHING)
            store_float(state + 4, types.float32(0.0))
            for element in range(0, head_dim, WIDTH):
                store(vector + 4 * element, splat(types.float32(0.0)))
            for span in range(num_spans):
                cell = cells + span * cell_bytes
                if load_float(cell + 4) > types.float32(0.0):
                    fold(state, vector, cell, cell + 4 * WIDTH, head_dim)
            out = word(o + O_OUT) + token * word(o + O_OUT_STRIDE) + head * head_dim * 4
            finish(state, vector, out, head_dim, sink_of(o, head))

    return combine
