// The emulator's runtime: the scheduler of a block's lanes, and the launch that ctypes calls.
//
// One operating-system thread runs the blocks one after the other.  Shared memory starts as NaNs in every block.  A
// launch reports the first fault: a lane missing from a warp operation, barriers at different lines, a write past
// dynamic shared memory.
#include <link.h>
#include <sys/mman.h>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>
#include "fibers.h"
#include "switch.h"

namespace emulator {

constexpr int ASCENDING = 0, DESCENDING = 1, SHUFFLED = 2;
constexpr size_t SHARED_LIMIT = 227 * 1024, GUARD_BYTES = 1024;
constexpr char GUARD = char(0xa5);

struct Storage { void* self; char* start; size_t size; };
static __thread Block* current;  // these two must outlive the poisoning of shared memory
static __thread Storage statics;

static std::vector<Kernel>& table() {
    static std::vector<Kernel> kernels;
    return kernels;
}
void enrol(const Kernel& kernel) { table().push_back(kernel); }

[[noreturn]] static void leave(Block& block) {
    void* unused;
    emulator_switch(&unused, block.caller);
    __builtin_unreachable();
}

template <class... A> [[noreturn]] static void fail(Block& block, const char* format, A... values) {
    if (!block.error[0]) snprintf(block.error, sizeof block.error, format, values...);
    leave(block);
}

void die(const char* what) {
    const Lane& lane = *self();
    Block& block = *lane.block;
    fail(block, "%s: block (%u,%u,%u) thread (%u,%u,%u)", what, block.index.x, block.index.y, block.index.z,
         lane.thread.x, lane.thread.y, lane.thread.z);
}

static int pick(Block& block, unsigned ready) {
    if (block.order == DESCENDING) return 31 - __builtin_clz(ready);
    if (block.order == SHUFFLED) {
        block.random = block.random * 1664525u + 1013904223u;
        int skip = int((block.random >> 10) % unsigned(__builtin_popcount(ready)));
        while (skip--) ready &= ready - 1;
    }
    return __builtin_ctz(ready);
}

static void report_deadlock(Block& block) {
    for (int i = 0; i < block.num_threads; i++) {
        const Lane& lane = block.lanes[i];
        if (lane.operation == NONE) continue;
        const Warp& warp = block.warps[lane.warp];
        fail(block,
             "deadlock: block (%u,%u,%u) thread (%u,%u,%u) waits at line %d in a warp operation with mask %08x, "
             "but not every lane of the mask comes (alive %08x, at a barrier %08x)",
             block.index.x, block.index.y, block.index.z, lane.thread.x, lane.thread.y, lane.thread.z, lane.line,
             lane.mask, warp.alive, warp.at_barrier);
    }
    fail(block, "deadlock: no thread can go on");
}

// Leaves the running lane, which waits or is done, for another.
void run_next() {
    Block& block = *self()->block;
    int chosen = self()->warp;
    if (!block.warps[chosen].ready) {
        const int count = block.num_warps, from = chosen;
        int i = 1;
        for (; i <= count; i++) {
            chosen = block.order == DESCENDING ? (from - i % count + count) % count : (from + i) % count;
            if (block.warps[chosen].ready) break;
        }
        if (i > count) {
            if (!block.live) leave(block);
            report_deadlock(block);
        }
    }
    Lane *from = self(), *to = &block.lanes[chosen * WARP + pick(block, block.warps[chosen].ready)];
    if (from == to) return;
    block.switches++;
    emulator_switch(&from->stack, to->stack);
}

static void open_barrier(Block& block) {
    if (block.at_barrier == 0 || block.at_barrier != block.live) return;
    for (int i = 0; i < block.num_warps; i++) {
        block.warps[i].ready |= block.warps[i].at_barrier;
        block.warps[i].at_barrier = 0;
    }
    block.at_barrier = 0;
}

void barrier(int line) {
    const Lane& lane = *self();
    Block& block = *lane.block;
    Warp& warp = block.warps[lane.warp];
    const unsigned bit = 1u << lane.lane;
    if (block.at_barrier && block.barrier_line != line)
        fail(block, "divergent __syncthreads: lines %d and %d, block (%u,%u,%u) thread (%u,%u,%u)",
             block.barrier_line, line, block.index.x, block.index.y, block.index.z, lane.thread.x, lane.thread.y,
             lane.thread.z);
    block.barrier_line = line;
    warp.ready &= ~bit;
    warp.at_barrier |= bit;
    block.at_barrier++;
    open_barrier(block);
    run_next();
}

static bool all_came(const Lane* lanes, const Warp& warp, Operation operation, unsigned mask, int line) {
    if ((warp.waiting & mask) != mask) return false;
    for (unsigned left = mask; left; left &= left - 1) {
        const Lane& lane = lanes[__builtin_ctz(left)];
        if (lane.operation != operation || lane.mask != mask || lane.line != line) return false;
    }
    return true;
}

void collective(Operation operation, unsigned mask, int line, Finish finish) {
    Lane& lane = *self();
    Block& block = *lane.block;
    Warp& warp = block.warps[lane.warp];
    Lane* lanes = &block.lanes[lane.warp * WARP];
    const unsigned bit = 1u << lane.lane;
    if (!(mask & bit)) die("warp operation called by a lane outside its mask");
    lane.operation = operation;
    lane.mask = mask;
    lane.line = line;
    warp.ready &= ~bit;
    warp.waiting |= bit;
    if (all_came(lanes, warp, operation, mask, line)) {
        finish(block, warp, lanes, mask);
        for (unsigned left = mask; left; left &= left - 1) lanes[__builtin_ctz(left)].operation = NONE;
        warp.waiting &= ~mask;
        warp.ready |= mask;
        if (block.order != SHUFFLED) return;
    }
    run_next();
}

void finish_nothing(Block&, Warp&, Lane*, unsigned) {}

void finish_shuffle(Block&, Warp&, Lane* lanes, unsigned mask) {
    for (unsigned left = mask; left; left &= left - 1) {
        Lane& lane = lanes[__builtin_ctz(left)];
        lane.result = (mask >> lane.source & 1) ? lanes[lane.source].value : 0xdeadbeefdeadbeefull;
    }
}

void finish_vote(Block&, Warp&, Lane* lanes, unsigned mask) {
    unsigned votes = 0;
    for (unsigned left = mask; left; left &= left - 1)
        if (lanes[__builtin_ctz(left)].value) votes |= 1u << __builtin_ctz(left);
    for (unsigned left = mask; left; left &= left - 1) lanes[__builtin_ctz(left)].result = votes;
}

template <class F> static void butterfly(Lane* lanes, F combine) {
    float before[WARP], after[WARP];
    for (int i = 0; i < WARP; i++) before[i] = unpack<float>(lanes[i].value);
    for (int bits = WARP / 2; bits; bits >>= 1) {
        for (int i = 0; i < WARP; i++) after[i] = combine(before[i], before[i ^ bits]);
        memcpy(before, after, sizeof before);
    }
    for (int i = 0; i < WARP; i++) lanes[i].result = pack(before[i]);
}
void finish_add(Block&, Warp&, Lane* lanes, unsigned) {
    butterfly(lanes, [](float a, float b) { return a + b; });
}
void finish_max(Block&, Warp&, Lane* lanes, unsigned) {
    butterfly(lanes, [](float a, float b) { return fmaxf(a, b); });
}

// A is row-major, B column-major.  With 16 rows a lane's registers hold rows g and g + 8, with 8 row g alone; with 32
// columns there are as many registers again for the last 16.
void finish_multiply(Block&, Warp&, Lane* lanes, unsigned) {
    const auto& first = *static_cast<MultiplyArguments*>(lanes[0].fragment);
    const int rows = first.rows, columns = first.columns, row_halves = rows / 8, halves = columns / 16;
    int a[16][32], b[32][8];
    for (int i = 0; i < WARP; i++) {
        const auto& given = *static_cast<MultiplyArguments*>(lanes[i].fragment);
        const int g = i / 4, t = i % 4;
        for (int byte = 0; byte < 4; byte++) {
            for (int half = 0; half < halves; half++) {
                const int column = t * 4 + byte + half * 16;
                for (int row = 0; row < row_halves; row++)
                    a[g + row * 8][column] = int8_t(given.a[row + half * row_halves] >> 8 * byte);
                b[column][g] = int8_t(given.b[half] >> 8 * byte);
            }
        }
    }
    for (int i = 0; i < WARP; i++) {
        int* d = static_cast<MultiplyArguments*>(lanes[i].fragment)->d;
        for (int r = 0; r < rows / 4; r++)
            for (int k = 0; k < columns; k++) d[r] += a[i / 4 + (r >> 1) * 8][k] * b[k][i % 4 * 2 + (r & 1)];
    }
}

static void lane_main() {
    Block& block = *self()->block;
    block.entry(block.call);
    Warp& warp = block.warps[self()->warp];
    const unsigned bit = 1u << self()->lane;
    warp.alive &= ~bit;
    warp.ready &= ~bit;
    block.live--;
    open_barrier(block);
    run_next();
    __builtin_unreachable();
}

// The thread-local storage of this library is the static shared memory of its kernels.
static int find_statics(dl_phdr_info* info, size_t, void* pointer) {
    auto* found = static_cast<Storage*>(pointer);
    bool is_own = false;
    size_t size = 0;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const auto& header = info->dlpi_phdr[i];
        const size_t offset = size_t(found->self) - info->dlpi_addr - header.p_vaddr;
        if (header.p_type == PT_LOAD && offset < header.p_memsz) is_own = true;
        if (header.p_type == PT_TLS) size = header.p_memsz;
    }
    if (!is_own) return 0;
    found->start = static_cast<char*>(info->dlpi_tls_data);
    found->size = size;
    return 1;
}

