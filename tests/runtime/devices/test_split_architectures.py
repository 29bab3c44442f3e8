"""Every architecture's tiny model cut between the CPU and the emulated card: the answer of the CPU alone.

Of mixtures of experts some layers' experts, or all, stay on the CPU while the rest of these layers is on the card.
"""

from __future__ import annotations

from contextlib import closing
from functools import reduce
from typing import Any

import numpy as np
import pytest
import references
from emulated_gpu import install
from references import path_of, references_of, relative_error

from models.description import load_description
from models.gguf_file import open_model_file
from models.program import MixExperts
from runtime.devices import parts, pricing
from runtime.devices.binding import Batch, Binding, DeviceMemory, DeviceOptions, HasTimes, Limits
from runtime.options import EngineOptions

Array = np.ndarray[Any, np.dtype[Any]]
EXPERTS = ("gpt-oss", "qwen3moe")
TABLES = np.array([[3, 0, 2, 5, 1, 4]], np.int32)
OPTIONS = DeviceOptions(
    limits=Limits(max_batch_tokens=320, max_outputs=48, max_sequences=1, context_size=384, num_pages=6, num_states=0),
    threads=2,
    cache_type_k="f16",
    cache_type_v="f16",
    activations="exact",
    isa="auto",
    kernel_folder=EngineOptions().kernel_folder.expanduser(),
)


def bound(name: str, gpu_layers: int, cpu_experts: int = 0) -> Binding:
    """A fixture's model; what it takes is what was promised."""
    with open_model_file(path_of(name)) as file:
        split = pricing.split(load_description(file).program, gpu_layers, cpu_experts)
        binding = parts.bind(split, file, OPTIONS, lambda *_: None)
        priced = [pricing.price_cpu(split.cpu, file, OPTIONS)] if split.cpu else []
        priced += [pricing.price_gpu(split.gpu, file, OPTIONS)] if split.gpu else []
        assert binding.memory == reduce(DeviceMemory.plus, priced)
        return binding


def num_layers(name: str) -> int:
    with open_model_file(path_of(name)) as file:
        return len(load_description(file).program.layers)


def batch(ids: Array, first: int, *, is_prompt: bool) -> Batch:
    indexes = np.arange(len(ids), dtype=np.int32)
    wanted = indexes[-OPTIONS.limits.max_outputs :]
    return Batch(
        token_ids=ids, positions=first + indexes, slots=0 * indexes, is_prompt=np.full(len(ids), is_prompt),
        page_tables=TABLES, outputs=wanted, states=np.full((1, 2), -1, np.int32),
    )  # fmt: skip


def logits(binding: Binding, ids: Array) -> Array:
    """Of a prompt, of single tokens and of a few at once."""
    rows = [binding.run(batch(ids[:20], 0, is_prompt=True)).copy()]
    rows += [binding.run(batch(ids[first : first + 1], first, is_prompt=False)).copy() for first in range(20, 26)]
    rows.append(binding.run(batch(ids[26:], 26, is_prompt=False)).copy())
    return np.concatenate(rows)


def settings() -> list[tuple[str, int, int]]:
    """Every fixture with one layer on the card and with all; where there are experts, every setting."""
    found = []
    for name in sorted(set(references.NAMES) - references.CPU_ONLY):
        total = num_layers(name)
        found += [(name, layers, 0) for layers in {1, total}]
        if name in EXPERTS:
            counts = range(1, total + 1)
            found += [(name, layers, kept) for layers in counts for kept in counts if kept > total - layers]
    return found


@pytest.mark.parametrize(("name", "gpu_layers", "cpu_experts"), settings())
def test_an_architecture_answers_the_same_at_a_split(
    name: str, gpu_layers: int, cpu_experts: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    card = install(monkeypatch)
    reference = references_of(name)[0]
    ids = reference.ids.astype(np.int32)
    with closing(bound(name, gpu_layers, cpu_experts)) as binding:
        assert relative_error(logits(binding, ids), reference.logits) < 3e-3
        assert isinstance(binding, HasTimes)
        assert (binding.times.cpu_ms > 0) == (gpu_layers < num_layers(name) or cpu_experts > 0)
    assert card.memory().free_bytes == card.total_bytes


@pytest.mark.parametrize("name", EXPERTS)
def test_prompts_in_pieces_cross_as_often_as_they_must(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three pieces, two of them on their way at a time; another cut of the prompt gives the same bits."""
    install(monkeypatch)
    layers = num_layers(name)
    ids = np.array([(5 * i * i + 2 * i) % 90 for i in range(300)], np.int32)
    with closing(bound(name, layers, layers)) as binding:
        together = binding.run(batch(ids, 0, is_prompt=True)).copy()
        for first, last in ((0, 1), (1, 90), (90, 256), (256, 300)):
            apart = binding.run(batch(ids[first:last], first, is_prompt=True)).copy()
        np.testing.assert_array_equal(together[-44:], apart)
    with closing(bound(name, 0)) as binding:
        expected = binding.run(batch(ids, 0, is_prompt=True))
        assert relative_error(together, expected) < 3e-3


@pytest.mark.parametrize("name", EXPERTS)
def test_a_batch_changes_no_bit_where_experts_stay_behind(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch)
    ids = references_of(name)[0].ids.astype(np.int32)
    with closing(bound(name, num_layers(name), 1)) as binding:
        binding.run(batch(ids[:20], 0, is_prompt=True))
        alone = [binding.run(batch(ids[at : at + 1], at, is_prompt=False)).copy() for at in range(20, 28)]
        np.testing.assert_array_equal(binding.run(batch(ids[20:28], 20, is_prompt=False)), np.concatenate(alone))


@pytest.mark.parametrize("name", EXPERTS)
def test_weights_of_experts_are_on_one_device(name: str) -> None:
    with open_model_file(path_of(name)) as file:
        program = load_description(file).program
        layers = len(program.layers)
        split = pricing.split(program, layers, 1)
        assert split.cpu is not None and split.gpu is not None
        for part, expected in ((split.cpu, [0]), (split.gpu, list(range(1, layers)))):
            assert [op.layer_idx for op in part.operations if isinstance(op, MixExperts)] == expected
        assert split.cpu.layers == {} and list(split.gpu.layers) == list(range(layers))
        assert [link.owner for link in split.links] == ["gpu", "cpu", "gpu"]
        costs = pricing.costs_gpu(split.gpu, file, OPTIONS).tokens.weight_bytes
        assert costs < pricing.price_gpu(split.gpu, file, OPTIONS).weights_bytes
