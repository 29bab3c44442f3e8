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

// Adds what a unit of each matrix contributes to a token's sums, if it is in the row; its record is read once for all.
template <int MATRICES, int TOKENS>
__device__ __forceinline__ void multiply_units(const Unit (&units)[MATRICES], const Records& x, int first, int token,
                                               int at, bool is_inside, float (&sums)[MATRICES][TOKENS]) {
    int dots[MATRICES][GROUPS];
    int q[8];
    load_record(x, 0, first, at, q);
#pragma unroll
    for (int matrix = 0; matrix < MATRICES; matrix++)
#pragma unroll
        for (int group = 0; group < GROUPS; group++)
            dots[matrix][group] = dot_of_group(units[matrix].codes, q, group);
#if TERMS == 2
    load_record(x, 1, first, at, q);
#pragma unroll
    for (int matrix = 0; matrix < MATRICES; matrix++)
#pragma unroll
        for (int group = 0; group < GROUPS; group++)
            dots[matrix][group] = dots[matrix][group] * 256 + dot_of_group(units[matrix].codes, q, group);
#endif
    const size_t place = (size_t)first * x.units + at;
    const int2 sums_of_codes = x.sums[place];
    const float scale = x.scales[place];
#pragma unroll
    for (int matrix = 0; matrix < MATRICES; matrix++) {
        float part = 0.0f;
#pragma unroll
        for (int group = 0; group < GROUPS; group++) {
            const int of_group =
                GROUPS == 1 ? sums_of_codes.x + sums_of_codes.y : (group ? sums_of_codes.y : sums_of_codes.x);
            part = fmaf(units[matrix].scale[group], (float)(dots[matrix][group] - ZERO_POINT * of_group), part);
            if (MINIMUM_SIGN) part = fmaf(units[matrix].minimum[group], (float)of_group, part);
        }
        const float sum = fmaf(scale, part, sums[matrix][token]);
        sums[matrix][token] = is_inside ? sum : sums[matrix][token];
    }
}

// Partial results of a block's warps.
template <int MATRICES, int TOKENS>
struct Shared {
    float sums[WARPS][MATRICES][TOKENS];
};

// The sums of one row of each matrix for all tokens, complete in lane `token` of the row's first warp.  1 << shift warps
// share the row.
template <int MATRICES, int TOKENS>
__device__ __forceinline__ void multiply_row(const Planes (&planes)[MATRICES], const Records& x, int first, int count,
                                             int row, int shift, Shared<MATRICES, TOKENS>& shared,
                                             float (&results)[MATRICES]) {
    const int lane = lane_of_thread(), warp = warp_of_thread(), part = warp & ((1 << shift) - 1);
    const int units = planes[0].units, stride = WARP << shift;
    float sums[MATRICES][TOKENS];
#pragma unroll
    for (int matrix = 0; matrix < MATRICES; matrix++)
#pragma unroll
        for (int token = 0; token < TOKENS; token++) sums[matrix][token] = 0.0f;
    int from = part * WARP;
    // With one matrix and one token two units are on their way together, as they are with a gate and an up.
    if (MATRICES == 1 && TOKENS == 1) {
        for (; from + stride < units; from += 2 * stride) {
            const int at = from + lane, next = min(at + stride, units - 1);
            const bool is_inside = at + stride < units;
            Unit now[MATRICES], then[MATRICES];
#pragma unroll
            for (int matrix = 0; matrix < MATRICES; matrix++) {
                now[matrix] = load_unit(planes[matrix], row, at);
                then[matrix] = load_unit(planes[matrix], row, next);
            }
#pragma unroll
            for (int token = 0; token < TOKENS; token++) {
                const int own = first + (token < count ? token : 0);
                multiply_units(now, x, own, token, at, true, sums);
                multiply_units(then, x, own, token, next, is_inside, sums);
            }
        }
    }
    for (int at = from + lane; at < units; at += stride) {
        Unit loaded[MATRICES];
#pragma unroll
        for (int matrix = 0; matrix < MATRICES; matrix++) loaded[matrix] = load_unit(planes[matrix], row, at);
#pragma unroll
        for (int token = 0; token < TOKENS; token++)
            multiply_units(loaded, x, first + (token < count ? token : 0), token, at, true, sums);
    }
#pragma unroll
    for (int matrix = 0; matrix < MATRICES; matrix++) {
        float own = 0.0f;
#pragma unroll
        for (int token = 0; token < TOKENS; token++) {
            const float sum = warp_sum(sums[matrix][token]);
            if (lane == token) own = sum;
        }
        results[matrix] = own;
        if (shift && lane < TOKENS) shared.sums[warp][matrix][lane] = own;
    }
    if (!shift) return;
    __syncthreads();
    if (part || lane >= TOKENS) return;
#pragma unroll
    for (int matrix = 0; matrix < MATRICES; matrix++) {
        results[matrix] += shared.sums[warp + 1][matrix][lane];
        if (shift == 2) {
            results[matrix] += shared.sums[warp + 2][matrix][lane];
            results[matrix] += shared.sums[warp + 3][matrix][lane];
        }
    }
}
