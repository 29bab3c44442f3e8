// Products of quantised matrices with many tokens on the int8 tensor cores: what reads a prompt.
//
// Mapping   A block of 128 threads does 64 rows x 64 tokens: a warp 16 rows, eight tiles of 8 tokens.  Eight units of
//           all tokens (256 columns) are brought to shared memory at a time; weights go from the planes straight into
//           fragments: lane 4 g + t takes word t of rows g and g + 8, whose low and high nibbles are columns 4 t and
//           16 + 4 t, just what the fragment wants.
// Order     A (token, row) sum runs over the units in ascending order, whatever the tile, the batch or the cut of a
//           prompt.  It is another order than that of product.cu: the caller chooses by phase, not by token count.
// Bytes     Weights once for every 64 tokens, records once for every 64 rows (from L2).  Shared memory: rows of 272
//           bytes, so that the 32 words that a warp reads lie in 32 banks.
// Work      A unit, 16 rows and 8 tokens: one m16n8k32 a term (two m16n8k16 where 16 columns share a scale; four
//           m8n8k16 on Turing), then 4 conversions and 8 to 12 fused multiply-adds a lane.
// Measured  Not yet on a card.
#include "layout.h"
#include "modes.cuh"
#include "portable.cuh"
#include "records.cuh"
#include "tensor_cores.cuh"
#include "unpack.cuh"

#define THREADS 128
#define WARPS 4
#define ROWS_OF_WARP 16
#define TOKENS 64
#define TILES (TOKENS / 8)
#define UNITS_OF_STEP 8
#define PADDED (UNITS_OF_STEP * WARP + 16)

struct Stage {
    int4 codes[TERMS][TOKENS][PADDED / 16];
    float scales[UNITS_OF_STEP][TOKENS];
    int2 sums[UNITS_OF_STEP][TOKENS];
};

// Brings units first_unit to first_unit + 7 of the block's tokens; zeros where there is none.
__device__ __forceinline__ void fill(Stage& stage, const Records& x, int first_token, int count, int first_unit) {
    for (int term = 0; term < TERMS; term++) {
        for (int i = threadIdx.x; i < TOKENS * UNITS_OF_STEP * 2; i += THREADS) {
            const int token = i / (UNITS_OF_STEP * 2), piece = i % (UNITS_OF_STEP * 2), unit = first_unit + piece / 2;
            int4 codes = {0, 0, 0, 0};
            if (token < count && unit < x.units) {
                const size_t at = ((size_t)(first_token + token) * x.units + unit) * WARP + piece % 2 * 16;
                codes = *(const int4*)(x.codes + term * x.term_stride + at);
            }
            stage.codes[term][token][piece] = codes;
        }
    }
    for (int i = threadIdx.x; i < TOKENS * UNITS_OF_STEP; i += THREADS) {
        const int token = i / UNITS_OF_STEP, step = i % UNITS_OF_STEP, unit = first_unit + step;
        const bool is_there = token < count && unit < x.units;
        const size_t place = is_there ? (size_t)(first_token + token) * x.units + unit : 0;
        stage.scales[step][token] = is_there ? x.scales[place] : 0.0f;
        stage.sums[step][token] = is_there ? x.sums[place] : make_int2(0, 0);
    }
}

__device__ __forceinline__ float scaled(float scale, float minimum, int dot, int sum, float before) {
    float part = fmaf(scale, (float)(dot - ZERO_POINT * sum), before);
    if (MINIMUM_SIGN) part = fmaf(minimum, (float)sum, part);
    return part;
}

struct Rows {  // a unit of rows g and g + 8, as lane 4 g + t holds it
    unsigned words[4];
    float scale[2][GROUPS], minimum[2][GROUPS];
};

