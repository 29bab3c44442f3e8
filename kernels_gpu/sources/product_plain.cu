// Products of matrices of plain numbers (F32, F16, BF16) with 1 to 8 tokens, and the rows of an embedding.
//
// Mapping   As in product.cu: 4 warps, 1 << shift of them share a row.  A lane takes 16 bytes of weights (8 halves or 4
//           floats), the next lane the next 16, and multiplies them with the token's floats.
// Order     A lane's pieces in ascending order, columns within a piece in order, a butterfly, the warps in order; the
//           same for any number of tokens.
// Bytes     2 or 4 a weight, each read once in whole lines; 16 or 32 of floats a lane and token, from L2.
// Measured  Not yet on a card.
#include "layout.h"
#include "modes.cuh"
#include "portable.cuh"

#define THREADS 128
#define WARPS 4
#if PLAIN_KIND == 0
#define PIECE 4
#else
#define PIECE 8
#endif

__device__ __forceinline__ void load_piece(const byte* weights, size_t at, float (&values)[PIECE]) {
    const uint4 stored = *(const uint4*)(weights + at * 16);
    const unsigned words[4] = {stored.x, stored.y, stored.z, stored.w};
#pragma unroll
    for (int i = 0; i < 4; i++) {
#if PLAIN_KIND == 0
        values[i] = __uint_as_float(words[i]);
#elif PLAIN_KIND == 1
        values[2 * i] = half_to_float((half_bits)(words[i] & 0xffff));
        values[2 * i + 1] = half_to_float((half_bits)(words[i] >> 16));
#else
        values[2 * i] = __uint_as_float(words[i] << 16);
        values[2 * i + 1] = __uint_as_float(words[i] & 0xffff0000u);
#endif
    }
}

template <int TOKENS>
__device__ __forceinline__ float multiply_row(const byte* weights, int pieces, const float* x, int x_stride, int count,
                                              int row, int shift, float (*shared)[TOKENS]) {
    const int lane = lane_of_thread(), warp = warp_of_thread(), part = warp & ((1 << shift) - 1);
    float sums[TOKENS];
#pragma unroll
    for (int token = 0; token < TOKENS; token++) sums[token] = 0.0f;
    #pragma unroll (TOKENS == 1 ? 4 : 1)
    for (int at = part * WARP + lane; at < pieces; at += WARP << shift) {
        float values[PIECE];
        load_piece(weights, (size_t)row * pieces + at, values);
#pragma unroll
        for (int token = 0; token < TOKENS; token++) {
            const float4* from = (const float4*)(x + (size_t)(token < count ? token : 0) * x_stride + at * PIECE);
#pragma unroll
            for (int i = 0; i < PIECE / 4; i++) {
                const float4 given = from[i];
                sums[token] = fmaf(values[4 * i], given.x, sums[token]);
                sums[token] = fmaf(values[4 * i + 1], given.y, sums[token]);
                sums[token] = fmaf(values[4 * i + 2], given.z, sums[token]);
                sums[token] = fmaf(values[4 * i + 3], given.w, sums[token]);
            }
        }
    }
    float own = 0.0f;
#pragma unroll
    for (int token = 0; token < TOKENS; token++) {
        const float sum = warp_sum(sums[token]);
        if (lane == token) own = sum;
    }
    if (!shift) return own;
    if (lane < TOKENS) shared[warp][lane] = own;
    __syncthreads();
    if (part || lane >= TOKENS) return own;
    own += shared[warp + 1][lane];
    if (shift == 2) own += shared[warp + 2][lane], own += shared[warp + 3][lane];
    return own;
}

// out[token][row] (+)= (x . weights[row] + bias[row]) * scale for the `count` tokens from `first` on.
template <int TOKENS>
__device__ __forceinline__ void product(const byte* weights, int rows, int pieces, const float* x, int x_stride,
                                        int first, int count, int shift, const float* bias, float scale, int mode,
                                        float* out, int out_stride) {
    __shared__ float shared[WARPS][TOKENS];
    const int row = blockIdx.x * (WARPS >> shift) + (warp_of_thread() >> shift);
    const bool is_inside = row < rows;
    float sum = multiply_row<TOKENS>(weights, pieces, x + (size_t)first * x_stride, x_stride, count,
                                     is_inside ? row : rows - 1, shift, shared);
    const int token = lane_of_thread();
    if (!is_inside || token >= count || warp_of_thread() & ((1 << shift) - 1)) return;
    if (bias) sum += bias[row];
    sum *= scale;
    float* target = out + (size_t)(first + token) * out_stride + row;
    *target = mode == ADD ? *target + sum : sum;
}

#define PARAMETERS \
    const byte *weights, int rows, int pieces, const float *x, int x_stride, int first, int count, int shift, \
        const float *bias, float scale, int mode, float *out, int out_stride
#define ARGUMENTS weights, rows, pieces, x, x_stride, first, count, shift, bias, scale, mode, out, out_stride

extern "C" {
__global__ void __launch_bounds__(THREADS, 3) product_1(PARAMETERS) { product<1>(ARGUMENTS); }
__global__ void __launch_bounds__(THREADS, 3) product_2(PARAMETERS) { product<2>(ARGUMENTS); }
__global__ void __launch_bounds__(THREADS, 3) product_4(PARAMETERS) { product<4>(ARGUMENTS); }
__global__ void __launch_bounds__(THREADS, 3) product_8(PARAMETERS) { product<8>(ARGUMENTS); }

// out[token] = weights[token_ids[token]] * scale.  A block a token.
__global__ void __launch_bounds__(THREADS) embed(const byte* weights, int rows, int pieces, const int* token_ids,
                                                 float scale, float* out, int out_stride) {
    const int row = token_ids[blockIdx.x];
    for (int at = threadIdx.x; at < pieces; at += THREADS) {
        float values[PIECE];
        load_piece(weights, (size_t)row * pieces + at, values);
        float4* target = (float4*)(out + (size_t)blockIdx.x * out_stride + at * PIECE);
#pragma unroll
        for (int i = 0; i < PIECE / 4; i++)
            target[i] = make_float4(values[4 * i] * scale, values[4 * i + 1] * scale, values[4 * i + 2] * scale,
                                    values[4 * i + 3] * scale);
    }
}
}