static Block& own_block() {
    if (current) return *current;
    auto* block = static_cast<Block*>(calloc(1, sizeof(Block)));
    void* stacks = mmap(nullptr, STACK_BYTES * (MAX_THREADS + 1), PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    const auto start = (reinterpret_cast<uintptr_t>(stacks) + STACK_BYTES - 1) & ~uintptr_t(STACK_BYTES - 1);
    block->stacks = reinterpret_cast<char*>(start);
    block->shared = static_cast<char*>(aligned_alloc(1024, SHARED_LIMIT + GUARD_BYTES));
    current = block;
    statics.self = reinterpret_cast<void*>(&lane_main);
    dl_iterate_phdr(find_statics, &statics);
    return *block;
}

static void poison(Block& block) {
    Block* kept = current;
    const Storage storage = statics;
    if (storage.size) memset(storage.start, 0xff, storage.size);
    asm volatile("" ::: "memory");
    current = kept;
    statics = storage;
    memset(block.shared, 0xff, block.shared_bytes);
    memset(block.shared + block.shared_bytes, GUARD, GUARD_BYTES);
}

static void check_guard(Block& block) {
    for (size_t i = 0; i < GUARD_BYTES && !block.error[0]; i++)
        if (block.shared[block.shared_bytes + i] != GUARD)
            snprintf(block.error, sizeof block.error,
                     "block (%u,%u,%u) wrote past its dynamic shared memory (byte %zu of %zu)", block.index.x,
                     block.index.y, block.index.z, block.shared_bytes + i, block.shared_bytes);
}

static void* fresh_stack(Block& block, int thread) {
    // Stacks begin at different places of a page, so that they do not fall on the same lines of the cache.
    auto** top = reinterpret_cast<void**>(block.stacks + size_t(thread + 1) * STACK_BYTES - 64 - (thread & 15) * 64);
#if defined(__x86_64__)
    *--top = nullptr;
    *--top = reinterpret_cast<void*>(&lane_main);
    top -= 6;
    memset(top, 0, 48);
#else
    top -= 20;
    memset(top, 0, 160);
    top[11] = reinterpret_cast<void*>(&lane_main);
#endif
    return top;
}

static void run_block(Block& block, uint32_t seed) {
    poison(block);
    block.error[0] = 0;
    block.live = block.num_threads;
    block.at_barrier = 0;
    block.random = seed;
    for (int i = 0; i < block.num_warps; i++) {
        const int count = block.num_threads - i * WARP;
        const unsigned mask = count >= WARP ? ~0u : (1u << count) - 1;
        block.warps[i] = {mask, mask, 0, 0};
    }
    for (int i = 0; i < block.num_threads; i++) {
        block.lanes[i].operation = NONE;
        block.lanes[i].stack = fresh_stack(block, i);
    }
    emulator_switch(&block.caller, block.lanes[block.order == DESCENDING ? block.num_threads - 1 : 0].stack);
    check_guard(block);
}

}  // namespace emulator

