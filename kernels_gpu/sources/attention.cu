// Rotation of Q and K, the pages of K and V, and attention over them for a few tokens at a time.
//
// Layout    Pages: see kv_pages.cuh.
//           A partial result is head_dim sums, and before them 4 floats: maximum, sum of exponentials, two of padding;
//           they lie [token][head][span].
// Mapping   attend: a block of 128 threads for a span of 128 positions, one token, up to 4 query heads of one KV head.
//           Scores: a thread a position.  Values: a thread 8 elements and every (128 * 8 / head_dim)th position.
//           combine: a block a token and head; it rounds the result to records, too.  rotate: a warp a token and head (Q, K and V heads alike).
// Order     Spans begin at multiples of 128 positions, whatever the batch; a span's sums run in a fixed order and spans
//           are combined in order: a token's result does not depend on the tokens beside it.
// Bytes     K and V once for every 4 query heads of a KV head: 4 * head_dim a position (q8_0: 2.13, q4_0: 1.13).  Partial results:
//           4 * (head_dim + 4) a head and span, written and read once.
// Loads     16 bytes a thread throughout (q8_0: 8, q4_0: 4, and 2 of a scale); head_dim / 8 of them for a position's K, as many
//           for its V.  In the machine code of sm_86: 8 loads of 16 bytes a position's K and V in one round of the loops
//           that the compiler unrolls (q8_0: 2 of 8 bytes and 2 of 2), 64 (72) registers, so 8 (7) blocks a multiprocessor.
// Expected  With 4 query heads a KV head, 8 fused multiply-adds for 4 bytes of f16: while the memory delivers at its full
//           rate the float lanes of an RTX 3060 are busy 11 % of the time, of a 4070 7 %, a 4090 5 %, a 5090 7 %.  Memory is
//           the limit where there are blocks enough to fill the card (KV heads times spans of 128 positions).
// Measured  Not yet on a card.
#include "kv_pages.cuh"
#include "modes.cuh"
#include "rounding.cuh"

#define SPAN 128
#define THREADS 128
#define WARPS 4
#define HEADS 4
#define HEADER 4
#define MAX_HEAD_DIM 256

struct __align__(16) Row { float values[MAX_HEAD_DIM]; };  // of one head

// Element i of a rotated head; angles: cosine and sine of each pair.
__device__ __forceinline__ float rotated(const float* x, int i, const float2* angles, int dimensions,
                                         int is_neighbours) {
    if (!angles || i >= dimensions) return x[i];
    const int half = dimensions / 2;
    const int pair = is_neighbours ? i / 2 : i % half;
    const bool is_first = is_neighbours ? i % 2 == 0 : i < half;
    const float first = x[is_neighbours ? 2 * pair : pair];
    const float second = x[is_neighbours ? 2 * pair + 1 : pair + half];
    const float2 turn = angles[pair];
    return is_first ? fmaf(first, turn.x, -(second * turn.y)) : fmaf(first, turn.y, second * turn.x);
}

// A normalised Hadamard transform of a head in shared memory, by a warp, over the largest power of two that divides its
// size: it spreads outliers, which 4 bits would not survive.  Between queries and keys it changes no product.
__device__ __forceinline__ void transform(float* x, int head_dim) {
    const int size = head_dim & -head_dim;
    float factor = 1.0f;
    for (int width = 1; width < size; width *= 2) {
        __syncwarp();
        for (int pair = lane_of_thread(); pair < head_dim / 2; pair += WARP) {
            float* at = x + pair / width * 2 * width + pair % width;
            const float first = at[0], second = at[width];
            at[0] = first + second, at[width] = first - second;
        }
        factor *= 0.70710678f;
    }
    __syncwarp();
    for (int i = lane_of_thread(); i < head_dim; i += WARP) x[i] *= factor;
    __syncwarp();
}

