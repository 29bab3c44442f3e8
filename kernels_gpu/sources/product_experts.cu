// Products of a few tokens with the experts that each of them uses: a pair is a token and one of its experts.
//
// Layout    An expert's rows follow those of the expert before it, in one matrix of planes (layout.py); a bias likewise.
// Mapping   A row of blocks for each pair; within it as in product.cu with one token.
// Order     As in product.cu; a pair's result depends on no other pair.
// Bytes     Only of the experts that were chosen: `used` of them a token and matrix.  Two tokens with one expert read it
//           twice, the second time from L2 where it is still there.
// Loads     Of a lane for a unit as in product.cu with one token, and 4 bytes for the choice.  Registers (sm_86): see the
//           ceilings of the tests, which are those of product_1.
// Measured  Not yet on a card.
#include "product.cuh"

struct Pair {
    int token, expert;
};

__device__ __forceinline__ Pair pair_of_block(const int* chosen, int used) {
    const int pair = blockIdx.y;
    return {pair / used, chosen[pair]};
}

extern "C" {

// out[pair][row] = x . weights[expert][row] + bias[expert][row]; x: a token's record, or with is_of_pair the pair's own.
// chosen: the expert of each pair, `used` of them a token.  Grid: (rows / (4 >> shift), pairs).
__global__ void __launch_bounds__(THREADS, 5) product_experts(
    const byte* weights, int experts, int rows, int units, byte* records, int capacity, const int* chosen, int used,
    int is_of_pair, int shift, const float* bias, float* out, int out_stride) {
    __shared__ Shared<1, 1> shared;
    const Pair pair = pair_of_block(chosen, used);
    const int row = blockIdx.x * (WARPS >> shift) + (warp_of_thread() >> shift);
    const bool is_inside = row < rows;
    const int own_row = pair.expert * rows + (is_inside ? row : rows - 1);
    const int place = is_of_pair ? (int)blockIdx.y : pair.token;
    const Planes planes[1] = {planes_at(weights, experts * rows, units)};
    float sums[1];
    multiply_row(planes, records_at(records, capacity, units, TERMS), place, 1, own_row, shift, shared, sums);
    if (!is_inside || lane_of_thread() || warp_of_thread() & ((1 << shift) - 1)) return;
    if (bias) sums[0] += bias[own_row];
    out[(size_t)blockIdx.y * out_stride + row] = sums[0];
}

// out[pair][row] = what becomes of the products of a gate and an up with a token's record, with their biases.
__global__ void __launch_bounds__(THREADS, 3) gated_experts(
    const byte* gate, const byte* up, int experts, int rows, int units, byte* records, int capacity, const int* chosen,
    int used, int shift, const float* gate_bias, const float* up_bias, int mode, float* out, int out_stride) {
    __shared__ Shared<2, 1> shared;
    const Pair pair = pair_of_block(chosen, used);
    const int row = blockIdx.x * (WARPS >> shift) + (warp_of_thread() >> shift);
    const bool is_inside = row < rows;
    const int own_row = pair.expert * rows + (is_inside ? row : rows - 1);
    const Planes planes[2] = {planes_at(gate, experts * rows, units), planes_at(up, experts * rows, units)};
    float sums[2];
    multiply_row(planes, records_at(records, capacity, units, TERMS), pair.token, 1, own_row, shift, shared, sums);
    if (!is_inside || lane_of_thread() || warp_of_thread() & ((1 << shift) - 1)) return;
    if (gate_bias) sums[0] += gate_bias[own_row];
    if (up_bias) sums[1] += up_bias[own_row];
    out[(size_t)blockIdx.y * out_stride + row] = gated_value(sums[0], sums[1], mode);
}
}