static std::string last_error;

extern "C" {
int emulator_count() { return int(emulator::table().size()); }
const char* emulator_name(int i) { return emulator::table()[i].name; }
int emulator_num_arguments(int i) { return emulator::table()[i].num_arguments; }
const int* emulator_sizes(int i) { return emulator::table()[i].sizes; }
const char* emulator_kinds(int i) { return emulator::table()[i].kinds; }
const char* emulator_error() { return last_error.c_str(); }

int emulator_launch(int i, const unsigned* grid, const unsigned* shape, size_t shared_bytes, void** arguments,
                    int order, unsigned seed) {
    using namespace emulator;
    const long total = long(grid[0]) * grid[1] * grid[2];
    const size_t threads = size_t(shape[0]) * shape[1] * shape[2];
    if (threads > MAX_THREADS || !threads || total <= 0 || shared_bytes > SHARED_LIMIT) {
        last_error = "invalid launch configuration";
        return 1;
    }
    const Kernel kernel = table()[i];
    Call call{kernel.function, arguments};
    Block& block = own_block();
    block.grid = dim3(grid[0], grid[1], grid[2]);
    block.shape = dim3(shape[0], shape[1], shape[2]);
    block.entry = kernel.call;
    block.call = &call;
    block.order = order;
    block.num_threads = int(threads);
    block.num_warps = (block.num_threads + WARP - 1) / WARP;
    block.shared_bytes = shared_bytes;
    for (int t = 0; t < block.num_threads; t++) {
        Lane& lane = block.lanes[t];
        lane.thread = {t % shape[0], t / shape[0] % shape[1], t / (shape[0] * shape[1])};
        lane.warp = t / WARP;
        lane.lane = t % WARP;
        lane.block = &block;
        *reinterpret_cast<Lane**>(block.stacks + size_t(t) * STACK_BYTES) = &lane;
    }
    for (long done = 0; done < total; done++) {
        const long id = order == DESCENDING ? total - 1 - done : done;
        block.index = {unsigned(id % grid[0]), unsigned(id / grid[0] % grid[1]), unsigned(id / (long(grid[0]) * grid[1]))};
        run_block(block, seed + uint32_t(id) * 2654435761u);
        if (block.error[0]) {
            last_error = block.error;
            return 2;
        }
    }
    return 0;
}
}
