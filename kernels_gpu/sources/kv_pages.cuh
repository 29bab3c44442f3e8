// The pages of K and V: where an element lies, how eight of them are read, how a head's vector is written.
//
// A layer's cache is [page][KV head][K block, V block], a page holds 64 positions.  K_KIND and V_KIND: 0 float16, 1 q8_0
// (int8 codes, and a float16 scale for 32 elements; head_dim is a multiple of 32 then).
//     K block   [head_dim / 8][64 positions][8 elements]     threads of neighbouring positions read whole lines
//     V block   [64 positions][head_dim]                     threads of neighbouring elements read whole lines
//     scales    behind the codes: of K [head_dim / 32][64 positions], of V [64 positions][head_dim / 32]
#pragma once
#include "layout.h"
#include "portable.cuh"

#define PAGE 64
#define SCALE_BLOCK 32

__device__ __forceinline__ size_t block_bytes(int kind, int head_dim) {
    return kind ? (size_t)PAGE * head_dim + (size_t)PAGE * head_dim / SCALE_BLOCK * 2 : (size_t)PAGE * head_dim * 2;
}

__device__ __forceinline__ byte* page_of(byte* cache, const int* page_table, int position, int kv_head,
                                         int num_kv_heads, int head_dim) {
    const size_t head_bytes = block_bytes(K_KIND, head_dim) + block_bytes(V_KIND, head_dim);
    return cache + ((size_t)page_table[position / PAGE] * num_kv_heads + kv_head) * head_bytes;
}

// Eight neighbouring elements as floats; scale: where theirs lies.
__device__ __forceinline__ void load_eight(int kind, const byte* from, const byte* scale, float (&values)[8]) {
    if (kind) {
        const uint2 stored = *(const uint2*)from;
        const float factor = half_to_float(*(const half_bits*)scale);
#pragma unroll
        for (int i = 0; i < 8; i++) {
            const unsigned word = i < 4 ? stored.x : stored.y;
            values[i] = factor * (float)(signed char)(word >> i % 4 * 8);
        }
    } else {
        const uint4 stored = *(const uint4*)from;
        const unsigned words[4] = {stored.x, stored.y, stored.z, stored.w};
#pragma unroll
        for (int i = 0; i < 4; i++) {
            values[2 * i] = half_to_float((half_bits)(words[i] & 0xffff));
            values[2 * i + 1] = half_to_float((half_bits)(words[i] >> 16));
        }
    }
}

// Elements 8 * chunk to 8 * chunk + 7 of a position's K.
__device__ __forceinline__ void load_key(const byte* page, int position, int chunk, int head_dim, float (&values)[8]) {
    const int in_page = position % PAGE;
    const byte* scales = page + (size_t)PAGE * head_dim;
    load_eight(K_KIND, page + ((size_t)chunk * PAGE + in_page) * (K_KIND ? 8 : 16),
               scales + ((size_t)(chunk / 4) * PAGE + in_page) * 2, values);
}

__device__ __forceinline__ void load_value(const byte* page, int position, int chunk, int head_dim, float (&values)[8]) {
    const int in_page = position % PAGE;
    const byte* block = page + block_bytes(K_KIND, head_dim);
    const byte* scales = block + (size_t)PAGE * head_dim;
    load_eight(V_KIND, block + ((size_t)in_page * head_dim + chunk * 8) * (V_KIND ? 1 : 2),
               scales + ((size_t)in_page * (head_dim / SCALE_BLOCK) + chunk / 4) * 2, values);
}

// Stores element i of a position's K (or V).  A warp calls it for 32 neighbouring elements, which share a scale.
__device__ __forceinline__ void store_element(byte* page, bool is_value, int position, int i, int head_dim, float value) {
    const int in_page = position % PAGE, kind = is_value ? V_KIND : K_KIND;
    byte* block = is_value ? page + block_bytes(K_KIND, head_dim) : page;
    const size_t at = is_value ? (size_t)in_page * head_dim + i : ((size_t)(i / 8) * PAGE + in_page) * 8 + i % 8;
    if (!kind) {
        ((half_bits*)block)[at] = float_to_half(value);
        return;
    }
    const float scale = warp_max(fabsf(value)) / 127.0f;
    ((signed char*)block)[at] = (signed char)__float2int_rn(scale > 0.0f ? value / scale : 0.0f);
    if (i % SCALE_BLOCK) return;
    const int group = i / SCALE_BLOCK;
    const size_t place = is_value ? (size_t)in_page * (head_dim / SCALE_BLOCK) + group : (size_t)group * PAGE + in_page;
    ((half_bits*)(block + (size_t)PAGE * head_dim))[place] = float_to_half(scale);
}

struct Visible { int first, last; };  // positions that a token sees

__device__ __forceinline__ Visible visible_to(int position, int window) {
    Visible range;
    range.first = window && position - window + 1 > 0 ? position - window + 1 : 0;
    range.last = position;
    return range;
}
