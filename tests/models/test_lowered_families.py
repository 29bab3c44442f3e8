"""What single families' programs do that others' don't: which layers rotate, which norms there are, what is scaled."""

from __future__ import annotations

from typing import Any

import pytest
from model_shapes import small_metadata, small_shapes

from models.architectures import find_architecture
from models.errors import ArchitectureError, TensorError
from models.hyperparameters import architecture_name, read_hyperparameters
from models.lowering import lower
from models.program import Gate, GatedProject, Normalize, Program, Project, RotateAndStore

Shapes = dict[str, tuple[int, ...]]


def lowered(metadata: dict[str, Any], shapes: Shapes | None = None) -> Program:
    architecture = find_architecture(architecture_name(metadata))
    numbers = read_hyperparameters(metadata, architecture.mathematics)
    return lower(architecture, numbers, small_shapes(metadata) if shapes is None else shapes)


def first_frequency(program: Program, layer_idx: int) -> float:
    """The frequency of the first pair of a layer's rotation."""
    return next(
        operation.rope.frequencies[0]
        for operation in program.operations
        if isinstance(operation, RotateAndStore) and operation.layer_idx == layer_idx and operation.rope is not None
    )


def test_only_layers_with_a_window_rotate_in_exaone_and_all_where_there_is_none() -> None:
    def rotates(**overrides: Any) -> list[bool]:
        operations = lowered(small_metadata("exaone4", **overrides)).operations
        return [operation.rope is not None for operation in operations if isinstance(operation, RotateAndStore)]

    assert rotates() == [True, True, True, False, True, True, True]
    assert rotates(attention__sliding_window_pattern=[False] * 6 + [True]) == [False] * 6 + [True]
    assert rotates(attention__sliding_window=None) == [True] * 7


def test_layers_of_olmo_with_a_window_turn_by_unscaled_frequencies() -> None:
    scaled = {"rope__scaling__type": "linear", "rope__scaling__factor": 8.0, "attention__sliding_window": 512}
    program = lowered(small_metadata("olmo2", **scaled))
    assert [first_frequency(program, layer_idx) for layer_idx in (0, 3)] == [1.0, 0.125]
    assert [layer.window for layer in program.kv_layers.values()] == [512, 512, 512, None, 512, 512, 512]
    assert first_frequency(lowered(small_metadata("olmo2", rope__scaling__factor=8.0)), 0) == 0.125


def test_where_there_is_no_norm_before_them_gate_and_up_read_what_attention_read() -> None:
    program = lowered(small_metadata("cohere2"))
    norms = [operation for operation in program.operations if isinstance(operation, Normalize)]
    assert [norm.layer_idx for norm in norms] == [0, 1, 2, 3, 4, 5, 6, None] and all(norm.is_centred for norm in norms)
    read = {operation.x for operation in program.operations if isinstance(operation, GatedProject)}
    assert read == {norms[0].out}
    rotates = [operation.rope is not None for operation in program.operations if isinstance(operation, RotateAndStore)]
    assert rotates == [True, True, True, False, True, True, True]


@pytest.mark.parametrize(("family", "global_layer"), [("cohere2", 3), ("starcoder2", None)])
def test_a_window_that_a_file_keeps_silent_about_is_the_familys(family: str, global_layer: int | None) -> None:
    silent = lowered(small_metadata(family, attention__sliding_window=None))
    none = lowered(small_metadata(family, attention__sliding_window=0))
    expected = [None if layer_idx == global_layer else 4096 for layer_idx in range(7)]
    assert [layer.window for layer in silent.kv_layers.values()] == expected
    assert [layer.window for layer in none.kv_layers.values()] == [None] * 7


@pytest.mark.parametrize(("family", "scale"), [("cohere2", 0.25), ("granite", 4.0)])
def test_logits_are_multiplied_or_divided_by_the_files_scale(family: str, scale: float) -> None:
    heads = [lowered(small_metadata(family, **{"logit_scale": value})).operations[-1] for value in (0.25, None)]
    assert all(isinstance(head, Project) for head in heads)
    assert [getattr(head, "scale", None) for head in heads] == [scale, {"cohere2": 0.0625}.get(family)]


def test_a_feed_forward_without_a_gate_is_a_product_and_an_activation() -> None:
    program = lowered(small_metadata("nemotron"))
    assert not any(isinstance(operation, GatedProject) for operation in program.operations)
    gates = [operation for operation in program.operations if isinstance(operation, Gate)]
    assert [(gate.up, gate.activation, gate.layer_idx) for gate in gates] == [
        (None, "relu_squared", layer_idx) for layer_idx in range(7)
    ]
    downs = [op for op in program.operations if isinstance(op, Project) and "ffn_down" in op.parts[0].weight]
    assert {operation.x for operation in downs} == {gate.gate for gate in gates}


def test_a_family_whose_files_may_have_a_norm_before_the_feed_forward_uses_it() -> None:
    metadata = small_metadata("stablelm")
    shapes = {name: shape for name, shape in small_shapes(metadata).items() if "ffn_norm" not in name}

    def norms(shapes: Shapes | None) -> list[str]:
        operations = lowered(metadata, shapes).operations
        found = [str(op.weight).split(".")[2] for op in operations if isinstance(op, Normalize) and op.layer_idx == 3]
        return sorted(found)

    assert norms(None) == ["attn_k_norm", "attn_norm", "attn_q_norm", "ffn_norm"]
    assert norms(shapes) == ["attn_k_norm", "attn_norm", "attn_q_norm"]


def test_one_group_of_experts_is_none_and_shared_ones_count_together() -> None:
    metadata = small_metadata("glm4moe", expert_group_count=1)
    widths = {op.out.width for op in lowered(metadata).operations if isinstance(op, GatedProject) and "_sh" in op.gate}
    assert widths == {2 * 32}
    with pytest.raises(ArchitectureError, match=r"expert_group_count is 4: .*chosen by groups"):
        lowered(small_metadata("glm4moe", expert_group_count=4))


def test_norms_of_each_head_are_used_where_a_file_has_them() -> None:
    metadata = small_metadata("command-r")
    shapes = {name: shape for name, shape in small_shapes(metadata).items() if "attn_q_norm" not in name}
    without = {name: shape for name, shape in shapes.items() if "attn_k_norm" not in name}
    norms = [operation for operation in lowered(metadata).operations if isinstance(operation, Normalize)]
    assert [norm.heads for norm in norms if norm.layer_idx == 0] == [None, 4, 2]
    assert not any(isinstance(one, Normalize) and one.heads for one in lowered(metadata, without).operations)
    with pytest.raises(TensorError, match=r"attn_q_norm"):
        lowered(metadata, shapes)
