"""Descriptions of real files: what the default model and Gemma 3 hold."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from model_shapes import small_metadata, small_shapes

from models.description import ModelDescription, load_description
from models.errors import ArchitectureError, TensorError
from models.formats import FORMATS
from models.gguf_file import ModelFile, open_model_file
from models.program import RotateAndStore


@dataclass(frozen=True)
class StubTensor:
    shape: tuple[int, ...]
    size_bytes: int = 0
    format: object = FORMATS["F32"]


@dataclass
class StubFile:
    """A file's metadata and shapes; only frequency tables have values."""

    metadata: dict[str, Any]
    tables: dict[str, np.ndarray] = field(default_factory=dict)
    overlays: tuple[()] = ()

    @property
    def tensors(self) -> dict[str, StubTensor]:
        tables = {name: StubTensor(table.shape, table.nbytes) for name, table in self.tables.items()}
        return {name: StubTensor(shape) for name, shape in small_shapes(self.metadata).items()} | tables

    @property
    def stored(self) -> dict[str, StubTensor]:
        return self.tensors

    @property
    def own_tensors(self) -> dict[str, StubTensor]:
        return self.tensors

    def floats(self, name: str) -> np.ndarray:
        return self.tables[name]


def described(metadata: dict[str, Any], tables: dict[str, np.ndarray] | None = None) -> ModelDescription:
    return load_description(cast(ModelFile, StubFile(metadata, tables or {})))


def test_smollm2(model_path: Callable[[str], Path]) -> None:
    with open_model_file(model_path("smollm2-135m")) as file:
        description = load_description(file)
    assert description.name == "Smollm2 135M 8k Lc100K Mix1 Ep2"
    assert description.architecture.name == "llama"
    assert (description.num_parameters, description.context_length) == (134_515_008, 8192)
    assert [(use.name, use.num_tensors) for use in description.formats] == [("Q4_1", 210), ("Q8_0", 1), ("F32", 61)]
    assert sum(use.num_parameters for use in description.formats) == description.num_parameters
    assert sum(use.size_bytes for use in description.formats) == description.size_bytes
    assert (len(description.program.layers), description.program.vocab_size) == (30, 49152)
    assert description.notes == ()


def test_gemma3_is_a_base_model(model_path: Callable[[str], Path]) -> None:
    with open_model_file(model_path("gemma3-270m")) as file:
        description = load_description(file)
    windows = [layer.window for layer in description.program.kv_layers.values()]
    assert windows == ([512] * 5 + [None]) * 3
    assert description.program.weights()[-1] == "output_norm.weight"
    assert any("base model without a chat template" in note for note in description.notes)


def test_an_unknown_family_is_reported_before_its_missing_numbers() -> None:
    with pytest.raises(ArchitectureError, match="'mamba', which Tandem can't run"):
        described({"general.architecture": "mamba"} | {"llama.block_count": 1})


def test_frequency_tables_are_read_from_the_file() -> None:
    description = described(small_metadata("llama"), {"rope_freqs.weight": np.full(8, 4.0, np.float32)})
    ropes = [operation.rope for operation in description.program.operations if isinstance(operation, RotateAndStore)]
    assert ropes[0] is not None and ropes[0].frequencies[0] == 0.25


def test_a_frequency_table_of_two_dimensions_is_refused() -> None:
    with pytest.raises(TensorError, match=r"rope_freqs\.weight has 2 dimensions"):
        described(small_metadata("llama"), {"rope_freqs.weight": np.ones((4, 2), np.float32)})


def test_a_stretched_context_is_noted() -> None:
    metadata = small_metadata(
        "llama",
        rope__scaling__type="yarn",
        rope__scaling__factor=4.0,
        rope__scaling__original_context_length=1024,
    )
    metadata["tokenizer.chat_template"] = "{{ messages }}"
    assert described(metadata).notes == ("Its context is stretched from 1024 positions (yarn RoPE scaling, factor 4).",)
