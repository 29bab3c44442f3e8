"""Layers of one model that differ: in the size of their heads, and in whose keys and values they read."""

from __future__ import annotations

import pytest
from model_shapes import small_metadata, small_shapes

from models.architectures import find_architecture
from models.errors import ArchitectureError
from models.hyperparameters import read_hyperparameters
from models.lowering import lower
from models.program import Attend, Program


def lowered(**overrides: object) -> Program:
    metadata = small_metadata("gemma4", **overrides)
    architecture = find_architecture("gemma4")
    return lower(architecture, read_hyperparameters(metadata, architecture.mathematics), small_shapes(metadata))


def test_layers_that_share_keys_and_values_read_those_of_the_last_layer_that_sees_as_far() -> None:
    program = lowered()
    sources = [operation.source_idx for operation in program.operations if isinstance(operation, Attend)]
    assert sources == [None, None, None, None, None, 3, 4]
    assert [layer is None for layer in program.layers] == [False] * 5 + [True] * 2
    assert [layer.head_dim for layer in program.kv_layers.values()] == [8, 16, 8, 16, 8]


def test_sharing_with_a_layer_that_is_not_there_is_refused() -> None:
    with pytest.raises(ArchitectureError, match="shared_kv_layers is 6, but no layer before those sees as far"):
        lowered(attention__shared_kv_layers=6)
