// Activation records: a token's floats rounded to int8, 32 columns (a unit) with one scale.
//
// Layout of a buffer made for `capacity` tokens of `units` units, with `terms` int8 numbers a value (1 or 2):
//     codes   int8   [terms][capacity][32 * units]
//     scales  float  [capacity][units]
//     sums    int    [capacity][units][2]      sums of the integers of the first and of the last 16 columns
// A value is scale * q with q = code (1 term) or 256 * code of term 0 + code of term 1.
#pragma once
#include "portable.cuh"

struct Records {
    signed char* codes;
    float* scales;
    int2* sums;
    size_t term_stride;
    int units;
};

__device__ __forceinline__ Records records_at(byte* base, int capacity, int units, int terms) {
    const size_t plane = (size_t)capacity * units * WARP;
    Records records;
    records.codes = (signed char*)base;
    records.scales = (float*)(base + terms * plane);
    records.sums = (int2*)(base + terms * plane + (size_t)capacity * units * sizeof(float));
    records.term_stride = plane;
    records.units = units;
    return records;
}
