"""Programs cut at a layer."""

from __future__ import annotations

import pytest
from model_shapes import small_metadata, small_shapes

from models.architectures import ARCHITECTURES
from models.hyperparameters import read_hyperparameters
from models.lowering import lower
from models.program import Program, SelectOutputs
from models.segments import cut, whole


@pytest.fixture
def program() -> Program:
    metadata = small_metadata("gemma3")
    return lower(ARCHITECTURES["gemma3"], read_hyperparameters(metadata), small_shapes(metadata))


def test_the_whole_takes_tokens_and_gives_logits(program: Program) -> None:
    segment = whole(program)
    assert segment.takes_tokens(0) and segment.gives_logits(0) and segment.has_head
    assert not segment.takes_hidden and not segment.gives_hidden
    assert list(segment.layers.values()) == list(program.layers)


@pytest.mark.parametrize("layer_idx", range(8))
def test_two_parts_make_the_whole(layer_idx: int, program: Program) -> None:
    lower_part, upper_part = cut(program, layer_idx)
    assert lower_part.operations + upper_part.operations == program.operations
    assert (lower_part.takes_hidden, lower_part.gives_hidden, lower_part.has_head) == (False, True, False)
    assert (upper_part.takes_hidden, upper_part.gives_hidden, upper_part.has_head) == (True, False, True)
    assert list(lower_part.layers) == list(range(layer_idx))
    assert list(upper_part.layers) == list(range(layer_idx, 7))
    assert all(operation.layer_idx is None or operation.layer_idx < layer_idx for operation in lower_part.operations)


def test_past_the_last_layer_only_the_head_is_left(program: Program) -> None:
    _, head = cut(program, 7)
    assert isinstance(head.operations[0], SelectOutputs)


def test_a_cut_outside_is_a_bug(program: Program) -> None:
    with pytest.raises(AssertionError, match="outside the model"):
        cut(program, 8)
