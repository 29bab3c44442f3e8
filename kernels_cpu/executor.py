"""Runs a bound program: every thread of the team walks the same table of steps and takes chunks of work.

Owns the table's layout and the protocol between threads.  Does not know what a kernel does.

A step is 128 bytes: one cache line that only the starter of a run writes, one line of counters.

    line 0   kernel address, operands address, fixed chunks, tokens per chunk, count address, waits, chunks, wait target
    line 1   ticket (run number << 32 | chunks left), done (chunks finished in this step's phase)

chunks = fixed * ceil(count / tokens per chunk).  The first 128 bytes of a table hold the number of steps.

Steps of one phase are independent: their threads go straight on to the next step; the last step of a phase waits until
all chunks of the phase are finished.  Threads wait for *work*, not for each other: a thread that the system took off
its core holds the others up only while it owns a chunk.  A thread that comes back late finds the tickets of another
run and goes back to its place; so nothing has to be reset under it.  A ticket holds run and chunks left in one word:
a late thread that sees its own run's ticket beside the next run's chunks finds nothing left.
"""

from __future__ import annotations

import time

from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

from kernels_cpu.emitter import I8, I32, I64
from kernels_cpu.isa import is_x86
from kernels_cpu.table import (
    CANCEL,
    CHUNKS,
    COUNT_AT,
    DONE,
    DONE_AT,
    FIXED,
    INSIDE,
    JOB,
    KERNEL,
    MUTEX,
    OPERANDS,
    PARKED,
    PER_CHUNK,
    PROGRAM,
    SIGNAL,
    STALLED_NS,
    STEP_BYTES,
    STOP,
    THREADS,
    TICKET,
    WAIT_TARGET,
    WAITS,
)  # fmt: skip
from kernels_cpu.vectors import atomic_word, fetch_add, set_atomic_word, stack_bytes, store_word, word

SPINS_BEFORE_YIELD = 2000  # of some 15 ns: a step of a small model takes about 10 us
YIELDS_BEFORE_PARKING = 400


@intrinsic
def call_kernel(typing_context, kernel, operands, chunk):
    """Calls a compiled kernel by its address, in Numba's calling convention."""

    def emit(context, builder, signature, args):
        pointer = I8.as_pointer()
        kind = ir.FunctionType(I32, [pointer.as_pointer(), pointer, I64, I64])
        with builder.goto_entry_block():
            result = builder.alloca(pointer)
        function = builder.inttoptr(args[0], kind.as_pointer())
        builder.call(function, [result, ir.Constant(pointer, None), args[1], args[2]])
        return context.get_dummy_value()

    return types.void(types.intp, types.intp, types.intp), emit


@intrinsic
def relax(typing_context):
    """Tells the core that this is a waiting loop."""

    def emit(context, builder, signature, args):
        name = "llvm.x86.sse2.pause" if is_x86() else "llvm.donothing"
        function = builder.module.globals.get(name) or ir.Function(
            builder.module, ir.FunctionType(ir.VoidType(), []), name
        )
        builder.call(function, [])
        return context.get_dummy_value()

    return types.void(), emit


@intrinsic
def take_ticket(typing_context, address, run):
    """Takes a chunk of a step; returns how many were left before, 0 when all are taken, -1 in another run."""

    def emit(context, builder, signature, args):
        address, run = args
        pointer = builder.inttoptr(address, I64.as_pointer())
        loop, mine, attempt, end = (builder.append_basic_block(n) for n in ("ticket", "mine", "attempt", "taken"))
        builder.branch(loop)
        builder.position_at_end(loop)
        ticket = builder.load_atomic(pointer, "acquire", 8)
        is_mine = builder.icmp_signed("==", builder.lshr(ticket, I64(32)), run)
        builder.cbranch(is_mine, mine, end)
        builder.position_at_end(mine)
        left = builder.and_(ticket, I64(0xFFFFFFFF))
        builder.cbranch(builder.icmp_signed("!=", left, I64(0)), attempt, end)
        builder.position_at_end(attempt)
        swapped = builder.cmpxchg(pointer, ticket, builder.sub(ticket, I64(1)), "acq_rel", "acquire")
        builder.cbranch(builder.extract_value(swapped, 1), end, loop)
        builder.position_at_end(end)
        result = builder.phi(I64)
        result.add_incoming(I64(-1), loop)
        result.add_incoming(I64(0), mine)
        result.add_incoming(left, attempt)
        return result

    return types.int64(types.intp, types.int64), emit


def _external(name, arity):
    """A function of the C library with `arity` addresses as arguments, as an intrinsic."""

    def emit(context, builder, signature, args):
        kind = ir.FunctionType(I32, [I64] * arity)
        function = builder.module.globals.get(name) or ir.Function(builder.module, kind, name)
        return builder.sext(builder.call(function, args), I64)

    if arity == 0:

        @intrinsic
        def call_0(typing_context):
            return types.int64(), emit

        return call_0
    if arity == 1:

        @intrinsic
        def call_1(typing_context, a):
            return types.int64(types.intp), emit

        return call_1

    @intrinsic
    def call_2(typing_context, a, b):
        return types.int64(types.intp, types.intp), emit

    return call_2


