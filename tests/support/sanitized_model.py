"""Runs a tiny model, or a kernel that writes too far, under AddressSanitizer: `python sanitized_model.py FILE|overrun`.

A program of its own, because a process must begin with the sanitizer's library.
"""

from __future__ import annotations

import sys

import numpy as np
from emulated_device import EmulatedDevice
from gpu_bench import Bench

from kernels_gpu.binding import GpuOptions, bind
from kernels_gpu.plan import GpuLimits
from models.description import load_description
from models.gguf_file import open_model_file
from models.segments import whole

LIMITS = GpuLimits(
    max_batch_tokens=12, max_outputs=12, max_sequences=1, context_size=130, num_pages=3, cache_types=("q8_0", "f16")
)


def run_model(path: str) -> None:
    """A prompt on tensor cores, one by decode kernels, and a token."""
    with open_model_file(path) as file:
        segment = whole(load_description(file).program)
        model = bind(segment, file, LIMITS, GpuOptions(activations="exact"), EmulatedDevice(is_sanitized=True))
        tables = np.array([[2, 0, 1]], np.int32)
        for first, count, is_prefill in ((0, 11, True), (0, 11, False), (11, 1, False)):
            positions = np.arange(first, first + count, dtype=np.int32)
            indexes = np.arange(count, dtype=np.int32)
            found = model.run(positions, positions, 0 * positions, tables, indexes, is_prefill=is_prefill)
            assert found is not None and np.isfinite(found).all()


def overrun() -> None:
    """Writes 64 floats where there is room for 63."""
    stand = Bench(EmulatedDevice(is_sanitized=True))
    x, outputs = stand.put(np.ones((1, 64), np.float32)), stand.put(np.zeros(1, np.int32))
    stand.run("rows.cu", "select_rows", x, 64, outputs, stand.empty(63 * 4), 64, 2, grid=(1,), block=256)


if __name__ == "__main__":
    if sys.argv[1] == "overrun":
        overrun()
    else:
        run_model(sys.argv[1])
    print("finished")