__device__ __forceinline__ Rows load_rows(const Planes& planes, const int (&rows)[2], int unit) {
    Rows loaded;
    const int word = lane_of_thread() & 3;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const size_t at = (size_t)rows[i] * planes.units + unit;
        int first, last;
        load_pair(planes, at, word, first, last);
        loaded.words[i] = (unsigned)first;
        loaded.words[i + 2] = (unsigned)last;
        load_scales(planes, at, loaded.scale[i], loaded.minimum[i]);
    }
    return loaded;
}

// One unit of 16 rows and the 8 tokens of a tile.
__device__ __forceinline__ void multiply_tile(const Rows& rows, const Stage& stage, int step, int tile,
                                              float (&sums)[4]) {
    const int lane = lane_of_thread(), g = lane / 4, t = lane % 4, token = tile * 8 + 2 * t;
    int dots[GROUPS][4];
#pragma unroll
    for (int term = 0; term < TERMS; term++) {
        const unsigned* codes = (const unsigned*)stage.codes[term][tile * 8 + g] + step * 8;
        const unsigned b[2] = {codes[t], codes[t + 4]};
#pragma unroll
        for (int group = 0; group < GROUPS; group++)
#pragma unroll
            for (int i = 0; i < 4; i++) dots[group][i] = term ? dots[group][i] * 256 : 0;
#if GROUPS_OF_UNIT == 1
        multiply_32(dots[0], rows.words, b);
#else
        multiply_16(dots[0], rows.words, b);
        multiply_16(dots[1], rows.words + 2, b + 1);
#endif
    }
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const int row = i / 2, own = token + i % 2;
        const int2 of_token = stage.sums[step][own];
        float part = 0.0f;
#pragma unroll
        for (int group = 0; group < GROUPS; group++) {
            const int sum = GROUPS == 1 ? of_token.x + of_token.y : (group ? of_token.y : of_token.x);
            part = scaled(rows.scale[row][group], rows.minimum[row][group], dots[group][i], sum, part);
        }
        sums[i] = fmaf(stage.scales[step][own], part, sums[i]);
    }
}

extern "C" {

// out[token][row] (+)= (x . weights[row] + bias[row]) * scale for all `count` tokens.  Grid: (rows / 64, tokens / 64).
__global__ void __launch_bounds__(THREADS) product_prefill(const byte* weights, int num_rows, int units, byte* records,
                                                           int capacity, int count, const float* bias, float scale,
                                                           int mode, float* out, int out_stride) {
    __shared__ Stage stage;
    const int lane = lane_of_thread(), g = lane / 4, t = lane % 4;
    const int first_row = (blockIdx.x * WARPS + warp_of_thread()) * ROWS_OF_WARP;
    const int first_token = blockIdx.y * TOKENS;
    const int own_rows[2] = {min(first_row + g, num_rows - 1), min(first_row + g + 8, num_rows - 1)};
    const Planes planes = planes_at(weights, num_rows, units);
    const Records x = records_at(records, capacity, units, TERMS);
    float sums[TILES][4];
#pragma unroll
    for (int tile = 0; tile < TILES; tile++)
#pragma unroll
        for (int i = 0; i < 4; i++) sums[tile][i] = 0.0f;
    for (int first_unit = 0; first_unit < units; first_unit += UNITS_OF_STEP) {
        __syncthreads();
        fill(stage, x, first_token, count - first_token, first_unit);
        __syncthreads();
        for (int step = 0; step < UNITS_OF_STEP && first_unit + step < units; step++) {
            const Rows rows = load_rows(planes, own_rows, first_unit + step);
#pragma unroll
            for (int tile = 0; tile < TILES; tile++) multiply_tile(rows, stage, step, tile, sums[tile]);
        }
    }
#pragma unroll
    for (int tile = 0; tile < TILES; tile++) {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int row = first_row + g + i / 2 * 8, token = first_token + tile * 8 + 2 * t + i % 2;
            if (row >= num_rows || token >= count) continue;
            const float sum = (sums[tile][i] + (bias ? bias[row] : 0.0f)) * scale;
            float* target = out + (size_t)token * out_stride + row;
            *target = mode == ADD ? *target + sum : sum;
        }
    }
}
}
