// Products of quantised matrices with 1 to 8 tokens (decode and verify), and the rows of an embedding.
//
// Mapping   128 threads, 4 warps.  `split` warps share a row (1, 2 or 4, chosen by the number of columns alone), so a
//           block does 4 / split rows.  Lane l of the row's warp w multiplies units 32 * w + l, then 32 * split further.
//           What was unpacked is used for all tokens before the next unit.
// Order     A (token, row) sum: a lane's units in ascending order, a butterfly over the lanes, the warps in order.  It
//           is the same for any number of tokens: verifying drafts equals decoding bit for bit.
// Bytes     Each weight is read once: 4.5 bits a weight for Q4_0, 4.63 for Q4_K, 6.56 for Q6_K, 8.5 for Q8_0 (+ the
//           records, 40 bytes a unit and token, from L2).
// Loads     A lane and unit: 16 bytes of low bits (8 bits: twice; 2 bits: 8), 4 or 8 of high bits, 2 of sub-scales, 2 or
//           4 of scales; for each token 2 of 16 bytes a term, one of 4, and one of 8 where a zero point or a minimum
//           needs the sums.  test_gpu_compile.py counts them in what the compiler made.
// Work      8 dp4a a unit, token and term.
// Expected  About 45 instructions a unit of Q4_K (18.5 bytes) at one token.  At full bandwidth that fills of the issue
//           slots of an RTX 3060 (360 GB/s) 14 %, 4070 (504) 8 %, 4090 (1008) 6 %, 5090 (1792) 8 %: memory is the limit.
//           With 8 blocks a multiprocessor 20 KB are in flight on each, which covers 600 ns up to about 34 GB/s and
//           multiprocessor; the cards above need 8 to 13.
// Measured  Not yet on a card.
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

// out[token][row] (+)= x . weights[row] + bias[row] for the `count` tokens from `first` on.
template <int TOKENS>
__device__ __forceinline__ void product(const byte* weights, int rows, int units, byte* records, int capacity,
                                        int first, int count, int split, const float* bias, int mode, float* out,
                                        int out_stride) {
    __shared__ float shared[WARPS][TOKENS];
    const int row = blockIdx.x * (WARPS / split) + warp_of_thread() / split;
    const bool is_inside = row < rows;
    const Planes planes = planes_at(weights, rows, units);
    const Records x = records_at(records, capacity, units, TERMS);
    float sum = multiply_row<TOKENS>(planes, x, first, count, is_inside ? row : rows - 1, split, shared);
    const int token = lane_of_thread();
    if (!is_inside || token >= count || warp_of_thread() % split) return;
    if (bias) sum += bias[row];
    float* target = out + (size_t)(first + token) * out_stride + row;
    *target = mode == ADD ? *target + sum : sum;
}

// out[token][row] = activation(x . gate[row]) * (x . up[row]).
template <int TOKENS>
__device__ __forceinline__ void gated(const byte* gate, const byte* up, int rows, int units, byte* records,
                                      int capacity, int first, int count, int split, int mode, float* out,
                                      int out_stride) {
    __shared__ float shared[2][WARPS][TOKENS];
    const int row = blockIdx.x * (WARPS / split) + warp_of_thread() / split;
    const bool is_inside = row < rows;
    const int own_row = is_inside ? row : rows - 1;
    const Records x = records_at(records, capacity, units, TERMS);
    const float opened = multiply_row<TOKENS>(planes_at(gate, rows, units), x, first, count, own_row, split, shared[0]);
    const float raised = multiply_row<TOKENS>(planes_at(up, rows, units), x, first, count, own_row, split, shared[1]);
    const int token = lane_of_thread();
    if (!is_inside || token >= count || warp_of_thread() % split) return;
    out[(size_t)(first + token) * out_stride + row] = activated(opened, mode) * raised;
}

#define PRODUCT_PARAMETERS \
    const byte *weights, int rows, int units, byte *records, int capacity, int first, int count, int split, \
        const float *bias, int mode, float *out, int out_stride
#define PRODUCT_ARGUMENTS weights, rows, units, records, capacity, first, count, split, bias, mode, out, out_stride
#define GATED_PARAMETERS \
    const byte *gate, const byte *up, int rows, int units, byte *records, int capacity, int first, int count, \
        int split, int mode, float *out, int out_stride
#define GATED_ARGUMENTS gate, up, rows, units, records, capacity, first, count, split, mode, out, out_stride

extern "C" {
__global__ void __launch_bounds__(THREADS, 3) product_1(PRODUCT_PARAMETERS) { product<1>(PRODUCT_ARGUMENTS); }
__global__ void __launch_bounds__(THREADS, 3) product_2(PRODUCT_PARAMETERS) { product<2>(PRODUCT_ARGUMENTS); }
__global__ void __launch_bounds__(THREADS, 3) product_4(PRODUCT_PARAMETERS) { product<4>(PRODUCT_ARGUMENTS); }
__global__ void __launch_bounds__(THREADS, 3) product_8(PRODUCT_PARAMETERS) { product<8>(PRODUCT_ARGUMENTS); }
__global__ void __launch_bounds__(THREADS, 3) gated_1(GATED_PARAMETERS) { gated<1>(GATED_ARGUMENTS); }
__global__ void __launch_bounds__(THREADS, 3) gated_2(GATED_PARAMETERS) { gated<2>(GATED_ARGUMENTS); }
__global__ void __launch_bounds__(THREADS, 3) gated_4(GATED_PARAMETERS) { gated<4>(GATED_ARGUMENTS); }
__global__ void __launch_bounds__(THREADS, 3) gated_8(GATED_PARAMETERS) { gated<8>(GATED_ARGUMENTS); }

// out[token] = weights[token_ids[token]] * scale.  A block a token, a thread a unit.
__global__ void __launch_bounds__(THREADS) embed(const byte* weights, int rows, int units, const int* token_ids,
                                                 float scale, float* out, int out_stride) {
    const Planes planes = planes_at(weights, rows, units);
    const int row = token_ids[blockIdx.x];
    for (int at = threadIdx.x; at < units; at += THREADS) {
        const Unit unit = load_unit(planes, row, at);
        float4* target = (float4*)(out + (size_t)blockIdx.x * out_stride + at * WARP);
#pragma unroll
        for (int i = 0; i < 8; i++) {
            const int column = 4 * i;
            target[i] = make_float4(weight_of(unit, column) * scale, weight_of(unit, column + 1) * scale,
                                    weight_of(unit, column + 2) * scale, weight_of(unit, column + 3) * scale);
        }
    }
}
}
