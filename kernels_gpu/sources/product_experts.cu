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
// chosen: the expert of each pair, `used` of them a token.  Grid: (rows / (4 / split), pairs).
__global__ void __launch_bounds__(THREADS, 3) product_experts(
    const byte* weights, int experts, int rows, int units, byte* records, int capacity, const int* chosen, int used,
    int is_of_pair, int split, const float* bias, float* out, int out_stride) {
    __shared__ float shared[WARPS][1];
    const Pair pair = pair_of_block(chosen, used);
    const int row = blockIdx.x * (WARPS / split) + warp_of_thread() / split;
    const bool is_inside = row < rows;
    const int own_row = pair.expert * rows + (is_inside ? row : rows - 1);
    const int place = is_of_pair ? (int)blockIdx.y : pair.token;
    float sum = multiply_row<1>(planes_at(weights, experts * rows, units), records_at(records, capacity, units, TERMS),
                                place, 1, own_row, split, shared);
    if (!is_inside || lane_of_thread() || warp_of_thread() % split) return;
    if (bias) sum += bias[own_row];
    out[(size_t)blockIdx.y * out_stride + row] = sum;
}

// out[pair][row] = what becomes of the products of a gate and an up with a token's record, with their biases.
__global__ void __launch_bounds__(THREADS, 3) gated_experts(
    const byte* gate, const byte* up, int experts, int rows, int units, byte* records, int capacity, const int* chosen,
    int used, int split, const float* gate_bias, const float* up_bias, int mode, float* out, int out_stride) {
    __shared__ float shared[2][WARPS][1];
    const Pair pair = pair_of_block(chosen, used);
    const int row = blockIdx.x * (WARPS / split) + warp_of_thread() / split;
    const bool is_inside = row < rows;
    const int own_row = pair.expert * rows + (is_inside ? row : rows - 1);
    const Records x = records_at(records, capacity, units, TERMS);
    float opened = multiply_row<1>(planes_at(gate, experts * rows, units), x, pair.token, 1, own_row, split, shared[0]);
    float raised = multiply_row<1>(planes_at(up, experts * rows, units), x, pair.token, 1, own_row, split, shared[1]);
    if (!is_inside || lane_of_thread() || warp_of_thread() % split) return;
    if (gate_bias) opened += gate_bias[own_row];
    if (up_bias) raised += up_bias[own_row];
    out[(size_t)blockIdx.y * out_stride + row] = gated_value(opened, raised, mode);
}
}
