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
#define PADDED (UNITS_OF_STEP * WARP + 32)
#define TOKENS_OF_TURN (THREADS / UNITS_OF_STEP)
#if TERMS == 1
#define BLOCKS 4  // of a multiprocessor
#else
#define BLOCKS 2  // that shared memory has room for
#endif
// 1.5 * 2^23 as a float and its bits: a small integer added to the bits is the same integer added to the float.
#define SHIFT_BITS 0x4b400000
#define SHIFT_VALUE 12582912.0f

// codes: of a unit the words 0, 4, 1, 5, 2, 6, 3, 7, so that what a fragment wants is one load.  starts: where a sum of
// products begins, in one term -ZERO_POINT * the sum of the codes; offsets: that sum times the scale, for minima.
struct Stage {
    int4 codes[TERMS][TOKENS][PADDED / 16];
    float scales[UNITS_OF_STEP][TOKENS];
    int starts[GROUPS][UNITS_OF_STEP][TOKENS];
    float offsets[MINIMUM_SIGN ? GROUPS : 1][UNITS_OF_STEP][TOKENS];
    int places[TOKENS];  // of the tokens' records
};

// Brings units first_unit to first_unit + 7 of the block's tokens; zeros where there is none.
__device__ __forceinline__ void fill(Stage& stage, const Records& x, int count, int first_unit) {
    const int step = threadIdx.x % UNITS_OF_STEP, unit = first_unit + step;
#pragma unroll
    for (int token = threadIdx.x / UNITS_OF_STEP; token < TOKENS; token += TOKENS_OF_TURN) {
        const bool is_there = token < count && unit < x.units;
        const size_t place = is_there ? (size_t)stage.places[token] * x.units + unit : 0;
#pragma unroll
        for (int term = 0; term < TERMS; term++) {
            int4 first = {0, 0, 0, 0}, last = {0, 0, 0, 0};
            if (is_there) {
                const int4* codes = (const int4*)(x.codes + term * x.term_stride + place * WARP);
                first = codes[0], last = codes[1];
            }
            int4* target = stage.codes[term][token] + step * 2;
            target[0] = make_int4(first.x, last.x, first.y, last.y);
            target[1] = make_int4(first.z, last.z, first.w, last.w);
        }
        const float scale = is_there ? x.scales[place] : 0.0f;
        const int2 sums = is_there ? x.sums[place] : make_int2(0, 0);
        stage.scales[step][token] = scale;
#pragma unroll
        for (int group = 0; group < GROUPS; group++) {
            const int sum = GROUPS == 1 ? sums.x + sums.y : (group ? sums.y : sums.x);
            stage.starts[group][step][token] = (TERMS == 1 ? SHIFT_BITS : 0) - ZERO_POINT * sum;
            if (MINIMUM_SIGN) stage.offsets[group][step][token] = scale * (float)sum;
        }
    }
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
        const uint2 codes = ((const uint2*)stage.codes[term][tile * 8 + g])[step * 4 + t];
        const unsigned b[2] = {codes.x, codes.y};
#pragma unroll
        for (int group = 0; group < GROUPS; group++) {
            const int2 starts = *(const int2*)&stage.starts[group][step][token];
#pragma unroll
            for (int i = 0; i < 4; i++) {
                if (TERMS == 1) dots[group][i] = i % 2 ? starts.y : starts.x;
                else dots[group][i] = term ? dots[group][i] * 256 + (i % 2 ? starts.y : starts.x) : 0;
            }
        }
#if GROUPS_OF_UNIT == 1
        multiply_32(dots[0], rows.words, b);
#else
        multiply_16(dots[0], rows.words, b);
        multiply_16(dots[1], rows.words + 2, b + 1);
#endif
    }
    const float2 scales = *(const float2*)&stage.scales[step][token];
#pragma unroll
    for (int group = 0; group < GROUPS; group++) {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const float dot = TERMS == 1 ? __uint_as_float((unsigned)dots[group][i]) - SHIFT_VALUE : (float)dots[group][i];
            sums[i] = fmaf(rows.scale[i / 2][group] * (i % 2 ? scales.y : scales.x), dot, sums[i]);
        }
        if (MINIMUM_SIGN) {
            const float2 offsets = *(const float2*)&stage.offsets[group][step][token];
#pragma unroll
            for (int i = 0; i < 4; i++)
                sums[i] = fmaf(rows.minimum[i / 2][group], i % 2 ? offsets.y : offsets.x, sums[i]);
        }
    }
}

// The sums of a warp's 16 rows for the block's tokens.  own_rows: rows g and g + 8; stage.places are set.
__device__ __forceinline__ void multiply_all(const Planes& planes, const Records& x, const int (&own_rows)[2], int count,
                                             Stage& stage, float (&sums)[TILES][4]) {
#pragma unroll
    for (int tile = 0; tile < TILES; tile++)
#pragma unroll
        for (int i = 0; i < 4; i++) sums[tile][i] = 0.0f;
    Rows next = load_rows(planes, own_rows, 0);
    for (int first_unit = 0; first_unit < planes.units; first_unit += UNITS_OF_STEP) {
        __syncthreads();
        fill(stage, x, count, first_unit);
        __syncthreads();
        for (int step = 0; step < UNITS_OF_STEP && first_unit + step < planes.units; step++) {
            const Rows rows = next;
            next = load_rows(planes, own_rows, min(first_unit + step + 1, planes.units - 1));
#pragma unroll
            for (int tile = 0; tile < TILES; tile++) multiply_tile(rows, stage, step, tile, sums[tile]);
        }
    }
}
