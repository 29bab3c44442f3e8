// Attention of a prompt's tokens over the pages of K and V: many tokens share what is read.
//
// Mapping   A block of 128 threads does 32 rows: up to 4 query heads of one KV head, and 32 / heads tokens.  It walks the
//           pages: 64 positions of K against the rows (a thread 4 rows x 4 positions), the running softmax, and the
//           weights against V (a thread 4 rows x 4 of every 64 elements).  Tokens of several sequences in one tile are
//           done one sequence after the other.
// Order     A (token, head) result runs over the pages in ascending order and over elements and positions within them in
//           order; a page that a token does not see leaves its numbers as they are.  So it does not depend on the tokens
//           beside it or on the cut of the prompt.  It is another order than that of attention.cu: the caller chooses by
//           phase, not by token count.
// Bytes     K and V once for every 32 rows, queries once a page (from L2).  Shared memory: 28 KB.
// Work      Of K and of V each, 16 fused multiply-adds a thread for two 16-byte reads of shared memory.
// Measured  Not yet on a card.
#include "kv_pages.cuh"
#include "modes.cuh"

#define THREADS 128
#define ROWS 32
#define HEADS 4
#define DEPTH 32      // elements of K that are in shared memory at a time
#define COLUMNS 64    // elements of V
#define PIECES 4      // of COLUMNS that a head has at most
#define NOTHING -3.0e38f

struct __align__(16) Tile {
    float keys_or_values[PAGE * COLUMNS];  // K: [DEPTH][PAGE], V: [PAGE][COLUMNS]
    float queries[DEPTH][ROWS];
    float weights[PAGE][ROWS];
};

struct Range {  // positions, beginning with one that may be seen, and the sequence that they belong to
    int first, last;
};

__device__ __forceinline__ void add_outer(float (&sums)[4][4], const float4 rows, const float4 columns) {
    const float row[4] = {rows.x, rows.y, rows.z, rows.w}, column[4] = {columns.x, columns.y, columns.z, columns.w};
#pragma unroll
    for (int i = 0; i < 4; i++)
#pragma unroll
        for (int j = 0; j < 4; j++) sums[i][j] = fmaf(row[i], column[j], sums[i][j]);
}

// The sum (or the largest) over the 16 lanes that share rows, the same in each of them.
__device__ __forceinline__ float sum_of_16(float value) {
#pragma unroll
    for (int bits = 8; bits; bits >>= 1) value += __shfl_xor_sync(0xffffffffu, value, bits);
    return value;
}
__device__ __forceinline__ float most_of_16(float value) {
#pragma unroll
    for (int bits = 8; bits; bits >>= 1) value = fmaxf(value, __shfl_xor_sync(0xffffffffu, value, bits));
    return value;
}

