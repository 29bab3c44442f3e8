// Products of quantised matrices with many tokens on the int8 tensor cores: what reads a prompt.
//
// Mapping   A block of 128 threads does 64 rows x 64 tokens: a warp 16 rows, eight tiles of 8 tokens.  Eight units of
//           all tokens (256 columns) are brought to shared memory at a time; weights go from the planes straight into
//           fragments: lane 4 g + t takes word t of rows g and g + 8, whose low and high nibbles are columns 4 t and
//           16 + 4 t, just what the fragment wants.  The next unit's weights are loaded before this one's products.
// Order     A (token, row) sum runs over the units in ascending order, whatever the tile, the batch or the cut of a
//           prompt.  It is another order than that of product.cu: the caller chooses by phase, not by token count.
// Bytes     Weights once for every 64 tokens, records once for every 64 rows (from L2): 31 KB (48 KB with two terms) for
//           256 columns of a tile, so at half of the int8 rate 15 (12) bytes a clock and multiprocessor.  Shared memory:
//           25 KB (45 KB); rows of 288 bytes, so that the 16 pairs of words that half a warp reads lie in 32 banks.
// Work      A unit, 16 rows and 8 tokens: one m16n8k32 a term (two m16n8k16 where 16 columns share a scale; four
//           m8n8k16 on Turing), then 4 conversions, 4 products of scales and 4 to 8 fused multiply-adds a lane.  In one
//           term a sum begins at the bits of 1.5 * 2^23 less what the zero point takes, so that its conversion is one
//           subtraction.
// Expected  Instructions for an m16n8k32 (16 cycles of a tensor core, which takes 256 int8 products a cycle on sm_80 to
//           sm_120), counted in the machine code of sm_86 (CUDA 13, 2026-12-01), the filling of shared memory included;
//           a scheduler issues one a cycle, so the share of the int8 rate is at most
//               Q4_0, 1 term 24.9: 64 %    Q8_0, 1 term 24.5: 65 %    Q4_K, 1 term 33.5: 48 %
//               Q4_K, 2 terms 19.6 a term: 82 %    Q6_K, 2 terms 13.9 for an m16n8k16 of 8 cycles: 58 %
//           on all four of an RTX 3060, 4070, 4090 and 5090, whose memory has more than time enough from 64 tokens on.
//           100 to 115 registers: 4 blocks a multiprocessor in one term, 2 in two terms (shared memory).
// Measured  Not yet on a card.
#include "prefill.cuh"

extern "C" {

// out[token][row] (+)= (x . weights[row] + bias[row]) * scale for all `count` tokens.  Grid: (rows / 64, tokens / 64).
__global__ void __launch_bounds__(THREADS, BLOCKS) product_prefill(const byte* weights, int num_rows, int units, byte* records,
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
