// What happens to a product's sum before it is stored, and what becomes of a gate and an up.  The numbers are those of
// steps.py; the activations those of models.program.
#pragma once

#define STORE 0
#define ADD 1
#define SILU 2
#define GELU_TANH 3
#define CLAMPED_SWIGLU 4

__device__ __forceinline__ float activated(float x, int mode) {
    if (mode == SILU) return x / (1.0f + expf(-x));
    const float inner = 0.797884583f * fmaf(0.044715f * x * x, x, x);
    return 0.5f * x * (1.0f + tanhf(inner));
}

__device__ __forceinline__ float gated_value(float gate, float up, int mode) {
    if (mode != CLAMPED_SWIGLU) return activated(gate, mode) * up;
    const float opened = fminf(gate, 7.0f), raised = fminf(fmaxf(up, -7.0f), 7.0f);
    return opened / (1.0f + expf(-1.702f * opened)) * (1.0f + raised);
}

// x, held softly between -cap and cap; cap 0: as it is.
__device__ __forceinline__ float softly_capped(float x, float cap) { return cap > 0.0f ? cap * tanhf(x / cap) : x; }
