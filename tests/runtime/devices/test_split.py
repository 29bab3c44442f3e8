"""Tiny models cut between the CPU and the emulated card: the same answer at every cut, in every batch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from functools import reduce
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
from emulated_gpu import install
from tiny_models import write_tiny_model

from models.description import load_description
from models.gguf_file import open_model_file
from runtime.devices import parts, pricing
from runtime.devices.binding import Batch, Binding, CacheType, DeviceMemory, DeviceOptions, HasTimes, Limits
from runtime.errors import Cancelled
from runtime.options import EngineOptions

Array = np.ndarray[Any, np.dtype[Any]]
Family = Literal["llama", "gemma3"]
LIMITS = Limits(max_batch_tokens=160, max_outputs=24, max_sequences=2, context_size=192, num_pages=6)
TABLES = np.array([[4, 0, 2], [1, 5, 3]], np.int32)
IDS = np.array([(7 * i * i + 3 * i) % 380 for i in range(160)], np.int32)
OPTIONS = DeviceOptions(
    limits=LIMITS,
    threads=2,
    cache_type_k="f16",
    cache_type_v="f16",
    activations="balanced",
    isa="auto",
    kernel_folder=EngineOptions().kernel_folder.expanduser(),
)


def bound(path: Path, gpu_layers: int, options: DeviceOptions = OPTIONS) -> Binding:
    with open_model_file(path) as file:
        program = load_description(file).program
        split = pricing.split(program, gpu_layers)
        binding = parts.bind(split, file, options, lambda *_: None)
        priced = [pricing.price_cpu(split.cpu, file, options)] if split.cpu else []
        priced += [pricing.price_gpu(split.gpu, file, options)] if split.gpu else []
        assert binding.memory == reduce(DeviceMemory.plus, priced)
        return binding


def num_layers(path: Path) -> int:
    with open_model_file(path) as file:
        return len(load_description(file).program.layers)


def batch(*runs: tuple[int, int, int, int], outputs: Sequence[int] = ()) -> Batch:
    """runs: (slot, first position, tokens, how many of these belong to the prompt)."""
    positions = [np.arange(first, first + count, dtype=np.int32) for _, first, count, _ in runs]
    return Batch(
        token_ids=np.concatenate([IDS[part] for part in positions]),
        positions=np.concatenate(positions),
        slots=np.concatenate([np.full(count, slot, np.int32) for slot, _, count, _ in runs]),
        is_prompt=np.concatenate([np.arange(count) < prompt for _, _, count, prompt in runs]),
        page_tables=TABLES,
        outputs=np.array(outputs, np.int32),
        states=np.full((2, 2), -1, np.int32),
    )


def conversation(binding: Binding) -> Array:
    """Rows of a prompt of 20, four tokens after it, and four more that are checked at once."""
    rows = [binding.run(batch((0, 0, 20, 20), outputs=[3, 19])).copy()]
    rows += [binding.run(batch((0, 20 + idx, 1, 0), outputs=[0])).copy() for idx in range(4)]
    rows.append(binding.run(batch((0, 24, 4, 0), outputs=range(4))).copy())
    return np.concatenate(rows)


@pytest.mark.parametrize("family", ["llama", "gemma3"])
def test_every_split_gives_the_same_answer(
    family: Literal["llama", "gemma3"], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_tiny_model(tmp_path / "tiny.gguf", architecture=family, format="Q4_0")
    with closing(bound(path, 0)) as binding:
        expected = conversation(binding)
    for gpu_layers in range(1, num_layers(path) + 1):
        card = install(monkeypatch)
        binding = bound(path, gpu_layers)
        differences = (conversation(binding) - expected) / expected.std()
        assert np.abs(differences).max() < 0.05, f"{gpu_layers} layers on the card"
        assert np.sqrt(np.mean(differences**2)) < 0.01, f"{gpu_layers} layers on the card"
        assert isinstance(binding, HasTimes)
        assert binding.times.gpu_ms > 0
        assert (binding.times.cpu_ms > 0) == (gpu_layers < num_layers(path))
        binding.close()
        binding.close()
        assert card.memory().free_bytes == card.total_bytes


@pytest.mark.parametrize(
    ("kinds", "most"),
    [(("q8_0", "q8_0"), 0.015), (("q4_0", "q4_0"), 0.05), (("f16", "q4_0"), 0.05)],
)
def test_keys_and_values_of_fewer_bits(
    kinds: tuple[CacheType, CacheType], most: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_tiny_model(tmp_path / "tiny.gguf", architecture="qwen2", format="Q8_0")
    options = replace(OPTIONS, cache_type_k=kinds[0], cache_type_v=kinds[1])
    with closing(bound(path, 0, options)) as binding:
        expected = conversation(binding)
    for gpu_layers in (1, 2):
        install(monkeypatch)
        with closing(bound(path, gpu_layers, options)) as binding:
            differences = (conversation(binding) - expected) / expected.std()
        assert np.sqrt(np.mean(differences**2)) < most


@pytest.fixture
def halves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Binding]:
    """A model whose last layer alone is on the card."""
    install(monkeypatch)
    path = write_tiny_model(tmp_path / "tiny.gguf", architecture="llama", format="Q4_K")
    with closing(bound(path, 1)) as binding:
        yield binding


def test_the_cut_of_a_prompt_changes_no_bit(halves: Binding) -> None:
    together = halves.run(batch((0, 0, 160, 160), outputs=[0, 127, 128, 159])).copy()
    cuts = ((0, 1), (1, 60), (60, 128), (128, 129), (129, 160))
    rows = [
        halves.run(batch((1, first, last - first, last - first), outputs=sorted({0, last - first - 1}))).copy()
        for first, last in cuts
    ]
    np.testing.assert_array_equal(together[0], rows[0][0])
    np.testing.assert_array_equal(together[1], rows[2][1])
    np.testing.assert_array_equal(together[2], rows[3][0])
    np.testing.assert_array_equal(together[3], rows[4][1])


def test_what_follows_a_prompt_is_the_same_alone_together_and_beside_another_prompt(halves: Binding) -> None:
    halves.run(batch((0, 0, 20, 20)))
    alone = np.concatenate([halves.run(batch((0, 20 + idx, 1, 0), outputs=[0])).copy() for idx in range(4)])
    prompt = halves.run(batch((1, 0, 9, 9), outputs=[8])).copy()
    together = halves.run(batch((0, 20, 4, 0), outputs=range(4))).copy()
    np.testing.assert_array_equal(together, alone)
    mixed = halves.run(batch((0, 20, 4, 0), (1, 0, 9, 9), outputs=[0, 1, 2, 3, 12])).copy()
    np.testing.assert_array_equal(mixed, np.concatenate([alone, prompt]))
    # A sequence that had to begin anew computes its prompt as a prompt, and its answer as an answer.
    again = halves.run(batch((1, 0, 24, 20), outputs=range(20, 24)))
    np.testing.assert_array_equal(again, alone)


def test_a_copied_page_and_a_roll_back_hold_on_both_devices(halves: Binding) -> None:
    halves.run(batch((0, 0, 20, 20)))
    expected = halves.run(batch((0, 20, 1, 0), outputs=[0])).copy()
    halves.run(batch((0, 20, 3, 0)))  # guesses that are rejected
    np.testing.assert_array_equal(halves.run(batch((0, 20, 1, 0), outputs=[0])), expected)
    halves.copy_page(4, 1)
    np.testing.assert_array_equal(halves.run(batch((1, 20, 1, 0), outputs=[0])), expected)


def test_a_cancel_stops_one_run_of_both(halves: Binding) -> None:
    expected = halves.run(batch((0, 0, 20, 20), outputs=[19])).copy()
    for _ in range(2):
        halves.cancel()
        with pytest.raises(Cancelled):
            halves.run(batch((0, 0, 20, 20), outputs=[19]))
        np.testing.assert_array_equal(halves.run(batch((0, 0, 20, 20), outputs=[19])), expected)
