"""Every architecture on the emulated card against another implementation, by decode's kernels and by a prompt's."""

from __future__ import annotations

import numpy as np
import pytest
import references
from emulated_device import EmulatedDevice
from references import Reference, path_of, references_of, relative_error

from kernels_gpu.binding import GpuModel, GpuOptions, bind
from kernels_gpu.plan import GpuLimits, UnsupportedError
from models.description import load_description
from models.gguf_file import open_model_file
from models.segments import whole


def bound(name: str, reference: Reference) -> GpuModel:
    context_size = reference.context_size or 128
    limits = GpuLimits(
        max_batch_tokens=48,
        max_outputs=48,
        max_sequences=1,
        context_size=context_size,
        num_pages=-(-context_size // 64),
    )
    with open_model_file(path_of(name)) as file:
        segment = whole(load_description(file, context_size=reference.context_size).program)
        return bind(segment, file, limits, GpuOptions(activations="exact"), EmulatedDevice(order="shuffled"))


@pytest.mark.parametrize("name", sorted(set(references.NAMES) - references.CPU_ONLY))
def test_kernels_give_the_logits_of_another_implementation(name: str) -> None:
    for reference in references_of(name):
        model, ids = bound(name, reference), reference.ids.astype(np.int32)
        tables = np.arange(model.limits.table_row, dtype=np.int32)[::-1][None].copy()
        for is_prefill, size in ((False, 5), (True, 29)):
            rows = []
            for first in range(0, len(ids), size):
                part = ids[first : first + size]
                indexes = np.arange(len(part), dtype=np.int32)
                found = model.run(part, first + indexes, 0 * indexes, tables, indexes, is_prefill=is_prefill)
                assert found is not None
                rows.append(found.copy())
            assert relative_error(np.concatenate(rows), reference.logits) < 3e-3  # most of it by the cache's float16
        model.close()


@pytest.mark.parametrize("name", sorted(references.CPU_ONLY))
def test_models_with_operations_that_no_kernel_does_are_refused(name: str) -> None:
    with pytest.raises(UnsupportedError, match="load it on the CPU"):
        bound(name, references_of(name)[0])
