// Products of quantised matrices with many tokens on the int8 tensor cores: what reads a prompt.
//
// Mapping   A block of 128 threads does 64 rows x 64 tokens: a warp 16 rows, eight tiles of 8 tokens.  Eight units of
//           all tokens (256 columns) are brought to shared memory at a time; weights go from the planes straight into
//           fragments: lane 4 g + t takes word t of rows g and g + 8, whose low and high nibbles are columns 4 t and
//           16 + 4 t, just what the fragment wants.
// Order     A (token, row) sum runs over the units in ascending order, whatever the tile, the batch or the cut of a
//           prompt.  It is another order than that of product.cu: the caller chooses by phase, not by token count.
// Bytes     Weights once for every 64 tokens, records once for every 64 rows (from L2).  Shared memory: rows of 272
//           bytes, so that the 32 words that a warp reads lie in 32 banks.
// Work      A unit, 16 rows and 8 tokens: one m16n8k32 a term (two m16n8k16 where 16 columns share a scale; four
//           m8n8k16 on Turing), then 4 conversions and 8 to 12 fused multiply-adds a lane.
// Measured  Not yet on a card.
#include "prefill.cuh"

extern "C" {

// out[token][row] (+)= (x . weights[row] + bias[row]) * scale for all `count` tokens.  Grid: (rows / 64, tokens / 64).
__global__ void __launch_bounds__(THREADS) product_prefill(const byte* weights, int num_rows, int units, byte* records,
                                                           int capacity, int count, const float* bias, float scale,
                                                           int mode, float* out, int out_stride) {
    __shared__ Stage stage;
    const int lane = lane_of_thread(), g = lane / 4, t = lane % 4;
    const int first_row = (blockIdx.x * WARPS + warp_of_thread()) * ROWS_OF_WARP;
    const int first_token = blockIdx.y * TOKENS;
    const int own_rows[2] = {min(first_row + g, num_rows - 1), min(first_row + g + 8, num_rows - 1)};
    const Planes planes = planes_at(weights, num_rows, units);
    const Records x = records_at(records, capacity, units, TERMS);
    for (int i = threadIdx.x; i < TOKENS; i += THREADS) stage.places[i] = first_token + i;
    float sums[TILES][4];
    multiply_all(planes, x, own_rows, count - first_token, stage, sums);
#pragma unroll
    for (int tile = 0; tile < TILES; tile++) {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int row = first_row + g + i / 2 * 8, token = first_token + tile * 8 + 2 * t + i % 2;
            if (row >= num_rows || token >= count) continue;
            const float sum = (sums[tile][i] + (bias ? bias[row] : 0.0f)) * scale;
            float* target = out + (size_t)token * out_stride + row;
            *target = mode == ADD ? *target + sum : sum;
        }
    }
}
}
