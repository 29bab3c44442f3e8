// A unit of weights, 32 columns of one row, from the planes that layout.py describes to eight words of four codes.
//
// One lane takes one unit: 16 bytes of low bits (8 with 2 bits, 2 x 16 with 8 bits), 4 or 8 of high bits, 1 or 2 of
// sub-scales, 1, 2 or 4 of scales.  Neighbouring lanes take neighbouring units, so a warp's loads are whole lines.  A
// matrix has fewer than 1 << 28 units.
#pragma once
#include "layout.h"
#include "portable.cuh"

#define GROUPS (WARP / GROUP_COLUMNS)
#if GROUP_COLUMNS == WARP
#define GROUPS_OF_UNIT 1
#else
#define GROUPS_OF_UNIT 2
#endif
#define HAS_SIGN (LOW_BITS == 8 || HAS_CODE_VALUES)
#define SUB_BYTES (SUB_KIND == 0 ? 0 : SUB_KIND == 4 ? 1 : 2)
#if LOW_BITS == 2
#define LOW_BYTES 8
#else
#define LOW_BYTES 16
#endif

struct Unit {
    int codes[8];  // codes[i]: columns 4 i to 4 i + 3
    float scale[GROUPS];
    float minimum[GROUPS];  // with its sign: added
};

struct Planes {
    const byte *low, *high, *sub, *scale;
    size_t low_stride;  // between the two planes of 8 bits
    int units;
};

__device__ __forceinline__ Planes planes_at(const byte* base, int rows, int units) {
    const size_t count = (size_t)rows * units;
    Planes planes;
    planes.units = units;
    planes.low_stride = count * 16;
    planes.low = base;
    planes.high = planes.low + aligned_256(count * (LOW_BITS * 4));
    planes.sub = planes.high + aligned_256(count * (HIGH_BITS * 4));
    planes.scale = planes.sub + aligned_256(count * SUB_BYTES);
    return planes;
}

#if HAS_CODE_VALUES
// What the low and the high nibbles of four bytes stand for, a signed byte each: a byte permutation looks four of them up
// in eight values, by three bits; another chooses between the two halves of the table by the fourth.
__device__ __forceinline__ void look_up(unsigned nibbles, int& low, int& high) {
    const unsigned values[4] = {CODE_VALUES};
    const unsigned places = nibbles & 0x77777777u, halves = ((nibbles & 0x88888888u) >> 1) | 0x32103210u;
    unsigned found[2];
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const unsigned of_first = __byte_perm(values[0], values[1], places >> 16 * i & 0xffffu);
        const unsigned of_last = __byte_perm(values[2], values[3], places >> 16 * i & 0xffffu);
        found[i] = __byte_perm(of_first, of_last, halves >> 16 * i & 0xffffu);
    }
    low = (int)__byte_perm(found[0], found[1], 0x6420);
    high = (int)__byte_perm(found[0], found[1], 0x7531);
}
#endif

__device__ __forceinline__ void load_codes(const Planes& planes, unsigned at, int (&codes)[8]) {
#if LOW_BITS == 8
    const int4 first = *(const int4*)(planes.low + (size_t)at * 16);
    const int4 last = *(const int4*)(planes.low + planes.low_stride + (size_t)at * 16);
    codes[0] = first.x, codes[1] = first.y, codes[2] = first.z, codes[3] = first.w;
    codes[4] = last.x, codes[5] = last.y, codes[6] = last.z, codes[7] = last.w;
#elif LOW_BITS == 4
    const int4 low = *(const int4*)(planes.low + (size_t)at * 16);
    const int words[4] = {low.x, low.y, low.z, low.w};
#pragma unroll
    for (int i = 0; i < 4; i++) {
#if HAS_CODE_VALUES
        look_up((unsigned)words[i], codes[i], codes[i + 4]);
#else
        codes[i] = words[i] & 0x0f0f0f0f;
        codes[i + 4] = (words[i] >> 4) & 0x0f0f0f0f;
#endif
    }
#else
    const int2 low = *(const int2*)(planes.low + (size_t)at * 8);
#pragma unroll
    for (int i = 0; i < 8; i++) codes[i] = ((i & 1 ? low.y : low.x) >> (i >> 1) * 2) & 0x03030303;
#endif
#if HIGH_BITS == 1
    const int high = *(const int*)(planes.high + (size_t)at * 4);
#pragma unroll
    for (int i = 0; i < 8; i++) codes[i] |= ((high >> i) & 0x01010101) << LOW_BITS;
#elif HIGH_BITS == 2
    const int2 high = *(const int2*)(planes.high + (size_t)at * 8);
#pragma unroll
    for (int i = 0; i < 8; i++) codes[i] |= (((i & 1 ? high.y : high.x) >> (i >> 1) * 2) & 0x03030303) << LOW_BITS;
#endif
}

