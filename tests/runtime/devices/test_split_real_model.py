"""A real model on the CPU, on the emulated card, and on both: the same tokens wherever the best is clear."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from emulated_gpu import install
from golden import divergences, load_exact, log_softmax

from models.description import load_description
from models.gguf_file import open_model_file
from runtime.devices import parts, pricing
from runtime.devices.binding import Batch, DeviceOptions, Limits
from runtime.options import EngineOptions

CLEAR_GAP = 0.3  # nats
OPTIONS = DeviceOptions(
    limits=Limits(max_batch_tokens=16, max_outputs=16, max_sequences=1, context_size=64, num_pages=1),
    threads=2,
    cache_type_k="f16",
    cache_type_v="f16",
    activations="balanced",
    isa="auto",
    kernel_folder=EngineOptions().kernel_folder.expanduser(),
)


def teacher_forced(path: Path, gpu_layers: int, ids: np.ndarray, num_prompt: int) -> np.ndarray:
    """log probabilities [tokens, vocabulary] after each of the ids."""
    positions = np.arange(len(ids), dtype=np.int32)
    batch = Batch(
        token_ids=ids,
        positions=positions,
        slots=0 * positions,
        is_prompt=positions < num_prompt,
        page_tables=np.zeros((1, 1), np.int32),
        outputs=positions,
        states=np.full((1, 2), -1, np.int32),
    )
    with open_model_file(path) as file:
        split = pricing.split(load_description(file).program, gpu_layers)
        binding = parts.bind(split, file, OPTIONS, lambda *_: None)
    with closing(binding):
        return log_softmax(binding.run(batch))


# Layers on the card, tokens, those of them that are a prompt's, and whether the card is this machine's.  Emulating
# tensor cores takes long: one layer of a short prompt is enough of that.
SPLITS = [(1, 4, 2, False), (1, 16, 0, False), (15, 16, 0, False), (30, 16, 0, False)]
ON_CARD = [
    pytest.param(gpu_layers, 16, num_prompt, True, marks=pytest.mark.gpu)
    for gpu_layers in (1, 15, 30)
    for num_prompt in (0, 2, 16)
]


@pytest.mark.parametrize(("gpu_layers", "count", "num_prompt", "is_real"), [*SPLITS, *ON_CARD])
def test_smollm2_says_the_same_at_every_split(
    gpu_layers: int,
    count: int,
    num_prompt: int,
    is_real: bool,
    model_path: Callable[[str], Path],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    exact = load_exact("smollm2-135m")[0]
    path, ids = model_path("smollm2-135m"), np.array(exact.ids[:count], np.int32)
    expected = teacher_forced(path, 0, ids, num_prompt)
    if not is_real:
        install(monkeypatch)
    found = teacher_forced(path, gpu_layers, ids, num_prompt)
    for logprobs in (expected, found):
        assert divergences(exact.top_ids[:count], exact.top_logprobs[:count], logprobs)[1:].mean() < 0.01
    best = np.sort(expected, axis=1)[:, -2:]
    is_clear = best[:, 1] - best[:, 0] > CLEAR_GAP
    assert is_clear.sum() >= count // 2
    np.testing.assert_array_equal(found.argmax(axis=1)[is_clear], expected.argmax(axis=1)[is_clear])
