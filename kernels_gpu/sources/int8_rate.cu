// How fast the tensor cores multiply int8 when nothing else is to be done: what prompts are measured against.
//
// Mapping   A block of 128 threads; each warp adds 16 x 8 x 32 products to eight tiles in turn, all in registers.
// Work      8 * rounds times 4096 multiply-adds a warp.
// Measured  Not yet on a card.
#include "portable.cuh"
#include "tensor_cores.cuh"

#define THREADS 128
#define TILES 8

extern "C" {

// out: written only where all sums of a thread are 1, which they hardly are: it keeps the work from being left out.
__global__ void __launch_bounds__(THREADS) int8_rate(int rounds, int* out) {
    unsigned a[4], b[2];
    int sums[TILES][4], total = 0;
#pragma unroll
    for (int i = 0; i < 4; i++) a[i] = 0x01020304u * (threadIdx.x + i);
#pragma unroll
    for (int i = 0; i < 2; i++) b[i] = 0x01010101u * (threadIdx.x + i);
#pragma unroll
    for (int tile = 0; tile < TILES; tile++)
#pragma unroll
        for (int i = 0; i < 4; i++) sums[tile][i] = tile + i;
    for (int round = 0; round < rounds; round++)
#pragma unroll
        for (int tile = 0; tile < TILES; tile++) multiply_32(sums[tile], a, b);
#pragma unroll
    for (int tile = 0; tile < TILES; tile++)
#pragma unroll
        for (int i = 0; i < 4; i++) total += sums[tile][i];
    if (total == 1) out[threadIdx.x] = total;
}
}