extern "C" {

// Q besides grows by 1 + temperature * ln(1 + position / temperature_length), where that is not 0.
// Grid: (heads of Q, K and V / 4 warps, tokens).
__global__ void __launch_bounds__(THREADS) rotate_and_store(
    float* q, int q_stride, const float* k, const float* v, int kv_stride, int num_heads, int num_kv_heads,
    int head_dim, const float* q_norm, const float* k_norm, float epsilon, const float2* angles, int dimensions,
    int is_neighbours, float temperature, int temperature_length, const int* positions, const int* slots,
    const int* page_tables, int table_stride, byte* cache) {
    __shared__ float shared[WARPS][MAX_HEAD_DIM];
    const int token = blockIdx.y, lane = lane_of_thread();
    const int head = blockIdx.x * WARPS + warp_of_thread();
    if (head >= num_heads + 2 * num_kv_heads) return;
    const bool is_q = head < num_heads, is_v = head >= num_heads + num_kv_heads;
    const int kv_head = is_q ? 0 : head - num_heads - (is_v ? num_kv_heads : 0);
    const int position = positions[token];
    float* own = q + (size_t)token * q_stride + (size_t)(is_q ? head : 0) * head_dim;
    const float* from = is_q ? own : (is_v ? v : k) + (size_t)token * kv_stride + (size_t)kv_head * head_dim;
    const float* norm = is_q ? q_norm : (is_v ? nullptr : k_norm);
    float* x = shared[warp_of_thread()];
    float squares = 0.0f;
    for (int i = lane; i < head_dim; i += WARP) {
        x[i] = from[i];
        squares = fmaf(x[i], x[i], squares);
    }
    if (norm) {
        const float factor = 1.0f / sqrtf(warp_sum(squares) / (float)head_dim + epsilon);
        for (int i = lane; i < head_dim; i += WARP) x[i] = x[i] * factor * norm[i];
    }
    __syncwarp();
    const float2* turns = angles && !is_v ? angles + (size_t)position * (dimensions / 2) : nullptr;
    float warmth = 1.0f;
    if (is_q && temperature_length)
        warmth = fmaf(temperature, logf(1.0f + (float)(position / temperature_length)), 1.0f);
    byte* page = nullptr;
    if (!is_q) page = page_of(cache, page_tables + slots[token] * table_stride, position, kv_head, num_kv_heads, head_dim);
    float turned[MAX_HEAD_DIM / WARP];
#pragma unroll
    for (int idx = 0; idx < MAX_HEAD_DIM / WARP; idx++) {
        const int i = idx * WARP + lane;
        turned[idx] = i < head_dim ? rotated(x, i, turns, dimensions, is_neighbours) : 0.0f;
    }
    if (K_KIND == NIBBLES && !is_v) {
        __syncwarp();
#pragma unroll
        for (int idx = 0; idx < MAX_HEAD_DIM / WARP; idx++)
            if (idx * WARP + lane < head_dim) x[idx * WARP + lane] = turned[idx];
        transform(x, head_dim);
#pragma unroll
        for (int idx = 0; idx < MAX_HEAD_DIM / WARP; idx++)
            if (idx * WARP + lane < head_dim) turned[idx] = x[idx * WARP + lane];
    }
#pragma unroll
    for (int idx = 0; idx < MAX_HEAD_DIM / WARP; idx++) {
        const int i = idx * WARP + lane;
        if (i >= head_dim) break;
        if (is_q) own[i] = turned[idx] * warmth;
        else store_element(page, is_v, position, i, head_dim, turned[idx]);
    }
}

// Grid: (spans, KV heads * ceil(heads of one / 4), tokens).  Dynamic shared memory: 4 * (4 * head_dim + 1024) bytes.
__global__ void __launch_bounds__(THREADS) attend(
    const float* q, int q_stride, byte* cache, const int* positions, const int* slots, const int* page_tables,
    int table_stride, int num_heads, int num_kv_heads, int head_dim, float scale, int window, float soft_cap,
    float* partial, int max_spans) {
    extern __shared__ __align__(16) float dynamic[];
    __shared__ float weights[HEADS][SPAN];
    __shared__ float most_of_warp[HEADS][WARPS], sum_of_warp[HEADS][WARPS];
    const int token = blockIdx.z, span = blockIdx.x, thread = threadIdx.x;
    const Visible seen = visible_to(positions[token], window);
    if (span < seen.first / SPAN || span > seen.last / SPAN) return;
    const int group = num_heads / num_kv_heads, batches = (group + HEADS - 1) / HEADS;
    const int kv_head = blockIdx.y / batches, first_head = kv_head * group + blockIdx.y % batches * HEADS;
    const int heads = min(HEADS, (kv_head + 1) * group - first_head);
    const int* page_table = page_tables + slots[token] * table_stride;
    const int chunks = head_dim / 8;
    float *queries = dynamic, *folded = dynamic + HEADS * head_dim;

    for (int i = thread; i < HEADS * head_dim; i += THREADS)
        queries[i] = i < heads * head_dim ? q[(size_t)token * q_stride + (size_t)first_head * head_dim + i] * scale : 0.0f;
    __syncthreads();

    const int position = span * SPAN + thread;
    const bool is_seen = position >= seen.first && position <= seen.last;
    float scores[HEADS] = {0.0f, 0.0f, 0.0f, 0.0f};
    if (is_seen) {
        const byte* page = page_of(cache, page_table, position, kv_head, num_kv_heads, head_dim);
        for (int chunk = 0; chunk < chunks; chunk++) {
            float key[8];
            load_key(page, position, chunk, head_dim, key);
#pragma unroll
            for (int head = 0; head < HEADS; head++) {
                const float* query = queries + head * head_dim + chunk * 8;
#pragma unroll
                for (int i = 0; i < 8; i++) scores[head] = fmaf(key[i], query[i], scores[head]);
            }
        }
    }
    float most[HEADS], sums[HEADS];
#pragma unroll
    for (int head = 0; head < HEADS; head++) {
        scores[head] = softly_capped(scores[head], soft_cap);
        const float of_warp = warp_max(is_seen ? scores[head] : -3.0e38f);
        if (lane_of_thread() == 0) most_of_warp[head][warp_of_thread()] = of_warp;
    }
    __syncthreads();
#pragma unroll
    for (int head = 0; head < HEADS; head++) {
        most[head] = most_of_warp[head][0];
        for (int warp = 1; warp < WARPS; warp++) most[head] = fmaxf(most[head], most_of_warp[head][warp]);
        const float weight = is_seen ? expf(scores[head] - most[head]) : 0.0f;
        weights[head][thread] = weight;
        const float of_warp = warp_sum(weight);
        if (lane_of_thread() == 0) sum_of_warp[head][warp_of_thread()] = of_warp;
    }
    __syncthreads();
#pragma unroll
    for (int head = 0; head < HEADS; head++) {
        sums[head] = 0.0f;
        for (int warp = 0; warp < WARPS; warp++) sums[head] += sum_of_warp[head][warp];
    }

    const int chunk = thread % chunks, turn = thread / chunks, turns = THREADS / chunks;
    const int from = max(seen.first - span * SPAN, 0), to = min(seen.last - span * SPAN, SPAN - 1);
    float values[HEADS][8];
#pragma unroll
    for (int head = 0; head < HEADS; head++)
#pragma unroll
        for (int i = 0; i < 8; i++) values[head][i] = 0.0f;
    if (turn < turns) {
        for (int at = turn; at <= to; at += turns) {
            if (at < from) continue;
            const int of_value = span * SPAN + at;
            const byte* page = page_of(cache, page_table, of_value, kv_head, num_kv_heads, head_dim);
            float value[8];
            load_value(page, of_value, chunk, head_dim, value);
#pragma unroll
            for (int head = 0; head < HEADS; head++) {
                const float weight = weights[head][at];
#pragma unroll
                for (int i = 0; i < 8; i++) values[head][i] = fmaf(weight, value[i], values[head][i]);
            }
        }
    }
#pragma unroll
    for (int head = 0; head < HEADS; head++) {
        if (turn < turns) {
            float4* mine = (float4*)(folded + turn * head_dim + chunk * 8);
            mine[0] = make_float4(values[head][0], values[head][1], values[head][2], values[head][3]);
            mine[1] = make_float4(values[head][4], values[head][5], values[head][6], values[head][7]);
        }
        __syncthreads();
        if (head < heads) {
            const size_t cell = ((size_t)token * num_heads + first_head + head) * max_spans + span;
            float* target = partial + cell * (head_dim + HEADER);
            for (int i = thread; i < head_dim; i += THREADS) {
                float sum = 0.0f;
                for (int other = 0; other < turns; other++) sum += folded[other * head_dim + i];
                target[HEADER + i] = sum;
            }
            if (thread == 0) target[0] = most[head], target[1] = sums[head];
        }
        __syncthreads();
    }
}

// sinks: a score for each head that only takes part in the sum of exponentials; none without an address.  Records of out
// in one and in two terms where the pointer is given (head_dim is a multiple of 32 then); `first`: of the tokens there.
// Grid: (heads, tokens).
__global__ void __launch_bounds__(THREADS) combine(const float* partial, int max_spans, const int* positions,
                                                   int num_heads, int head_dim, int window, const float* sinks,
                                                   float* out, int out_stride, int units, byte* single, byte* pair,
                                                   int capacity, int first_token) {
    __shared__ float factors[THREADS], totals[THREADS], most_of_warp[WARPS];
    __shared__ Row row;
    const int head = blockIdx.x, token = blockIdx.y, thread = threadIdx.x;
    const Visible seen = visible_to(positions[token], window);
    const int first = seen.first / SPAN, last = seen.last / SPAN, cell_size = head_dim + HEADER;
    const float* cells = partial + ((size_t)token * num_heads + head) * max_spans * cell_size;
    float most = sinks ? sinks[head] : -3.0e38f;
    for (int span = first + thread; span <= last; span += THREADS) most = fmaxf(most, cells[(size_t)span * cell_size]);
    most = warp_max(most);
    if (lane_of_thread() == 0) most_of_warp[warp_of_thread()] = most;
    __syncthreads();
    for (int warp = 0; warp < WARPS; warp++) most = fmaxf(most, most_of_warp[warp]);
    float total = sinks ? expf(sinks[head] - most) : 0.0f;
    float sums[MAX_HEAD_DIM / THREADS] = {};
    for (int start = first; start <= last; start += THREADS) {
        __syncthreads();
        if (start + thread <= last) {
            const float* cell = cells + (size_t)(start + thread) * cell_size;
            factors[thread] = expf(cell[0] - most);
            totals[thread] = cell[1] * factors[thread];
        }
        __syncthreads();
        const int count = min(THREADS, last - start + 1);
#pragma unroll 8
        for (int span = 0; span < count; span++) {
            const float* cell = cells + (size_t)(start + span) * cell_size + HEADER;
            total += totals[span];
#pragma unroll
            for (int piece = 0; piece < MAX_HEAD_DIM / THREADS; piece++) {
                const int i = piece * THREADS + thread;
                if (i < head_dim) sums[piece] = fmaf(cell[i], factors[span], sums[piece]);
            }
        }
    }
#pragma unroll
    for (int piece = 0; piece < MAX_HEAD_DIM / THREADS; piece++) {
        const int i = piece * THREADS + thread;
        if (i >= head_dim) break;
        row.values[i] = sums[piece] / total;
        out[(size_t)token * out_stride + head * head_dim + i] = row.values[i];
    }
    if (!single && !pair) return;
    __syncthreads();
    if (warp_of_thread()) return;
    const int lane = lane_of_thread(), unit = head * (head_dim / WARP) + lane / 4;
    const bool is_inside = lane < head_dim / COLUMNS_OF_LANE;
    float values[COLUMNS_OF_LANE];
    read_columns(row.values + (is_inside ? lane : 0) * COLUMNS_OF_LANE, values);
    const int place = first_token + token;
    if (single) round_columns(values, records_at(single, capacity, units, 1), 1, place, unit, is_inside);
    if (pair) round_columns(values, records_at(pair, capacity, units, 2), 2, place, unit, is_inside);
}
}
