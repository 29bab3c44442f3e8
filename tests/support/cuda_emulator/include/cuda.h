// CUDA C++ as far as the kernels use it, for g++.  Included before every .cu file.
#pragma once
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include "fibers.h"

#define CUDA_EMULATOR 1
#ifndef __CUDA_ARCH__
#define __CUDA_ARCH__ 860
#endif
#define __global__
#define __device__
#define __host__
#define __constant__
#define __shared__ thread_local  // in a function: one copy a worker, that is, a running block
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define __align__(n) alignas(n)

#define threadIdx (emulator::self()->thread)
#define blockIdx (emulator::self()->block->index)
#define blockDim (emulator::self()->block->shape)
#define gridDim (emulator::self()->block->grid)

#define __syncthreads() emulator::barrier(__LINE__)
#define __syncwarp() emulator::collective(emulator::SYNC_WARP, 0xffffffffu, __LINE__, emulator::finish_nothing)
#define __shfl_sync(...) emulator::shuffle_index(__LINE__, __VA_ARGS__)
#define __shfl_xor_sync(...) emulator::shuffle_xor(__LINE__, __VA_ARGS__)
#define __shfl_down_sync(...) emulator::shuffle_down(__LINE__, __VA_ARGS__)
#define __ballot_sync(...) emulator::ballot(__LINE__, __VA_ARGS__)

#define EMULATOR_VECTORS(T, NAME, SIZE) \
    struct alignas(2 * SIZE) NAME##2 { T x, y; }; \
    struct alignas(4 * SIZE) NAME##4 { T x, y, z, w; }; \
    static inline NAME##2 make_##NAME##2(T x, T y) { return {x, y}; } \
    static inline NAME##4 make_##NAME##4(T x, T y, T z, T w) { return {x, y, z, w}; }
EMULATOR_VECTORS(float, float, 4)
EMULATOR_VECTORS(int, int, 4)
EMULATOR_VECTORS(unsigned, uint, 4)

static inline int __dp4a(int a, int b, int c) {
    for (int i = 0; i < 4; i++) c += int(int8_t(a >> 8 * i)) * int(int8_t(b >> 8 * i));
    return c;
}
static inline unsigned __byte_perm(unsigned a, unsigned b, unsigned selector) {
    const uint64_t bytes = uint64_t(b) << 32 | a;
    unsigned found = 0;
    for (int i = 0; i < 4; i++) found |= unsigned(bytes >> 8 * (selector >> 4 * i & 7) & 255) << 8 * i;
    return found;
}
static inline int __float_as_int(float value) { return emulator::unpack<int>(emulator::pack(value)); }
static inline float __int_as_float(int bits) { return emulator::unpack<float>(emulator::pack(bits)); }
static inline float __uint_as_float(unsigned bits) { return emulator::unpack<float>(emulator::pack(bits)); }
static inline int __float2int_rn(float value) { return int(nearbyintf(value)); }
static inline float __fmul_rn(float a, float b) { return a * b; }
static inline float __fadd_rn(float a, float b) { return a + b; }
static inline float __fdiv_rn(float a, float b) { return a / b; }
static inline float __fsqrt_rn(float a) { return sqrtf(a); }
template <class T> static inline T __ldg(const T* pointer) { return *pointer; }

#define EMULATOR_LEAST_AND_MOST(T) \
    static inline T max(T a, T b) { return a > b ? a : b; } \
    static inline T min(T a, T b) { return a < b ? a : b; }
EMULATOR_LEAST_AND_MOST(int)
EMULATOR_LEAST_AND_MOST(unsigned)
EMULATOR_LEAST_AND_MOST(unsigned long long)

static inline float emulator_half_to_float(unsigned short bits) {
    return float(emulator::unpack<_Float16>(bits));
}
static inline unsigned short emulator_float_to_half(float value) {
    return (unsigned short)emulator::pack((_Float16)value);
}
