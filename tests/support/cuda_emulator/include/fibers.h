// The lanes of a thread block as fibers of one operating-system thread.
//
// Owns the block's state and how lanes wait for each other; runtime.cpp holds the scheduler.  Does not know CUDA's
// names: cuda.h gives them.  Between two points of synchronisation lanes run one after the other, in an order that the
// launch chooses, so that a missing barrier shows as a wrong result.  Not modelled: memory ordering, timing.
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>

struct uint3 { unsigned x, y, z; };
struct dim3 {
    unsigned x, y, z;
    constexpr dim3(unsigned a = 1, unsigned b = 1, unsigned c = 1) : x(a), y(b), z(c) {}
};

namespace emulator {

constexpr int WARP = 32, MAX_THREADS = 1024, MAX_WARPS = MAX_THREADS / WARP;
constexpr size_t STACK_BYTES = 64 * 1024;
enum Operation : int { NONE, SYNC_WARP, SHUFFLE, VOTE, MULTIPLY, REDUCE };

struct Block;

struct Lane {  // one CUDA thread
    void* stack;
    Block* block;
    uint3 thread;
    int warp, lane;
    Operation operation;  // what it waits in, with which lanes, at which line
    unsigned mask;
    int line;
    uint64_t value;  // what it brings to the operation, and what it takes from it
    int source;
    uint64_t result;
    void* fragment;
};

struct Warp { unsigned alive, ready, at_barrier, waiting; };

struct Block {
    uint3 index;
    dim3 grid, shape;
    int num_threads, num_warps;
    void (*entry)(void*);
    void* call;
    Warp warps[MAX_WARPS];
    Lane lanes[MAX_THREADS];
    void* caller;
    int live, at_barrier, barrier_line;
    unsigned long long switches;
    uint32_t random;
    int order;
    char* stacks;
    char* shared;
    size_t shared_bytes;
    char error[400];
};

// The running lane: its address lies at the bottom of its own, aligned stack.
inline __attribute__((always_inline)) Lane* self() {
    const auto frame = reinterpret_cast<uintptr_t>(__builtin_frame_address(0));
    return *reinterpret_cast<Lane**>(frame & ~uintptr_t(STACK_BYTES - 1));
}

[[noreturn]] void die(const char* what);
void run_next();
void barrier(int line);
using Finish = void (*)(Block&, Warp&, Lane* lanes, unsigned mask);
void collective(Operation operation, unsigned mask, int line, Finish finish);
void finish_nothing(Block&, Warp&, Lane*, unsigned);
void finish_shuffle(Block&, Warp&, Lane*, unsigned);
void finish_vote(Block&, Warp&, Lane*, unsigned);
void finish_add(Block&, Warp&, Lane*, unsigned);
void finish_max(Block&, Warp&, Lane*, unsigned);
void finish_multiply(Block&, Warp&, Lane*, unsigned);

// --- kernels and their arguments, read from the function's type
struct Kernel {
    const char* name;
    void (*call)(void*);
    const void* function;
    int num_arguments;
    const int* sizes;
    const char* kinds;
};
void enrol(const Kernel& kernel);
struct Call { const void* function; void** arguments; };

template <class T> constexpr char kind() {
    return std::is_pointer<T>::value ? 'P' : std::is_floating_point<T>::value ? 'f' : 'i';
}
template <class F> struct Signature;
template <class... A> struct Signature<void (*)(A...)> {
    static constexpr int count = sizeof...(A);
    static const int* sizes() {
        static const int all[] = {int(sizeof(A))..., 0};
        return all;
    }
    static const char* kinds() {
        static const char all[] = {kind<A>()..., 0};
        return all;
    }
    template <size_t... I> static void run(void (*function)(A...), void** given, std::index_sequence<I...>) {
        function(*reinterpret_cast<std::remove_cv_t<std::remove_reference_t<A>>*>(given[I])...);
    }
};
template <class F> void enter(void* pointer) {
    Call* call = static_cast<Call*>(pointer);
    Signature<F>::run(reinterpret_cast<F>(const_cast<void*>(call->function)), call->arguments,
                      std::make_index_sequence<Signature<F>::count>());
}
template <class F> void add(const char* name, F function) {
    enrol(Kernel{name, &enter<F>, reinterpret_cast<const void*>(function), Signature<F>::count,
                 Signature<F>::sizes(), Signature<F>::kinds()});
}

// --- operations of a warp
template <class T> uint64_t pack(T value) {
    static_assert(sizeof(T) <= 8, "too wide for a shuffle");
    uint64_t bits = 0;
    memcpy(&bits, &value, sizeof value);
    return bits;
}
template <class T> T unpack(uint64_t bits) {
    T value;
    memcpy(&value, &bits, sizeof value);
    return value;
}
template <class T> T shuffle(int line, unsigned mask, T value, int source) {
    self()->value = pack(value);
    self()->source = source;
    collective(SHUFFLE, mask, line, finish_shuffle);
    return unpack<T>(self()->result);
}
template <class T> T shuffle_index(int line, unsigned mask, T value, int source) {
    return shuffle(line, mask, value, source & 31);
}
template <class T> T shuffle_xor(int line, unsigned mask, T value, int bits) {
    return shuffle(line, mask, value, self()->lane ^ bits);
}
template <class T> T shuffle_down(int line, unsigned mask, T value, int distance) {
    const int source = self()->lane + distance;
    return shuffle(line, mask, value, source < WARP ? source : self()->lane);
}
inline unsigned ballot(int line, unsigned mask, int vote) {
    self()->value = vote != 0;
    collective(VOTE, mask, line, finish_vote);
    return unsigned(self()->result);
}
// A whole butterfly of five shuffles in one stop, equal to them bit for bit.
inline float warp_sum(int line, float value) {
    self()->value = pack(value);
    collective(REDUCE, 0xffffffffu, line, finish_add);
    return unpack<float>(self()->result);
}
inline float warp_max(int line, float value) {
    self()->value = pack(value);
    collective(REDUCE, 0xffffffffu, line, finish_max);
    return unpack<float>(self()->result);
}
// Tensor cores; fragments as in the PTX manual.  Of int8: m16n8k32, m16n8k16, m8n8k16.
struct MultiplyArguments { const unsigned *a, *b; int *d, rows, columns; };
inline void multiply(int line, int rows, int columns, int* d, const unsigned* a, const unsigned* b) {
    MultiplyArguments arguments{a, b, d, rows, columns};
    self()->fragment = &arguments;
    collective(MULTIPLY, 0xffffffffu, line, finish_multiply);
}

}  // namespace emulator
