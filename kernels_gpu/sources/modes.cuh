// What happens to a product's sum before it is stored.  The numbers are those of steps.py.
#pragma once

#define STORE 0
#define ADD 1
#define SILU 2
#define GELU_TANH 3

__device__ __forceinline__ float activated(float x, int mode) {
    if (mode == SILU) return x / (1.0f + expf(-x));
    const float inner = 0.797884583f * fmaf(0.044715f * x * x, x, x);
    return 0.5f * x * (1.0f + tanhf(inner));
}
