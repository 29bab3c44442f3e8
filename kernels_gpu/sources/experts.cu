// A mixture of experts around its products: each token's choice, pairs sorted by expert, the sum of what experts give.
//
// Layout    chosen[token][used] and weights[token][used], best first.  A pair is token * used + rank.  sorted: the pairs by
//           expert and, within one, in order; tiles: see prefill_experts.cu.
// Mapping   choose: a warp a token.  group: one block, a thread an expert.  mix: a thread an element.
// Order     Of equal scores the first expert wins.  A token's experts are added from the best to the last.
// Bytes     Scores and choices are a few kilobytes; mix reads 4 bytes a pair and element, reads and writes 4 an element.
// Measured  Not yet on a card.
#include "portable.cuh"

#define CHOOSE_WARPS 4
#define THREADS 256
#define MAX_EXPERTS 1024
#define TILE 64
#define TAKEN -3.4e38f

extern "C" {

// The experts of the largest scores (which are overwritten), and their softmax.  used: at most 32.  Grid: tokens / 4.
__global__ void __launch_bounds__(CHOOSE_WARPS * WARP) choose(float* scores, int stride, int count, int experts, int used,
                                                              int* chosen, float* weights) {
    const int token = blockIdx.x * CHOOSE_WARPS + warp_of_thread(), lane = lane_of_thread();
    if (token >= count) return;
    float* row = scores + (size_t)token * stride;
    float own_score = TAKEN, first_score = 0.0f;
    for (int rank = 0; rank < used; rank++) {
        float most = TAKEN;
        int best = lane < experts ? lane : 0;
        for (int expert = lane; expert < experts; expert += WARP) {
            const float score = row[expert];
            if (score > most) most = score, best = expert;
        }
#pragma unroll
        for (int bits = 16; bits; bits >>= 1) {
            const float other = __shfl_xor_sync(0xffffffffu, most, bits);
            const int other_best = __shfl_xor_sync(0xffffffffu, best, bits);
            if (other > most || (other == most && other_best < best)) most = other, best = other_best;
        }
        if (lane == best % WARP) row[best] = TAKEN;
        if (rank == 0) first_score = most;
        if (lane == rank) {
            own_score = most;
            chosen[(size_t)token * used + rank] = best;
        }
    }
    const float power = lane < used ? expf(own_score - first_score) : 0.0f;
    const float total = warp_sum(power);
    if (lane < used) weights[(size_t)token * used + lane] = power / total;
}

// Sorts pairs by expert and cuts them into tiles; those beyond the last get expert -1.  One block.
__global__ void __launch_bounds__(THREADS) group(const int* chosen, int pairs, int experts, int* sorted, int4* tiles,
                                                 int max_tiles) {
    __shared__ int counts[MAX_EXPERTS], starts[MAX_EXPERTS], first_tiles[MAX_EXPERTS + 1];
    for (int expert = threadIdx.x; expert < experts; expert += THREADS) {
        int count = 0;
        for (int pair = 0; pair < pairs; pair++) count += chosen[pair] == expert;
        counts[expert] = count;
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        int start = 0, tile = 0;
        for (int expert = 0; expert < experts; expert++) {
            starts[expert] = start, first_tiles[expert] = tile;
            start += counts[expert], tile += (counts[expert] + TILE - 1) / TILE;
        }
        first_tiles[experts] = tile;
    }
    __syncthreads();
    for (int expert = threadIdx.x; expert < experts; expert += THREADS) {
        int place = starts[expert];
        for (int pair = 0; pair < pairs && counts[expert]; pair++)
            if (chosen[pair] == expert) sorted[place++] = pair;
        for (int done = 0; done < counts[expert]; done += TILE)
            tiles[first_tiles[expert] + done / TILE] =
                make_int4(expert, starts[expert] + done, min(TILE, counts[expert] - done), 0);
    }
    for (int tile = first_tiles[experts] + threadIdx.x; tile < max_tiles; tile += THREADS)
        tiles[tile] = make_int4(-1, 0, 0, 0);
}

// out[token] += the sum of weight * y[pair] over its pairs.  Grid: (pieces of a row, tokens).
__global__ void __launch_bounds__(THREADS) mix(const float* weights, int used, const float* y, int y_stride, float* out,
                                               int out_stride, int width) {
    const int i = blockIdx.x * THREADS + threadIdx.x, token = blockIdx.y;
    if (i >= width) return;
    float* target = out + (size_t)token * out_stride + i;
    float sum = *target;
    for (int rank = 0; rank < used; rank++) {
        const int pair = token * used + rank;
        sum = fmaf(weights[pair], y[(size_t)pair * y_stride + i], sum);
    }
    *target = sum;
}
}
