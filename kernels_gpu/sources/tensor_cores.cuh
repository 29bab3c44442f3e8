// int8 products of the tensor cores: 16 rows of weights times 8 tokens, over a unit of 32 columns or half of one.
//
// Fragments (PTX manual), lane = 4 * g + t: a[0], a[1] hold columns 4 t to 4 t + 3 of rows g and g + 8; a[2], a[3] the
// same 16 columns further; b[0], b[1] those columns of token g.  d[0], d[1]: row g, tokens 2 t and 2 t + 1; d[2], d[3]:
// row g + 8.  Turing has only m8n8k16: half the rows, half the columns.
#pragma once

#if defined(CUDA_EMULATOR) && __CUDA_ARCH__ >= 800
#define multiply_32(d, a, b) emulator::multiply(__LINE__, 16, 32, d, a, b)
#define multiply_16(d, a, b) emulator::multiply(__LINE__, 16, 16, d, a, b)
#elif __CUDA_ARCH__ >= 800
__device__ __forceinline__ void multiply_32(int* d, const unsigned* a, const unsigned* b) {
    asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
__device__ __forceinline__ void multiply_16(int* d, const unsigned* a, const unsigned* b) {
    asm("mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};"
        : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(b[0]));
}
#else
#ifdef CUDA_EMULATOR
#define multiply_eighth(d, a, b) emulator::multiply(__LINE__, 8, 16, d, a, b)
#else
__device__ __forceinline__ void multiply_eighth(int* d, const unsigned* a, const unsigned* b) {
    asm("mma.sync.aligned.m8n8k16.row.col.s32.s8.s8.s32 {%0,%1}, {%2}, {%3}, {%0,%1};"
        : "+r"(d[0]), "+r"(d[1])
        : "r"(a[0]), "r"(b[0]));
}
#endif
__device__ __forceinline__ void multiply_16(int* d, const unsigned* a, const unsigned* b) {
    multiply_eighth(d, a, b);
    multiply_eighth(d + 2, a + 1, b);
}
__device__ __forceinline__ void multiply_32(int* d, const unsigned* a, const unsigned* b) {
    multiply_16(d, a, b);
    multiply_16(d, a + 2, b + 1);
}
#endif
