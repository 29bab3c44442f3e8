// What is done to a token's row between products: norms, rounding to records, choosing rows, gating, soft caps.
//
// Mapping   A block of 256 threads a token.  Four neighbouring lanes share a unit of 32 columns, eight columns each, so
//           a warp rounds eight units at a time; the largest magnitude goes round by two shuffles, a sum by one.
// Order     A sum of squares: each thread's columns in ascending order, a butterfly over the lanes, the warps in order.
// Bytes     A row is read twice (the second time from L1), written once as floats and once as 40 (72) bytes a unit.
// Measured  Not yet on a card: these rows are a few kilobytes, the launch is what they cost.
#include "modes.cuh"
#include "portable.cuh"
#include "rounding.cuh"

#define THREADS 256
#define WARPS 8
#define UNITS_OF_WARP 8

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
