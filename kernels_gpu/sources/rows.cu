// What is done to a token's row between products: norms, rounding to records, choosing rows, gating, soft caps.
//
// Mapping   A block of 256 threads a token.  Four neighbouring lanes share a unit of 32 columns, eight columns each, so
//           a warp rounds eight units at a time; the largest magnitude goes round by two shuffles, a sum by one.
// Order     A sum of squares: each thread's columns in ascending order, a butterfly over the lanes, the warps in order.
// Bytes     A row is read twice (the second time from L1), written once as floats and once as 40 (72) bytes a unit.
// Measured  Not yet on a card: these rows are a few kilobytes, the launch is what they cost.
#include "modes.cuh"
#include "portable.cuh"
#include "records.cuh"

#define THREADS 256
#define WARPS 8
#define COLUMNS_OF_LANE 8
#define UNITS_OF_WARP 8

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

__device__ __forceinline__ void write_columns(float* row, const float (&x)[COLUMNS_OF_LANE]) {
    ((float4*)row)[0] = make_float4(x[0], x[1], x[2], x[3]);
    ((float4*)row)[1] = make_float4(x[4], x[5], x[6], x[7]);
}

// The sum of a value over the block, the same in every thread.
__device__ __forceinline__ float block_sum(float value) {
    __shared__ float sums[WARPS];
    const float own = warp_sum(value);
    if (lane_of_thread() == 0) sums[warp_of_thread()] = own;
    __syncthreads();
    float total = 0.0f;
    for (int warp = 0; warp < WARPS; warp++) total += sums[warp];
    return total;
}

extern "C" {

// out = x / sqrt(mean(x * x) + epsilon) * weight, or out += that; records of out in one and in two terms where the
// pointer is given.  units: of 32 columns.
__global__ void __launch_bounds__(THREADS) normalize(const float* x, int x_stride, const float* weight, float epsilon,
                                                     int is_added, float* out, int out_stride, int units,
                                                     byte* single, byte* pair, int capacity) {
    const int token = blockIdx.x, width = units * WARP, lane = lane_of_thread();
    const float* row = x + (size_t)token * x_stride;
    float* target = out + (size_t)token * out_stride;
    float squares = 0.0f;
    for (int i = threadIdx.x; i < width; i += THREADS) squares = fmaf(row[i], row[i], squares);
    const float factor = 1.0f / sqrtf(block_sum(squares) / (float)width + epsilon);
    for (int from = warp_of_thread() * UNITS_OF_WARP; from < units; from += WARPS * UNITS_OF_WARP) {
        const int unit = from + lane / 4;
        const bool is_inside = unit < units;
        const int column = (is_inside ? unit : 0) * WARP + (lane & 3) * COLUMNS_OF_LANE;
        float values[COLUMNS_OF_LANE], weights[COLUMNS_OF_LANE], before[COLUMNS_OF_LANE];
        read_columns(row + column, values);
        read_columns(weight + column, weights);
        if (is_added) read_columns(target + column, before);
#pragma unroll
        for (int i = 0; i < COLUMNS_OF_LANE; i++) {
            values[i] = values[i] * factor * weights[i];
            if (is_added) values[i] += before[i];
        }
        if (is_inside) write_columns(target + column, values);
        if (single) round_columns(values, records_at(single, capacity, units, 1), 1, token, unit, is_inside);
        if (pair) round_columns(values, records_at(pair, capacity, units, 2), 2, token, unit, is_inside);
    }
}

// Records of rows that a product or attention left as floats.  Grid: (pieces of a row, tokens).
__global__ void __launch_bounds__(THREADS) quantize(const float* x, int x_stride, int units, byte* single, byte* pair,
                                                    int capacity) {
    const int token = blockIdx.y, lane = lane_of_thread();
    const int unit = (blockIdx.x * WARPS + warp_of_thread()) * UNITS_OF_WARP + lane / 4;
    const bool is_inside = unit < units;
    float values[COLUMNS_OF_LANE];
    const int column = (is_inside ? unit : 0) * WARP + (lane & 3) * COLUMNS_OF_LANE;
    read_columns(x + (size_t)token * x_stride + column, values);
    if (single) round_columns(values, records_at(single, capacity, units, 1), 1, token, unit, is_inside);
    if (pair) round_columns(values, records_at(pair, capacity, units, 2), 2, token, unit, is_inside);
}

// out[i] = x[outputs[i]].
__global__ void __launch_bounds__(THREADS) select_rows(const float* x, int x_stride, const int* outputs, float* out,
                                                       int out_stride, int units) {
    const float4* row = (const float4*)(x + (size_t)outputs[blockIdx.x] * x_stride);
    float4* target = (float4*)(out + (size_t)blockIdx.x * out_stride);
    for (int i = threadIdx.x; i < units * 8; i += THREADS) target[i] = row[i];
}

// out = what becomes of it as a gate and of up, where these were not done in one pass.  Grid: (pieces of a row, tokens).
__global__ void __launch_bounds__(THREADS) combine_gate(float* out, int out_stride, const float* up, int up_stride,
                                                        int width, int mode) {
    const int i = blockIdx.x * THREADS + threadIdx.x;
    if (i >= width) return;
    float* target = out + (size_t)blockIdx.y * out_stride + i;
    *target = gated_value(*target, up[(size_t)blockIdx.y * up_stride + i], mode);
}

// x = cap * tanh(x / cap), in place.  Grid: (pieces of a row, tokens).
__global__ void __launch_bounds__(THREADS) cap_softly(float* x, int x_stride, int width, float cap) {
    const int i = blockIdx.x * THREADS + threadIdx.x;
    if (i >= width) return;
    float* target = x + (size_t)blockIdx.y * x_stride + i;
    *target = softly_capped(*target, cap);
}
}
