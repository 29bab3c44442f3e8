"""The thread team: Python threads that live in native code and run bound programs together.

Owns the threads and the team block.  Does not know kernels; executor.py explains the protocol.
"""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Callable

import numpy as np

from kernels_cpu import table
from kernels_cpu.crowding import Crowding

Native = Callable[[int, int], None]


def native(address: int) -> Native:
    """A compiled kernel (two 64-bit arguments) as a Python callable; the GIL is released while it runs."""
    function = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)(
        address
    )

    def call(first: int, second: int) -> None:
        result = ctypes.c_void_p()
        function(ctypes.addressof(result), None, first, second)

    return call


class Team:
    """`num_threads` threads, the caller of `run` being one of them."""

    def __init__(self, run_address: int, work_address: int, num_threads: int) -> None:
        self.num_threads = num_threads
        self._block = np.zeros(table.TEAM_BYTES + 64, np.uint8)
        self._base = -(-self._block.ctypes.data // 64) * 64
        self._words = np.frombuffer(memoryview((ctypes.c_uint8 * table.TEAM_BYTES).from_address(self._base)), np.int64)
        libc = ctypes.CDLL(None)
        libc.pthread_mutex_init(ctypes.c_void_p(self._base + table.MUTEX), None)
        libc.pthread_cond_init(ctypes.c_void_p(self._base + table.SIGNAL), None)
        self._libc = libc
        self._run, work = native(run_address), native(work_address)
        self._set(table.THREADS, num_threads)
        self._crowding = Crowding(num_threads)
        self._kept: list[np.ndarray] = []

        def live(idx: int, block: np.ndarray) -> None:  # holds the block as long as the thread looks at it
            work(self._base, idx)
            del block

        self._threads = [
            threading.Thread(target=live, args=(idx, self._block), name=f"tandem-cpu-{idx}", daemon=True)
            for idx in range(1, num_threads)
        ]
        for thread in self._threads:
            thread.start()

    def _set(self, offset: int, value: int) -> None:
        self._words[offset // 8] = value

    def run(self, program: int, kind: int | None = None) -> bool:
        """Runs a table of steps; False when `cancel` stopped it.  One caller at a time.

        kind: short runs that are alike (decoding one token, say) have a number in common: their times tell how many
        threads pay on a crowded machine.
        """
        self._set(table.PROGRAM, program)
        self._set(table.THREADS, self._crowding.kept if kind is None else self._crowding.threads)
        self._set(table.STALLED_NS, 0)
        start_s, busy_s = time.perf_counter(), time.thread_time()
        self._run(self._base, 0)
        if kind is not None:
            end_s, busy_s = time.perf_counter(), time.thread_time() - busy_s
            stalled_s = float(self._words[table.STALLED_NS // 8]) / 1e9
            self._crowding.after_run(kind, end_s - start_s, busy_s, stalled_s, end_s)
        stopped = bool(self._words[table.CANCEL // 8])
        if stopped:  # else a cancel that comes just now is for the next run
            self._set(table.CANCEL, 0)
        return not stopped

    def cancel(self) -> None:
        """Stops the current run at the next step; from any thread."""
        self._set(table.CANCEL, 1)

    def clear(self) -> None:
        """Forgets a `cancel` that came when nothing ran."""
        self._set(table.CANCEL, 0)

    def settle(self) -> None:
        """Waits until no worker looks at the last run's table, so that another team may use its memory."""
        while self._words[table.INSIDE // 8]:
            time.sleep(0)

    def keep(self, memory: np.ndarray) -> None:
        """Holds a table's memory until the threads have ended: one that is late may still look at it."""
        self._kept.append(memory)

    def close(self) -> None:
        """Ends the threads."""
        self._set(table.STOP, 1)
        self._libc.pthread_mutex_lock(ctypes.c_void_p(self._base + table.MUTEX))
        self._libc.pthread_cond_broadcast(ctypes.c_void_p(self._base + table.SIGNAL))
        self._libc.pthread_mutex_unlock(ctypes.c_void_p(self._base + table.MUTEX))
        for thread in self._threads:
            thread.join()
        self._threads = []
