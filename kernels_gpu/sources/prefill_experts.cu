// Products of a prompt's tokens with the experts that each of them uses, on the int8 tensor cores.
//
// Layout    Pairs of a token and an expert were sorted by expert (experts.cu) and cut into tiles of up to 64 pairs of one
//           expert: tiles[i] = expert (-1: no more), first of the sorted pairs, number of pairs.
// Mapping   A block for each 64 rows of each tile; within it as in prefill.cu.
// Order     As in prefill.cu; a pair's result depends neither on the tile nor on other pairs.
// Bytes     An expert's weights once for every 64 of its pairs; none of experts that nobody uses.
// Measured  Not yet on a card.
#include "prefill.cuh"

extern "C" {

// out[pair][row] = x . weights[expert][row] + bias[expert][row]; x: a token's record, or with is_of_pair the pair's own.
// Grid: (rows / 64, tiles at most).
__global__ void __launch_bounds__(THREADS, BLOCKS) prefill_experts(const byte* weights, int experts, int rows, int units,
                                                           byte* records, int capacity, const int4* tiles,
                                                           const int* sorted, int used, int is_of_pair,
                                                           const float* bias, float* out, int out_stride) {
    __shared__ Stage stage;
    const int4 tile_of_block = tiles[blockIdx.y];
    const int expert = tile_of_block.x, first = tile_of_block.y, count = tile_of_block.z;
    if (expert < 0) return;
    const int lane = lane_of_thread(), g = lane / 4, t = lane % 4;
    const int first_row = (blockIdx.x * WARPS + warp_of_thread()) * ROWS_OF_WARP, before = expert * rows;
    const int own_rows[2] = {before + min(first_row + g, rows - 1), before + min(first_row + g + 8, rows - 1)};
    for (int i = threadIdx.x; i < count; i += THREADS)
        stage.places[i] = is_of_pair ? sorted[first + i] : sorted[first + i] / used;
    float sums[TILES][4];
    multiply_all(planes_at(weights, experts * rows, units), records_at(records, capacity, units, TERMS), own_rows,
                 count, stage, sums);
#pragma unroll
    for (int tile = 0; tile < TILES; tile++) {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int row = first_row + g + i / 2 * 8, pair = tile * 8 + 2 * t + i % 2;
            if (row >= rows || pair >= count) continue;
            out[(size_t)sorted[first + pair] * out_stride + row] = sums[tile][i] + (bias ? bias[before + row] : 0.0f);
        }
    }
}
}
