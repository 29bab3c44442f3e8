"""A real model on the emulated card, against the exact function."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
from emulated_device import EmulatedDevice
from golden import divergences, load_exact, log_softmax

from kernels_gpu.binding import GpuOptions, bind
from kernels_gpu.plan import GpuLimits
from models.description import load_description
from models.gguf_file import open_model_file
from models.segments import whole

LIMITS = GpuLimits(max_batch_tokens=8, max_outputs=8, max_sequences=1, context_size=64, num_pages=1)
CLEAR_GAP = 0.3  # nats


def test_smollm2_says_what_the_exact_function_says(model_path: Callable[[str], Path]) -> None:
    exact = load_exact("smollm2-135m")[0]
    ids = np.array(exact.ids[:8], np.int32)
    indexes = np.arange(8, dtype=np.int32)
    with open_model_file(model_path("smollm2-135m")) as file:
        segment = whole(load_description(file).program)
        model = bind(segment, file, LIMITS, GpuOptions(activations="balanced"), EmulatedDevice())
        logits = model.run(ids, indexes, 0 * indexes, np.zeros((1, 1), np.int32), indexes)
    assert logits is not None
    kl = divergences(exact.top_ids[:8], exact.top_logprobs[:8], log_softmax(logits))
    assert kl[1:].mean() < 0.01
    gaps = exact.top_logprobs[:8, 0] - exact.top_logprobs[:8, 1]
    is_clear = gaps > CLEAR_GAP
    assert is_clear.sum() >= 3
    np.testing.assert_array_equal(logits.argmax(axis=1)[is_clear], exact.top_ids[:8, 0][is_clear])
