// 64 rows of a quantised matrix times 64 tokens on the int8 tensor cores: what prefill.cu and prefill_experts.cu share.
//
// Mapping, order of the sums and shared memory: see prefill.cu.
#pragma once
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
    int places[TOKENS];  // of the tokens' records
};

// Brings units first_unit to first_unit + 7 of the block's tokens; zeros where there is none.
__device__ __forceinline__ void fill(Stage& stage, const Records& x, int count, int first_unit) {
    for (int term = 0; term < TERMS; term++) {
        for (int i = threadIdx.x; i < TOKENS * UNITS_OF_STEP * 2; i += THREADS) {
            const int token = i / (UNITS_OF_STEP * 2), piece = i % (UNITS_OF_STEP * 2), unit = first_unit + piece / 2;
            int4 codes = {0, 0, 0, 0};
            if (token < count && unit < x.units) {
                const size_t at = ((size_t)stage.places[token] * x.units + unit) * WARP + piece % 2 * 16;
                codes = *(const int4*)(x.codes + term * x.term_stride + at);
            }
            stage.codes[term][token][piece] = codes;
        }
    }
    for (int i = threadIdx.x; i < TOKENS * UNITS_OF_STEP; i += THREADS) {
        const int token = i / UNITS_OF_STEP, step = i % UNITS_OF_STEP, unit = first_unit + step;
        const bool is_there = token < count && unit < x.units;
        const size_t place = is_there ? (size_t)stage.places[token] * x.units + unit : 0;
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
        const unsigned at = (unsigned)rows[i] * planes.units + unit;
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

// The sums of a warp's 16 rows for the block's tokens.  own_rows: rows g and g + 8; stage.places are set.
__device__ __forceinline__ void multiply_all(const Planes& planes, const Records& x, const int (&own_rows)[2], int count,
                                             Stage& stage, float (&sums)[TILES][4]) {
#pragma unroll
    for (int tile = 0; tile < TILES; tile++)
#pragma unroll
        for (int i = 0; i < 4; i++) sums[tile][i] = 0.0f;
    for (int first_unit = 0; first_unit < planes.units; first_unit += UNITS_OF_STEP) {
        __syncthreads();
        fill(stage, x, count, first_unit);
        __syncthreads();
        for (int step = 0; step < UNITS_OF_STEP && first_unit + step < planes.units; step++) {
            const Rows rows = load_rows(planes, own_rows, first_unit + step);
#pragma unroll
            for (int tile = 0; tile < TILES; tile++) multiply_tile(rows, stage, step, tile, sums[tile]);
        }
    }
}
