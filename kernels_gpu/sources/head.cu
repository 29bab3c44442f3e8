// The best candidates of a row of logits: what comes back from the card instead of the whole row.
//
// Mapping   A block of 512 threads sorts a slice of 1024 candidates in shared memory (bitonic) and keeps the first
//           `kept`; where that is one, it folds the slice in halves instead: 10 steps in place of 55.  Repeated on what
//           was kept until one slice is left.  Grid: (slices, rows).
// Order     By logit, the greater first; among equals (0 and -0 are) the smaller id: the same for any slicing.  What is
//           no number comes first of all, so that it is noticed.
// Bytes     The row is read once; 8 * kept / 1024 of that is written and read again.
// Measured  Not yet on a card.
#include "portable.cuh"

#define THREADS 512
#define SLICE 1024

typedef unsigned long long Candidate;  // a float in the order of unsigned numbers, and below it the complement of the id

__device__ __forceinline__ Candidate candidate_of(float logit, int id) {
    const unsigned bits = (unsigned)__float_as_int(logit + 0.0f);  // -0 becomes 0
    const unsigned ordered = logit != logit ? 0xffffffffu : bits >> 31 ? ~bits : bits | 0x80000000u;
    return (Candidate)ordered << 32 | (unsigned)~id;
}

__device__ __forceinline__ void sort_slice(Candidate* slice) {
    for (int size = 2; size <= SLICE; size *= 2) {
        for (int distance = size / 2; distance; distance /= 2) {
            __syncthreads();
            const int i = 2 * threadIdx.x - (threadIdx.x & (distance - 1)), other = i + distance;
            const bool is_descending = (i & size) == 0;
            const Candidate a = slice[i], b = slice[other];
            if ((a < b) == is_descending) slice[i] = b, slice[other] = a;
        }
    }
    __syncthreads();
}

// The best of a slice to its beginning.
__device__ __forceinline__ void fold_slice(Candidate* slice) {
    for (int distance = SLICE / 2; distance; distance /= 2) {
        __syncthreads();
        const int i = threadIdx.x;
        if (i < distance && slice[i] < slice[i + distance]) slice[i] = slice[i + distance];
    }
    __syncthreads();
}

__device__ __forceinline__ void keep(Candidate* slice, Candidate* kept_of_row, int kept) {
    if (kept == 1) fold_slice(slice);
    else sort_slice(slice);
    for (int i = threadIdx.x; i < kept; i += THREADS) kept_of_row[blockIdx.x * kept + i] = slice[i];
}

extern "C" {

// kept candidates of each slice of a row of logits: out [rows][slices][kept].
__global__ void __launch_bounds__(THREADS) top_of_logits(const float* logits, int stride, int count, int kept,
                                                         Candidate* out) {
    __shared__ Candidate slice[SLICE];
    const float* row = logits + (size_t)blockIdx.y * stride;
    for (int i = threadIdx.x; i < SLICE; i += THREADS) {
        const int id = blockIdx.x * SLICE + i;
        slice[i] = id < count ? candidate_of(row[id], id) : 0;
    }
    keep(slice, out + (size_t)blockIdx.y * gridDim.x * kept, kept);
}

// The same for candidates: count a row of the input.
__global__ void __launch_bounds__(THREADS) top_of_candidates(const Candidate* from, int count, int kept,
                                                             Candidate* out) {
    __shared__ Candidate slice[SLICE];
    const Candidate* row = from + (size_t)blockIdx.y * count;
    for (int i = threadIdx.x; i < SLICE; i += THREADS) {
        const int at = blockIdx.x * SLICE + i;
        slice[i] = at < count ? row[at] : 0;
    }
    keep(slice, out + (size_t)blockIdx.y * gridDim.x * kept, kept);
}

// Candidates as ids and logits.  Grid: (1, rows).
__global__ void __launch_bounds__(THREADS) split_candidates(const Candidate* from, int kept, int* ids, float* logits) {
    for (int i = threadIdx.x; i < kept; i += THREADS) {
        const Candidate candidate = from[(size_t)blockIdx.y * kept + i];
        const unsigned ordered = (unsigned)(candidate >> 32);
        ids[(size_t)blockIdx.y * kept + i] = (int)~(unsigned)candidate;
        logits[(size_t)blockIdx.y * kept + i] = __uint_as_float(ordered >> 31 ? ordered & 0x7fffffffu : ~ordered);
    }
}
}
