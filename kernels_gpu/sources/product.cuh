// A row of a quantised matrix times 1 to 8 tokens, by one to four warps: what product.cu and product_experts.cu share.
//
// Mapping and order of the sums: see product.cu.
#pragma once
#include "layout.h"
#include "modes.cuh"
#include "portable.cuh"
#include "records.cuh"
#include "unpack.cuh"

#define THREADS 128
#define WARPS 4

__device__ __forceinline__ int dot_of_group(const int (&codes)[8], const int (&q)[8], int group) {
    int dot = 0;
#pragma unroll
    for (int i = 0; i < GROUP_COLUMNS / 4; i++) {
        const int word = group * (GROUP_COLUMNS / 4) + i;
        dot = __dp4a(codes[word], q[word], dot);
    }
    return dot;
}

__device__ __forceinline__ void load_record(const Records& x, int term, int token, int unit, int (&q)[8]) {
    const size_t at = ((size_t)token * x.units + unit) * WARP;
    const int4* codes = (const int4*)(x.codes + term * x.term_stride + at);
    const int4 first = codes[0], last = codes[1];
    q[0] = first.x, q[1] = first.y, q[2] = first.z, q[3] = first.w;
    q[4] = last.x, q[5] = last.y, q[6] = last.z, q[7] = last.w;
}

// Adds a unit's contribution to a token's sum.
__device__ __forceinline__ float multiply_unit(const Unit& unit, const Records& x, int token, int at, float sum) {
    int dots[GROUPS];
    int q[8];
    load_record(x, 0, token, at, q);
#pragma unroll
    for (int group = 0; group < GROUPS; group++) dots[group] = dot_of_group(unit.codes, q, group);
#if TERMS == 2
    load_record(x, 1, token, at, q);
#pragma unroll
    for (int group = 0; group < GROUPS; group++)
        dots[group] = dots[group] * 256 + dot_of_group(unit.codes, q, group);
#endif
    const size_t place = (size_t)token * x.units + at;
    const int2 sums = x.sums[place];
    float part = 0.0f;
#pragma unroll
    for (int group = 0; group < GROUPS; group++) {
        const int of_group = GROUPS == 1 ? sums.x + sums.y : (group ? sums.y : sums.x);
        part = fmaf(unit.scale[group], (float)(dots[group] - ZERO_POINT * of_group), part);
        if (MINIMUM_SIGN) part = fmaf(unit.minimum[group], (float)of_group, part);
    }
    return fmaf(x.scales[place], part, sum);
}

// The sums of one row for all tokens, complete in lane `token` of the row's first warp.
template <int TOKENS>
__device__ __forceinline__ float multiply_row(const Planes& planes, const Records& x, int first, int count, int row,
                                              int split, float (*shared)[TOKENS]) {
    const int lane = lane_of_thread(), warp = warp_of_thread(), part = warp % split;
    float sums[TOKENS];
#pragma unroll
    for (int token = 0; token < TOKENS; token++) sums[token] = 0.0f;
    for (int at = part * WARP + lane; at < planes.units; at += split * WARP) {
        const Unit unit = load_unit(planes, row, at);
#pragma unroll
        for (int token = 0; token < TOKENS; token++)
            sums[token] = multiply_unit(unit, x, first + (token < count ? token : 0), at, sums[token]);
    }
    float own = 0.0f;
#pragma unroll
    for (int token = 0; token < TOKENS; token++) {
        const float sum = warp_sum(sums[token]);
        if (lane == token) own = sum;
    }
    if (split == 1) return own;
    if (lane < TOKENS) shared[warp][lane] = own;
    __syncthreads();
    own = 0.0f;
    if (part == 0 && lane < TOKENS)
        for (int other = 0; other < split; other++) own += shared[warp + other][lane];
    return own;
}
