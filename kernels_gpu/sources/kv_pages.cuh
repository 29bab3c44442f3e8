// The pages of K and V: where an element lies, how eight of them are read, how a head's vector is written.
//
// A layer's cache is [page][KV head][K block, V block], a page holds 64 positions.  K_KIND and V_KIND: 0 float16; 1 q8_0
// (int8 codes); 2 q4_0 (codes of 4 bits, 8 more than the number; of neighbours the first in the low bits).  The latter two
// have a float16 scale for 32 elements, and head_dim is a multiple of 32 then.
//     K block   [head_dim / 8][64 positions][8 elements]     threads of neighbouring positions read whole lines
//     V block   [64 positions][head_dim]                     threads of neighbouring elements read whole lines
//     scales    behind the codes: of K [head_dim / 32][64 positions], of V [64 positions][head_dim / 32]
#pragma once
#include "layout.h"
#include "portable.cuh"

#define PAGE 64
#define SCALE_BLOCK 32
#define HALVES 0
#define BYTES 1
#define NIBBLES 2
#define LARGEST_HALF 65504.0f

// Of eight elements, without their scale.
__device__ __forceinline__ int eight_bytes(int kind) { return 16 >> kind; }

// Of a page's elements, without their scales.
__device__ __forceinline__ size_t codes_bytes(int kind, int head_dim) {
    return (size_t)PAGE * head_dim / 8 * eight_bytes(kind);
}

__device__ __forceinline__ size_t block_bytes(int kind, int head_dim) {
    return codes_bytes(kind, head_dim) + (kind == HALVES ? 0 : (size_t)PAGE * head_dim / SCALE_BLOCK * 2);
}

__device__ __forceinline__ byte* page_of(byte* cache, const int* page_table, int position, int kv_head,
                                         int num_kv_heads, int head_dim) {
    const size_t head_bytes = block_bytes(K_KIND, head_dim) + block_bytes(V_KIND, head_dim);
    return cache + ((size_t)page_table[position / PAGE] * num_kv_heads + kv_head) * head_bytes;
}

// Eight neighbouring elements as floats; scale: where theirs lies.
__device__ __forceinline__ void load_eight(int kind, const byte* from, const byte* scale, float (&values)[8]) {
    if (kind == HALVES) {
        const uint4 stored = *(const uint4*)from;
        const unsigned words[4] = {stored.x, stored.y, stored.z, stored.w};
#pragma unroll
        for (int i = 0; i < 4; i++) {
            values[2 * i] = half_to_float((half_bits)(words[i] & 0xffff));
            values[2 * i + 1] = half_to_float((half_bits)(words[i] >> 16));
        }
        return;
    }
    const float factor = half_to_float(*(const half_bits*)scale);
    if (kind == BYTES) {
        const uint2 stored = *(const uint2*)from;
#pragma unroll
        for (int i = 0; i < 8; i++) {
            const unsigned word = i < 4 ? stored.x : stored.y;
            values[i] = factor * (float)(signed char)(word >> i % 4 * 8);
        }
    } else {
        const unsigned word = *(const unsigned*)from;
#pragma unroll
        for (int i = 0; i < 8; i++) values[i] = factor * (float)((int)(word >> 4 * i & 15) - 8);
    }
}

// Elements 8 * chunk to 8 * chunk + 7 of a position's K.
__device__ __forceinline__ void load_key(const byte* page, int position, int chunk, int head_dim, float (&values)[8]) {
    const int in_page = position % PAGE;
    load_eight(K_KIND, page + ((size_t)chunk * PAGE + in_page) * eight_bytes(K_KIND),
               page + codes_bytes(K_KIND, head_dim) + ((size_t)(chunk / 4) * PAGE + in_page) * 2, values);
}

__device__ __forceinline__ void load_value(const byte* page, int position, int chunk, int head_dim, float (&values)[8]) {
    const int in_page = position % PAGE;
    const byte* block = page + block_bytes(K_KIND, head_dim);
    load_eight(V_KIND, block + ((size_t)in_page * (head_dim / 8) + chunk) * eight_bytes(V_KIND),
               block + codes_bytes(V_KIND, head_dim) + ((size_t)in_page * (head_dim / SCALE_BLOCK) + chunk / 4) * 2,
               values);
}

// The whole number that stands for a warp's element, and the scale of all 32, from which it comes as it is kept.  Of 4
// bits the element of largest size becomes -8, which has no counterpart.
__device__ __forceinline__ int code_of(int kind, float value, half_bits* scale) {
    value = fminf(fmaxf(value, -LARGEST_HALF), LARGEST_HALF);
    const float top = warp_max(value), bottom = warp_max(-value);
    const bool is_byte = kind == BYTES;
    *scale = float_to_half(is_byte ? fmaxf(top, bottom) / 127.0f : top > bottom ? top / -8.0f : bottom / 8.0f);
    const float kept = half_to_float(*scale), inverse = kept != 0.0f ? 1.0f / kept : 0.0f;
    return min(max(__float2int_rn(value * inverse), is_byte ? -127 : -8), is_byte ? 127 : 7);
}

// Stores element i of a position's K (or V).  A warp calls it for 32 neighbouring elements, which share a scale.
__device__ __forceinline__ void store_element(byte* page, bool is_value, int position, int i, int head_dim, float value) {
    const int in_page = position % PAGE, kind = is_value ? V_KIND : K_KIND;
    byte* block = is_value ? page + block_bytes(K_KIND, head_dim) : page;
    const size_t at = is_value ? (size_t)in_page * head_dim + i : ((size_t)(i / 8) * PAGE + in_page) * 8 + i % 8;
    if (kind == HALVES) {
        ((half_bits*)block)[at] = float_to_half(value);
        return;
    }
    half_bits scale;
    const int code = code_of(kind, value, &scale);
    if (kind == BYTES) {
        ((signed char*)block)[at] = (signed char)code;
    } else {
        const int next = __shfl_xor_sync(0xffffffffu, code, 1);
        if (i % 2 == 0) block[at / 2] = (byte)((code + 8) | (next + 8) << 4);
    }
    if (i % SCALE_BLOCK) return;
    const int group = i / SCALE_BLOCK;
    const size_t place = is_value ? (size_t)in_page * (head_dim / SCALE_BLOCK) + group : (size_t)group * PAGE + in_page;
    ((half_bits*)(block + codes_bytes(kind, head_dim)))[place] = scale;
}

struct Visible { int first, last; };  // positions that a token sees

__device__ __forceinline__ Visible visible_to(int position, int window) {
    Visible range;
    range.first = window && position - window + 1 > 0 ? position - window + 1 : 0;
    range.last = position;
    return range;
}