sched_yield = _external("sched_yield", 0)
lock = _external("pthread_mutex_lock", 1)
unlock = _external("pthread_mutex_unlock", 1)
wait_signal = _external("pthread_cond_wait", 2)
signal_all = _external("pthread_cond_broadcast", 1)

read_clock = _external("clock_gettime", 2)
MONOTONIC = time.CLOCK_MONOTONIC

PLAIN = {"nogil": True, "boundscheck": False, "error_model": "numpy"}


@njit(types.int64(types.intp), **PLAIN)
def run_number(team):
    """The number of the newest run; tickets hold 31 bits of it."""
    return atomic_word(team + JOB) & 0x7FFFFFFF


@njit(types.int64(types.intp), **PLAIN)
def now_ns(unused):
    """A clock that only goes forward."""
    clock = stack_bytes(16)
    read_clock(MONOTONIC, clock)
    return word(clock) * 1_000_000_000 + word(clock + 8)


@njit(types.void(types.intp, types.int64, types.intp, types.int64), **PLAIN)
def wait_for(team, run, done, target):
    """Waits until a phase's chunks are finished; time lost to threads that the system took away is added up."""
    spins = 0
    start = 0
    while atomic_word(done) < target:
        spins += 1
        if spins < SPINS_BEFORE_YIELD:
            relax()
            continue
        if start == 0:
            start = now_ns(0)
        sched_yield()
        if atomic_word(team + CANCEL) != 0 or run_number(team) != run or atomic_word(team + STOP) != 0:
            return
    if start != 0:
        fetch_add(team + STALLED_NS, now_ns(0) - start)


@njit(types.void(types.intp, types.int64), **PLAIN)
def walk(team, run):
    """Takes part in run number `run`, from the first step to the last, or until it is cancelled or over."""
    program = word(team + PROGRAM)
    for step_idx in range(1, word(program) + 1):
        step = program + step_idx * STEP_BYTES
        if atomic_word(team + CANCEL) != 0:
            return
        chunks, kernel, operands, done = (
            word(step + CHUNKS),
            word(step + KERNEL),
            word(step + OPERANDS),
            word(step + DONE_AT),
        )
        finished = 0
        left = take_ticket(step + TICKET, run)
        while left > 0:
            call_kernel(kernel, operands, chunks - left)
            finished += 1
            left = take_ticket(step + TICKET, run)
        if left < 0:
            return
        if finished != 0:
            fetch_add(done, finished)
        wait_for(team, run, done, word(step + WAIT_TARGET))


@njit(types.void(types.intp, types.int64), **PLAIN)
def prepare(team, run):
    """Writes every step's chunk count and counters for run number `run`."""
    program = word(team + PROGRAM)
    total = 0
    for step_idx in range(1, word(program) + 1):
        step = program + step_idx * STEP_BYTES
        chunks = word(step + FIXED)
        per_chunk = word(step + PER_CHUNK)
        if per_chunk > 0:
            chunks *= (word(word(step + COUNT_AT)) + per_chunk - 1) // per_chunk
        store_word(step + CHUNKS, chunks)
        total += chunks
        store_word(step + WAIT_TARGET, 0)
        store_word(step + DONE, 0)
        if word(step + WAITS) != 0:
            store_word(step + WAIT_TARGET, total)
            total = 0
        set_atomic_word(step + TICKET, run << 32 | chunks)


@njit(types.void(types.intp), **PLAIN)
def withdraw(team):
    """Takes all tickets of a cancelled run back and waits until no worker is inside."""
    program = word(team + PROGRAM)
    for step_idx in range(1, word(program) + 1):
        set_atomic_word(program + step_idx * STEP_BYTES + TICKET, 0)
    while atomic_word(team + INSIDE) != 0:
        relax()


def run(team, unused):
    """The starter's part of a run: prepares the table, wakes the team, walks along, leaves when all is done."""
    number = (atomic_word(team + JOB) + 1) & 0x7FFFFFFF
    prepare(team, number)
    fetch_add(team + JOB, 1)
    if word(team + THREADS) > 1 and atomic_word(team + PARKED) != 0:
        lock(team + MUTEX)
        signal_all(team + SIGNAL)
        unlock(team + MUTEX)
    walk(team, number)
    if atomic_word(team + CANCEL) != 0:
        withdraw(team)


def work(team, thread_idx):
    """A worker's life: waits for a run (spinning, yielding, then parked), walks through it; ends when told to stop."""
    seen = atomic_word(team + JOB)
    waits = 0
    while atomic_word(team + STOP) == 0:
        number = atomic_word(team + JOB)
        if number == seen or thread_idx >= word(team + THREADS):
            waits += 1
            if waits < SPINS_BEFORE_YIELD:
                relax()
            elif waits < SPINS_BEFORE_YIELD + YIELDS_BEFORE_PARKING:
                sched_yield()
            else:
                lock(team + MUTEX)
                fetch_add(team + PARKED, 1)
                while (atomic_word(team + JOB) == number) and atomic_word(team + STOP) == 0:
                    wait_signal(team + SIGNAL, team + MUTEX)
                fetch_add(team + PARKED, -1)
                unlock(team + MUTEX)
            continue
        fetch_add(team + INSIDE, 1)
        seen = atomic_word(team + JOB)
        walk(team, seen & 0x7FFFFFFF)
        fetch_add(team + INSIDE, -1)
        waits = 0