extern "C" {

// out[token][head] for `count` tokens.  soft_cap 0: none; sinks: see combine in attention.cu.
// Grid: (tokens / (32 / heads of a block), KV heads * ceil(heads of one / 4)).
__global__ void __launch_bounds__(THREADS, 3) attend_prompt(
    const float* q, int q_stride, byte* cache, const int* positions, const int* slots, const int* page_tables,
    int table_stride, int count, int num_heads, int num_kv_heads, int head_dim, float scale, int window,
    float soft_cap, const float* sinks, float* out, int out_stride) {
    __shared__ Tile tile;
    const int group = num_heads / num_kv_heads, batches = (group + HEADS - 1) / HEADS;
    const int kv_head = blockIdx.y / batches, first_head = kv_head * group + blockIdx.y % batches * HEADS;
    const int most_heads = min(group, HEADS), tokens = ROWS / most_heads;
    const int heads = min(HEADS, (kv_head + 1) * group - first_head);
    const int thread = threadIdx.x, own_rows = thread / 16 * 4, own_columns = thread % 16 * 4;
    const int end = min(count, ((int)blockIdx.x + 1) * tokens);

    for (int from = blockIdx.x * tokens; from < end;) {
        const int slot = slots[from];
        int to = from + 1;
        while (to < end && slots[to] == slot) to++;
        const int num_rows = (to - from) * heads;
        const Range seen = {visible_to(positions[from], window).first, positions[to - 1]};
        const int* page_table = page_tables + slot * table_stride;
        Visible of_row[4];
        float most[4], totals[4], results[PIECES][4][4];
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int row = own_rows + i;
            of_row[i] = visible_to(positions[from + min(row / heads, to - from - 1)], window);
            most[i] = NOTHING, totals[i] = 0.0f;
        }
#pragma unroll
        for (int piece = 0; piece < PIECES; piece++)
#pragma unroll
            for (int i = 0; i < 4; i++)
#pragma unroll
                for (int j = 0; j < 4; j++) results[piece][i][j] = 0.0f;

        for (int start = seen.first / PAGE * PAGE; start <= seen.last; start += PAGE) {
            const byte* page = page_of(cache, page_table, start, kv_head, num_kv_heads, head_dim);
            float scores[4][4] = {};
            for (int depth = 0; depth < head_dim; depth += DEPTH) {
                __syncthreads();
                for (int i = thread; i < DEPTH * ROWS; i += THREADS) {
                    const int row = i / DEPTH, element = depth + i % DEPTH;
                    float value = 0.0f;
                    if (row < num_rows && element < head_dim)
                        value = q[(size_t)(from + row / heads) * q_stride + (first_head + row % heads) * head_dim + element];
                    tile.queries[i % DEPTH][row] = value * scale;
                }
                for (int i = thread; i < DEPTH / 8 * PAGE; i += THREADS) {
                    const int chunk = depth / 8 + i / PAGE, position = start + i % PAGE;
                    float key[8] = {};
                    if (chunk * 8 < head_dim && position >= seen.first && position <= seen.last)
                        load_key(page, position, chunk, head_dim, key);
#pragma unroll
                    for (int k = 0; k < 8; k++) tile.keys_or_values[(i / PAGE * 8 + k) * PAGE + i % PAGE] = key[k];
                }
                __syncthreads();
#pragma unroll 4
                for (int element = 0; element < DEPTH; element++)
                    add_outer(scores, *(const float4*)&tile.queries[element][own_rows],
                              *(const float4*)&tile.keys_or_values[element * PAGE + own_columns]);
            }
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const int first = of_row[i].first - start - own_columns, last = of_row[i].last - start - own_columns;
#pragma unroll
                for (int j = 0; j < 4; j++) scores[i][j] = softly_capped(scores[i][j], soft_cap);
                float largest = NOTHING;
#pragma unroll
                for (int j = 0; j < 4; j++)
                    if (j >= first && j <= last) largest = fmaxf(largest, scores[i][j]);
                largest = fmaxf(most[i], most_of_16(largest));
                const float factor = expf(most[i] - largest);
                float sum = 0.0f;
#pragma unroll
                for (int j = 0; j < 4; j++) {
                    const float weight = j >= first && j <= last ? expf(scores[i][j] - largest) : 0.0f;
                    tile.weights[own_columns + j][own_rows + i] = weight;
                    sum += weight;
                }
                totals[i] = fmaf(totals[i], factor, sum_of_16(sum));
                most[i] = largest;
#pragma unroll
                for (int piece = 0; piece < PIECES; piece++)
#pragma unroll
                    for (int j = 0; j < 4; j++) results[piece][i][j] *= factor;
            }
#pragma unroll
            for (int piece = 0; piece < PIECES; piece++) {
                if (piece * COLUMNS >= head_dim) break;
                __syncthreads();
                for (int i = thread; i < PAGE * COLUMNS / 8; i += THREADS) {
                    const int chunk = piece * (COLUMNS / 8) + i % (COLUMNS / 8), position = start + i / (COLUMNS / 8);
                    float value[8] = {};
                    if (chunk * 8 < head_dim && position >= seen.first && position <= seen.last)
                        load_value(page, position, chunk, head_dim, value);
                    float4* target = (float4*)&tile.keys_or_values[i * 8];
                    target[0] = make_float4(value[0], value[1], value[2], value[3]);
                    target[1] = make_float4(value[4], value[5], value[6], value[7]);
                }
                __syncthreads();
#pragma unroll 4
                for (int position = 0; position < PAGE; position++)
                    add_outer(results[piece], *(const float4*)&tile.weights[position][own_rows],
                              *(const float4*)&tile.keys_or_values[position * COLUMNS + own_columns]);
            }
        }
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int row = own_rows + i;
            if (row >= num_rows) continue;
            float* target = out + (size_t)(from + row / heads) * out_stride + (first_head + row % heads) * head_dim;
            float factor = 1.0f;
            if (sinks) {
                const float sink = sinks[first_head + row % heads], largest = fmaxf(most[i], sink);
                factor = expf(most[i] - largest);
                totals[i] = fmaf(totals[i], factor, expf(sink - largest));
            }
#pragma unroll
            for (int piece = 0; piece < PIECES; piece++)
#pragma unroll
                for (int j = 0; j < 4; j++) {
                    const int column = piece * COLUMNS + own_columns + j;
                    if (column < head_dim) target[column] = results[piece][i][j] * factor / totals[i];
                }
        }
        from = to;
    }
}
}
