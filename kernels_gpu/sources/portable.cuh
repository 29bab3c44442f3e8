// What differs between a card and the emulator that tests the kernels, and the few operations all of them share.
#pragma once

typedef unsigned char byte;
typedef unsigned short half_bits;  // a float16 in memory

#ifdef CUDA_EMULATOR
#define half_to_float(bits) emulator_half_to_float(bits)
#define float_to_half(value) emulator_float_to_half(value)
#define warp_sum(value) emulator::warp_sum(__LINE__, value)
#define warp_max(value) emulator::warp_max(__LINE__, value)
#else
__device__ __forceinline__ float half_to_float(half_bits bits) {
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
    return value;
}
__device__ __forceinline__ half_bits float_to_half(float value) {
    half_bits bits;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
    return bits;
}
// Every lane gets the result: pairs at distance 16, 8, 4, 2, 1.
__device__ __forceinline__ float warp_sum(float value) {
#pragma unroll
    for (int bits = 16; bits; bits >>= 1) value += __shfl_xor_sync(0xffffffffu, value, bits);
    return value;
}
__device__ __forceinline__ float warp_max(float value) {
#pragma unroll
    for (int bits = 16; bits; bits >>= 1) value = fmaxf(value, __shfl_xor_sync(0xffffffffu, value, bits));
    return value;
}
#endif

#define WARP 32

__device__ __forceinline__ int lane_of_thread() { return threadIdx.x & 31; }
__device__ __forceinline__ int warp_of_thread() { return threadIdx.x >> 5; }
__device__ __forceinline__ size_t aligned_256(size_t size) { return (size + 255) & ~(size_t)255; }
