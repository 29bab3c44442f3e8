// Floats to records: four neighbouring lanes round a unit of 32 columns, eight columns each.
#pragma once
#include "portable.cuh"
#include "records.cuh"

#define COLUMNS_OF_LANE 8

// Rounds eight columns of a lane; the four lanes of a unit call it together.  Lanes beyond the row keep is_inside false.
__device__ __forceinline__ void round_columns(const float (&x)[COLUMNS_OF_LANE], const Records& records, int terms,
                                              int token, int unit, bool is_inside) {
    float most = 0.0f;
#pragma unroll
    for (int i = 0; i < COLUMNS_OF_LANE; i++) most = fmaxf(most, fabsf(x[i]));
    most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 1));
    most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 2));
    const float scale = most / (terms == 2 ? 127.0f * 256.0f : 127.0f);
    const float inverse = scale > 0.0f ? 1.0f / scale : 0.0f;
    unsigned high[2] = {0, 0}, low[2] = {0, 0};
    int sum = 0;
#pragma unroll
    for (int i = 0; i < COLUMNS_OF_LANE; i++) {
        const int q = __float2int_rn(x[i] * inverse);
        const int upper = terms == 2 ? (q + 128) >> 8 : q;
        sum += q;
        high[i / 4] |= (unsigned)(upper & 255) << i % 4 * 8;
        low[i / 4] |= (unsigned)((q - upper * 256) & 255) << i % 4 * 8;
    }
    const int others = __shfl_xor_sync(0xffffffffu, sum, 1);
    const int of_half = sum + others;
    const int of_other_half = __shfl_xor_sync(0xffffffffu, of_half, 2);
    if (!is_inside) return;
    const int quarter = lane_of_thread() & 3;
    const size_t place = (size_t)token * records.units + unit;
    uint2* codes = (uint2*)(records.codes + place * WARP + quarter * COLUMNS_OF_LANE);
    *codes = make_uint2(high[0], high[1]);
    if (terms == 2) *(uint2*)((signed char*)codes + records.term_stride) = make_uint2(low[0], low[1]);
    if (quarter) return;
    records.scales[place] = scale;
    records.sums[place] = make_int2(of_half, of_other_half);
}

__device__ __forceinline__ void read_columns(const float* row, float (&x)[COLUMNS_OF_LANE]) {
    const float4 first = ((const float4*)row)[0], last = ((const float4*)row)[1];
    x[0] = first.x, x[1] = first.y, x[2] = first.z, x[3] = first.w;
    x[4] = last.x, x[5] = last.y, x[6] = last.z, x[7] = last.w;
}
