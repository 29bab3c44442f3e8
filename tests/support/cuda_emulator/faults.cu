// Kernels with one fault each, and some without: the emulator must tell them apart.
#include "../../../kernels_gpu/sources/portable.cuh"

extern "C" {
__global__ void forgets_barrier(float* out) {
    __shared__ float shared[64];
    shared[threadIdx.x] = threadIdx.x;
    out[threadIdx.x] = shared[63 - threadIdx.x];
}
__global__ void trusts_lock_step(float* out) {
    __shared__ float shared[32];
    shared[threadIdx.x] = 1.0f;
    for (int distance = 16; distance; distance >>= 1)
        if (threadIdx.x < distance) shared[threadIdx.x] += shared[threadIdx.x + distance];
    out[threadIdx.x] = shared[0];
}
__global__ void diverges(float* out) {
    if (threadIdx.x < 32) {
        __syncthreads();
    } else {
        out[threadIdx.x] = 1.0f;
        __syncthreads();
    }
}
__global__ void leaves_early(float* out) {
    if (threadIdx.x >= 20) return;
    out[threadIdx.x] = __shfl_xor_sync(0xffffffffu, 1.0f, 1);
}
__global__ void reads_unwritten(float* out) {
    __shared__ float sum;
    if (threadIdx.x == 1) sum += 1.0f;
    __syncthreads();
    out[threadIdx.x] = sum;
}
__global__ void outgrows_shared(float* out) {
    extern __shared__ float dynamic[];
    dynamic[threadIdx.x] = 1.0f;
    __syncthreads();
    out[threadIdx.x] = dynamic[threadIdx.x];
}
__global__ void sums_by_shuffles(const float* x, float* out) {
    float value = x[threadIdx.x];
    for (int bits = 16; bits; bits >>= 1) value += __shfl_xor_sync(0xffffffffu, value, bits);
    out[threadIdx.x] = value;
}
__global__ void sums_at_once(const float* x, float* out) { out[threadIdx.x] = warp_sum(x[threadIdx.x]); }
__global__ void votes(unsigned* out) { out[threadIdx.x] = __ballot_sync(0xffffffffu, threadIdx.x % 3 == 0); }
__global__ void exchanges(int* out) {
    const int lane = lane_of_thread();
    out[threadIdx.x] = __shfl_sync(0xffffffffu, lane, 31 - lane) * 100 + __shfl_down_sync(0xffffffffu, lane, 4);
}
}