// codes[word] alone: columns 4 * word to 4 * word + 3.
__device__ __forceinline__ int load_word(const Planes& planes, unsigned at, int word) {
#if LOW_BITS == 8
    return ((const int*)(planes.low + (word / 4) * planes.low_stride + (size_t)at * 16))[word % 4];
#else
#if LOW_BITS == 4
    int codes = (((const int*)(planes.low + (size_t)at * 16))[word % 4] >> word / 4 * 4) & 0x0f0f0f0f;
#else
    int codes = (((const int*)(planes.low + (size_t)at * 8))[word % 2] >> word / 2 * 2) & 0x03030303;
#endif
#if HIGH_BITS == 1
    codes |= ((*(const int*)(planes.high + (size_t)at * 4) >> word) & 0x01010101) << LOW_BITS;
#elif HIGH_BITS == 2
    codes |= ((((const int*)(planes.high + (size_t)at * 8))[word % 2] >> word / 2 * 2) & 0x03030303) << LOW_BITS;
#endif
    return codes;
#endif
}

// codes[word] and codes[word + 4] alone; word: 0 to 3.
__device__ __forceinline__ void load_pair(const Planes& planes, unsigned at, int word, int& first, int& last) {
#if HAS_CODE_VALUES
    look_up(((const unsigned*)(planes.low + (size_t)at * 16))[word], first, last);
#else
    first = load_word(planes, at, word);
    last = load_word(planes, at, word + 4);
#endif
}

__device__ __forceinline__ void load_scales(const Planes& planes, unsigned at, float* scale, float* minimum) {
#if HAS_EXPONENTS
    const unsigned exponent = planes.scale[at];  // 2 ** (exponent - 128), subnormal below 2
    const float whole = __uint_as_float(exponent < 2 ? 0x00200000u << exponent : (exponent - 1) << 23), lowest = 0.0f;
#elif MINIMUM_SIGN == 0
    const float whole = half_to_float(((const half_bits*)planes.scale)[at / UNITS_PER_SCALE]), lowest = 0.0f;
#else
    const unsigned stored = ((const unsigned*)planes.scale)[at / UNITS_PER_SCALE];
    const float whole = half_to_float((half_bits)(stored & 0xffff));
    const float lowest = MINIMUM_SIGN * half_to_float((half_bits)(stored >> 16));
#endif
#if SUB_KIND == 0
    scale[0] = whole;
    minimum[0] = lowest;
#elif SUB_KIND == 4
    scale[0] = whole * (float)*(const signed char*)(planes.sub + at);
    minimum[0] = lowest;
#else
    const int sub = *(const unsigned short*)(planes.sub + (size_t)at * 2);
#if SUB_KIND == 1
    scale[0] = whole * (float)(sub & 255);
    minimum[0] = lowest * (float)(sub >> 8);
#else
#pragma unroll
    for (int group = 0; group < 2; group++) {
        const int own = sub >> 8 * group;
#if SUB_KIND == 2
        scale[group] = whole * (float)(own & 15);
        minimum[group] = lowest * (float)(own >> 4 & 15);
#else
        scale[group] = whole * (float)(signed char)own;
        minimum[group] = 0.0f;
#endif
    }
#endif
#endif
}

__device__ __forceinline__ Unit load_unit(const Planes& planes, int row, int unit) {
    const unsigned at = (unsigned)row * planes.units + unit;
    Unit loaded;
    load_codes(planes, at, loaded.codes);
    load_scales(planes, at, loaded.scale, loaded.minimum);
    return loaded;
}

// The weight of a column, 0 to 31, of a unit.
__device__ __forceinline__ float weight_of(const Unit& unit, int column) {
    const int bits = unit.codes[column >> 2] >> 8 * (column & 3);
    const int code = HAS_SIGN ? (int)(signed char)bits : (bits & 255);
    const int group = column / GROUP_COLUMNS;
    return fmaf(unit.scale[group], (float)(code - ZERO_POINT), unit.minimum[group]);
}
