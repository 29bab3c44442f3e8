"""Programs of the families: snapshots, the choices that metadata makes, and tensors that don't fit."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from model_shapes import VOCAB_SIZE, small_metadata, small_shapes

from models.architectures import ARCHITECTURES, find_architecture
from models.buffers import Buffer
from models.errors import ArchitectureError, ModelError, TensorError
from models.hyperparameters import architecture_name, read_hyperparameters
from models.lowering import lower
from models.program import (
    Attend,
    Embed,
    GatedProject,
    MixExperts,
    Normalize,
    Program,
    Project,
    Rope,
    RotateAndStore,
    SelectOutputs,
    SoftCap,
)
from models.program_text import describe
from models.recurrence import Convolve, DeltaRule, Separate, StateLayer
from models.rope import RopeFactors

SNAPSHOTS = Path(__file__).resolve().parents[1] / "data" / "programs"
FAMILIES = tuple(ARCHITECTURES)

Shapes = dict[str, tuple[int, ...]]


def lowered(metadata: dict[str, Any], shapes: Shapes | None = None, **options: Any) -> Program:
    architecture = find_architecture(architecture_name(metadata))
    numbers = read_hyperparameters(metadata, architecture.mathematics)
    return lower(architecture, numbers, small_shapes(metadata) if shapes is None else shapes, **options)


def rope_of(program: Program, layer_idx: int) -> Rope:
    rope = next(
        operation.rope
        for operation in program.operations
        if isinstance(operation, RotateAndStore) and operation.layer_idx == layer_idx
    )
    assert rope is not None
    return rope


@pytest.mark.parametrize("family", FAMILIES)
def test_the_program_is_the_one_on_record(family: str) -> None:
    """After a change that is meant, write what `describe()` gives to the file and read the difference."""
    recorded = (SNAPSHOTS / f"{family}.txt").read_text(encoding="utf-8")
    assert describe(lowered(small_metadata(family))) + "\n" == recorded


@pytest.mark.parametrize("family", FAMILIES)
def test_every_tensor_is_used_and_every_buffer_is_written_before_it_is_read(family: str) -> None:
    metadata = small_metadata(family)
    program = lowered(metadata)
    assert set(program.weights()) == set(small_shapes(metadata))
    assert program.hidden == program.buffers()["x"]
    assert program.logits.width == program.vocab_size == VOCAB_SIZE
    assert len(program.layers) == 7
    written: set[str] = set()
    for operation in program.operations:
        keys = ("x", "q", "k", "v", "before", "after", "decay", "learn", "up")
        read = {value.name for key in keys if isinstance(value := getattr(operation, key, None), Buffer)}
        out = getattr(operation, "out", None)
        outs = [part.out for part in operation.parts] if isinstance(operation, Project) else [out] if out else []
        outs = [operation.first, operation.second] if isinstance(operation, Separate) else outs
        if getattr(operation, "add", False) or isinstance(operation, MixExperts):
            read |= {out.name for out in outs}
        assert read <= written, operation
        written |= {out.name for out in outs}


@pytest.mark.parametrize("family", FAMILIES)
def test_layers_stand_in_order_between_embedding_and_head(family: str) -> None:
    operations = lowered(small_metadata(family)).operations
    assert isinstance(operations[0], Embed)
    end = next(idx for idx, operation in enumerate(operations) if isinstance(operation, SelectOutputs))
    assert all(operation.layer_idx is None for operation in operations[end:])
    layers = [operation.layer_idx for operation in operations[1:end]]
    assert all(layer is not None for layer in layers)
    assert layers == sorted(layers, key=lambda layer: -1 if layer is None else layer)


def test_feed_forward_and_head_are_rounded_coarsely_where_the_model_does_not_suffer() -> None:
    def coarse(family: str, width: int) -> set[str]:
        names: set[str] = set()
        for operation in lowered(small_metadata(family, embedding_length=width)).operations:
            if isinstance(operation, GatedProject) and operation.is_coarse:
                names |= {operation.gate.split(".")[-2], operation.up.split(".")[-2]}
            elif isinstance(operation, Project) and operation.is_coarse:
                names |= {part.weight.split(".")[-2] for part in operation.parts}
        return names

    assert coarse("gemma3", 1024) == set()
    assert coarse("llama", 1024) == {"ffn_gate", "ffn_up", "ffn_down", "token_embd"}
    assert coarse("qwen2", 1024) == {"ffn_gate", "ffn_up", "ffn_down", "output"}
    assert coarse("llama", 992) == {"ffn_gate", "ffn_up"}


def test_a_file_without_a_head_uses_the_embedding() -> None:
    metadata = small_metadata("llama")
    tied = lowered(metadata).operations[-1]
    shapes = small_shapes(metadata) | {"output.weight": (VOCAB_SIZE, 48), "output.bias": (VOCAB_SIZE,)}
    own = lowered(metadata, shapes).operations[-1]
    assert isinstance(tied, Project) and isinstance(own, Project)
    assert (tied.parts[0].weight, tied.parts[0].bias) == ("token_embd.weight", None)
    assert (own.parts[0].weight, own.parts[0].bias) == ("output.weight", "output.bias")


def test_biases_are_used_where_a_file_has_them() -> None:
    metadata = small_metadata("llama")
    shapes = small_shapes(metadata) | {"blk.3.attn_q.bias": (64,), "blk.3.ffn_down.bias": (48,)}
    weights = lowered(metadata, shapes).weights()
    assert "blk.3.attn_q.bias" in weights and "blk.3.ffn_down.bias" in weights


def test_five_of_six_gemma_layers_have_a_window_and_the_local_base() -> None:
    program = lowered(small_metadata("gemma3"))
    assert [layer.window for layer in program.kv_layers.values()] == [512, 512, 512, 512, 512, None, 512]
    assert rope_of(program, 0).frequencies[1] == pytest.approx(10_000.0 ** (-2 / 16))
    assert rope_of(program, 5).frequencies[1] == pytest.approx(1_000_000.0 ** (-2 / 16))
    assert rope_of(program, 0) is rope_of(program, 6)


def test_rope_scaling_leaves_local_layers_alone() -> None:
    program = lowered(small_metadata("gemma3", rope__scaling__type="linear", rope__scaling__factor=8.0))
    assert rope_of(program, 0).frequencies[0] == 1.0
    assert rope_of(program, 5).frequencies[0] == 1.0 / 8.0


def test_a_file_may_bring_its_own_window_pattern_and_local_base() -> None:
    period = lowered(small_metadata("gemma3", attention__sliding_window_pattern=2, rope__freq_base_swa=500.0))
    assert [layer.window is None for layer in period.kv_layers.values()] == [
        False,
        True,
        False,
        True,
        False,
        True,
        False,
    ]
    assert rope_of(period, 0).frequencies[1] == pytest.approx(500.0 ** (-2 / 16))
    flags = [True, True, False, False, False, False, True]
    listed = lowered(small_metadata("gemma3", attention__sliding_window_pattern=flags))
    assert [layer.window is not None for layer in listed.kv_layers.values()] == flags


def test_without_a_window_all_layers_are_global() -> None:
    program = lowered(small_metadata("gemma3", attention__sliding_window=0))
    assert all(layer.window is None for layer in program.kv_layers.values())
    assert rope_of(program, 0).frequencies[1] == pytest.approx(1_000_000.0 ** (-2 / 16))


def test_gemma_embeds_at_the_root_of_the_width() -> None:
    embed = lowered(small_metadata("gemma3")).operations[0]
    assert isinstance(embed, Embed) and embed.scale == math.sqrt(48)


@pytest.mark.parametrize(
    ("num_layers", "own_scale", "scale"), [(7, None, 16**-0.5), (62, None, 168**-0.5), (7, 0.3, 0.3), (62, 0.3, 0.3)]
)
def test_attention_scale(num_layers: int, own_scale: float | None, scale: float) -> None:
    program = lowered(small_metadata("gemma3", block_count=num_layers, attention__scale=own_scale))
    scales = [operation.scale for operation in program.operations if isinstance(operation, Attend)]
    assert scales == pytest.approx([scale] * num_layers)


def test_frequency_tables_come_from_the_file_for_the_context_in_use() -> None:
    metadata = small_metadata("llama", rope__scaling__original_context_length=1024)
    factors = RopeFactors(short=(1.0,) * 8, long=(2.0,) * 8)
    shapes = small_shapes(metadata) | {"rope_factors_short.weight": (8,), "rope_factors_long.weight": (8,)}
    assert rope_of(lowered(metadata, shapes, factors=factors), 0).frequencies[0] == 0.5
    assert rope_of(lowered(metadata, shapes, factors=factors, context_size=1024), 0).frequencies[0] == 1.0


@pytest.mark.parametrize("family", FAMILIES)
def test_each_tensor_is_missed_by_name_when_it_is_not_there(family: str) -> None:
    metadata = small_metadata(family)
    for name in small_shapes(metadata):
        if name == "output.weight" or name.endswith(".layer_output_scale.weight"):
            continue
        shapes = small_shapes(metadata)
        del shapes[name]
        with pytest.raises(TensorError) as caught:
            lowered(metadata, shapes)
        assert name in str(caught.value)


@pytest.mark.parametrize("family", FAMILIES)
def test_each_tensor_of_another_shape_is_named_with_both_shapes(family: str) -> None:
    metadata = small_metadata(family)
    for name, shape in small_shapes(metadata).items():
        wrong = (*shape[:-1], shape[-1] + 1)
        with pytest.raises(TensorError) as caught:
            lowered(metadata, small_shapes(metadata) | {name: wrong})
        message = str(caught.value)
        assert name in message and " x ".join(map(str, wrong)) in message and " x ".join(map(str, shape)) in message


def test_more_layers_promised_than_there_are() -> None:
    metadata = small_metadata("llama")
    shapes = small_shapes(metadata)
    metadata["llama.block_count"] = 4000
    with pytest.raises(TensorError, match=r"no tensor blk\.7\.attn_norm\.weight.*block_count says 4000"):
        lowered(metadata, shapes)


def test_a_tensor_that_nothing_reads_is_mathematics_that_is_lacking() -> None:
    metadata = small_metadata("llama")
    for name in ("blk.2.attn_q_norm.weight", "blk.7.attn_norm.weight", "blk.0.ffn_gate.bias\x1b[2J"):
        with pytest.raises(ArchitectureError) as caught:
            lowered(metadata, small_shapes(metadata) | {name: (16,)})
        assert name.split("\x1b")[0] in str(caught.value) and "\x1b" not in str(caught.value)


def test_repeated_frequency_tables_of_old_files_are_harmless() -> None:
    metadata = small_metadata("llama")
    shapes = small_shapes(metadata) | {"rope_freqs.weight": (8,), "blk.0.attn_rot_embd.weight": (8,)}
    assert lowered(metadata, shapes) == lowered(metadata)


def test_an_empty_shape_is_not_a_crash() -> None:
    metadata = small_metadata("llama")
    with pytest.raises(TensorError, match=r"token_embd\.weight has no dimensions"):
        lowered(metadata, small_shapes(metadata) | {"token_embd.weight": ()})


def test_norms_after_a_branch_are_added_to_the_hidden_state() -> None:
    added = [
        (str(operation.weight).split(".")[2], operation.x.name, operation.out.name)
        for operation in lowered(small_metadata("gemma3")).operations
        if isinstance(operation, Normalize) and operation.add and operation.layer_idx == 0
    ]
    assert added == [("post_attention_norm", "b", "x"), ("post_ffw_norm", "b", "x")]


def test_families_differ_in_where_norms_stand() -> None:
    def norms(family: str) -> list[str]:
        operations = lowered(small_metadata(family)).operations
        found = [str(op.weight).split(".")[2] for op in operations if isinstance(op, Normalize) and op.layer_idx == 0]
        return sorted(found)

    assert norms("gemma2") == ["attn_norm", "ffn_norm", "post_attention_norm", "post_ffw_norm"]
    assert norms("olmo2") == ["attn_k_norm", "attn_q_norm", "post_attention_norm", "post_ffw_norm"]


def test_a_product_without_a_norm_before_it_reads_the_hidden_state() -> None:
    program = lowered(small_metadata("olmo2"))
    read = {op.x for op in program.operations if isinstance(op, GatedProject)}
    assert read == {program.hidden}


def test_some_layers_of_smollm3_do_not_rotate() -> None:
    operations = lowered(small_metadata("smollm3")).operations
    rotates = [operation.rope is not None for operation in operations if isinstance(operation, RotateAndStore)]
    assert rotates == [True, True, True, False, True, True, True]


def test_multipliers_of_granite() -> None:
    metadata = small_metadata("granite", embedding_scale=12.0, residual_scale=0.22, logit_scale=8.0)
    program = lowered(metadata)
    scales = [operation.scale for operation in program.operations if isinstance(operation, Project)]
    assert isinstance(program.operations[0], Embed) and program.operations[0].scale == 12.0
    assert scales == [None, 0.22, 0.22] * 7 + [0.125]


def test_caps_come_from_the_file_or_else_from_the_family() -> None:
    def caps(metadata: dict[str, Any]) -> tuple[float | None, float]:
        operations = lowered(metadata).operations
        attend = next(operation for operation in operations if isinstance(operation, Attend))
        last = operations[-1]
        assert isinstance(last, SoftCap)
        return attend.soft_cap, last.cap

    assert caps(small_metadata("gemma2")) == (50.0, 30.0)
    assert caps(small_metadata("gemma2", attn_logit_softcapping=5.0, final_logit_softcapping=3.0)) == (5.0, 3.0)


def test_experts_take_the_place_of_the_feed_forward_product() -> None:
    metadata = small_metadata("qwen3moe")
    shapes = small_shapes(metadata) | {"blk.1.ffn_gate_inp.bias": (6,), "blk.1.ffn_up_exps.bias": (6, 32)}
    program = lowered(metadata, shapes)
    assert set(program.weights()) == set(shapes)
    experts = [operation for operation in program.operations if isinstance(operation, MixExperts)]
    assert [(op.num_experts, op.num_used, op.width, op.layer_idx) for op in experts[:2]] == [
        (6, 2, 32, 0),
        (6, 2, 32, 1),
    ]
    assert (experts[0].router.bias, experts[1].router.bias) == (None, "blk.1.ffn_gate_inp.bias")
    assert (experts[0].up_bias, experts[1].up_bias) == (None, "blk.1.ffn_up_exps.bias")
    assert not any(isinstance(operation, GatedProject) for operation in program.operations)
    for name, shape in shapes.items():
        if "exps" in name or "inp" in name:
            with pytest.raises(TensorError, match=name):
                lowered(metadata, shapes | {name: (*shape[:-1], shape[-1] + 1)})


ANY_VALUE = st.one_of(
    st.integers(-(2**63), 2**64 - 1),
    st.sampled_from([0, 1, 2, 3, 6, 16, 48, 2**31, 2**32 - 1]),
    st.floats(),
    st.booleans(),
    st.text(max_size=8),
    st.sampled_from(["none", "linear", "yarn", "longrope", "llama3"]),
    st.lists(st.one_of(st.integers(0, 9), st.booleans(), st.floats()), max_size=8),
)
KEYS = (
    *(key.split(".", 1)[1] for key in small_metadata("gemma3") if key.startswith("gemma3.")),
    "attention.scale",
    "attention.sliding_window_pattern",
    "expert_count",
    "rope.dimension_count",
    "rope.freq_base_swa",
    "rope.scaling.attn_factor",
    "rope.scaling.factor",
    "rope.scaling.high_freq_factor",
    "rope.scaling.low_freq_factor",
    "rope.scaling.original_context_length",
    "rope.scaling.type",
    "rope.scaling.yarn_beta_fast",
    "rope.scaling.yarn_beta_slow",
    "rope.scaling.yarn_ext_factor",
)


@given(st.sampled_from(FAMILIES), st.dictionaries(st.sampled_from(KEYS), ANY_VALUE, min_size=1, max_size=3))
def test_damaged_metadata_give_a_program_or_a_clear_error(family: str, damage: dict[str, Any]) -> None:
    metadata = small_metadata(family)
    shapes = small_shapes(metadata)
    metadata |= {f"{family}.{key}": value for key, value in damage.items()}
    try:
        program = lowered(metadata, shapes)
    except ModelError as error:
        assert str(error).endswith(".")
        return
    ropes = [operation.rope for operation in program.operations if isinstance(operation, RotateAndStore)]
    assert all(math.isfinite(frequency) for rope in ropes if rope is not None for frequency in rope.frequencies)
    assert all(math.isfinite(rope.magnitude) for rope in ropes if rope is not None)


def test_layers_without_kv_heads_or_between_those_with_attention_are_recurrent() -> None:
    lfm, qwen = lowered(small_metadata("lfm2")), lowered(small_metadata("qwen35"))
    assert list(lfm.kv_layers) == [2, 5] and set(lfm.state_layers) == {0, 1, 3, 4, 6}
    assert list(qwen.kv_layers) == [2, 5]
    assert set(lfm.state_layers.values()) == {StateLayer(num_inputs=2, channels=48)}
    assert set(qwen.state_layers.values()) == {
        StateLayer(num_inputs=3, channels=192, num_heads=4, key_dim=16, value_dim=32)
    }
    convolved = [operation.layer_idx for operation in lfm.operations if isinstance(operation, Convolve)]
    learnt = [operation.layer_idx for operation in qwen.operations if isinstance(operation, DeltaRule)]
    assert convolved == list(lfm.state_layers) and learnt == list(qwen.state_layers)


def test_a_list_of_recurrent_layers_wins_over_the_period() -> None:
    flags = [True, False, True, True, False, False, True]
    metadata = small_metadata("qwen35", attention__recurrent_layers=flags)
    numbers = read_hyperparameters(metadata)
    assert numbers.recurrent_layers == tuple(flags)


def test_layers_that_guess_further_tokens_are_left_out() -> None:
    metadata = small_metadata("qwen35", block_count=8, nextn_predict_layers=1)
    shapes = small_shapes(small_metadata("qwen35")) | {"blk.7.nextn.eh_proj.weight": (48, 96)}
    assert len(lowered(metadata, shapes).layers) == 7
    with pytest.raises(ArchitectureError, match="blk.8.nextn"):
        lowered(metadata, shapes | {"blk.8.nextn.eh_proj.weight": (48, 96)})


@pytest.mark.parametrize(
    ("family", "overrides", "words"),
    [
        ("lfm2", {"shortconv__l_cache": None}, "lacks lfm2.shortconv.l_cache"),
        ("qwen35", {"ssm__inner_size": None}, "lacks qwen35.ssm.inner_size"),
        ("qwen35", {"ssm__time_step_rank": 3}, "ssm.time_step_rank is 3"),
        ("llama", {"attention__head_count_kv": [0, 2, 2, 2, 2, 2, 2]}, "layers without attention"),
        ("lfm2", {"attention__head_count_kv": [0, 2, 0]}, "has 3 items"),
    ],
)
def test_what_recurrent_layers_need_is_asked_for(family: str, overrides: dict[str, Any], words: str) -> None:
    shapes = small_shapes(small_metadata(family))
    with pytest.raises(ArchitectureError, match=words):
        lowered(small_metadata(family, **overrides), shapes)
