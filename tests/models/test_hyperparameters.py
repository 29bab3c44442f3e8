"""A model's numbers from metadata: defaults, lists for layers, and one clear sentence for what is wrong."""

from __future__ import annotations

import numpy as np
import pytest
from model_shapes import small_metadata

from models.errors import ArchitectureError
from models.hyperparameters import read_hyperparameters


def test_the_numbers_of_a_plain_file() -> None:
    numbers = read_hyperparameters(small_metadata("llama", rope__dimension_count=8))
    assert (numbers.num_layers, numbers.width, numbers.feed_forward_width) == (7, 48, 80)
    assert (numbers.num_heads, numbers.num_kv_heads, numbers.head_dim, numbers.rope_dimensions) == (4, 2, 16, 8)
    assert (numbers.context_length, numbers.norm_epsilon, numbers.rope_base) == (4096, 1e-6, 1e6)
    assert (numbers.rope_scaling.kind, numbers.rope_scaling.factor) == ("none", 1.0)
    assert (numbers.window, numbers.window_pattern, numbers.attention_scale) == (None, None, None)


def test_what_a_file_leaves_out_follows_from_the_rest() -> None:
    metadata = small_metadata(
        "llama", attention__key_length=None, attention__value_length=None, attention__head_count_kv=None
    )
    numbers = read_hyperparameters(metadata)
    assert (numbers.head_dim, numbers.rope_dimensions, numbers.num_kv_heads) == (12, 12, 4)


@pytest.mark.parametrize(
    "key",
    [
        "block_count",
        "context_length",
        "embedding_length",
        "feed_forward_length",
        "attention.head_count",
        "attention.layer_norm_rms_epsilon",
    ],
)
def test_a_missing_key_is_named(key: str) -> None:
    metadata = small_metadata("qwen2")
    del metadata[f"qwen2.{key}"]
    with pytest.raises(ArchitectureError, match=rf"lacks qwen2\.{key}\b"):
        read_hyperparameters(metadata)


@pytest.mark.parametrize("value", [None, 7, "", ["llama"]])
def test_a_file_without_an_architecture_is_refused(value: object) -> None:
    metadata = small_metadata("llama") | {"general.architecture": value}
    with pytest.raises(ArchitectureError, match=r"general\.architecture"):
        read_hyperparameters(metadata)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("block_count", 0),
        ("block_count", 2**32 - 1),
        ("block_count", True),
        ("embedding_length", 48.0),
        ("embedding_length", "48\x1b[2J"),
        ("attention__head_count", -4),
        ("attention__layer_norm_rms_epsilon", float("nan")),
        ("attention__layer_norm_rms_epsilon", 2.0),
        ("rope__freq_base", 1.0),
        ("rope__freq_base", float("inf")),
        ("rope__scaling__factor", -2.0),
        ("rope__scaling__type", "magic"),
        ("rope__scaling__type", ["yarn"]),
        ("rope__dimension_count", 7),
        ("rope__dimension_count", 32),
        ("attention__value_length", 32),
        ("attention__sliding_window_pattern", [True, False]),
        ("attention__sliding_window_pattern", 0),
    ],
)
def test_a_wrong_value_is_named_with_its_key(name: str, value: object) -> None:
    with pytest.raises(ArchitectureError) as caught:
        read_hyperparameters(small_metadata("llama", **{name: value}))
    message = str(caught.value)
    assert f"llama.{name.replace('__', '.')}" in message
    assert "\x1b" not in message


def test_kv_heads_divide_the_heads() -> None:
    with pytest.raises(ArchitectureError, match="head_count is 4, which its 3 KV heads"):
        read_hyperparameters(small_metadata("llama", attention__head_count_kv=3))


def test_heads_divide_the_width_unless_the_file_gives_their_length() -> None:
    metadata = small_metadata("llama", attention__head_count=5, attention__head_count_kv=5)
    assert read_hyperparameters(metadata).head_dim == 16
    del metadata["llama.attention.key_length"], metadata["llama.attention.value_length"]
    with pytest.raises(ArchitectureError, match="head_count is 5, which doesn't divide the embedding length 48"):
        read_hyperparameters(metadata)


@pytest.mark.parametrize("values", [[2] * 7, np.full(7, 2, np.uint32)])
def test_a_list_for_layers_that_agree_is_one_number(values: object) -> None:
    assert read_hyperparameters(small_metadata("llama", attention__head_count_kv=values)).num_kv_heads == 2


@pytest.mark.parametrize("values", [[2, 2, 2, 4, 2, 2, 2], []])
def test_layers_that_differ_are_refused(values: object) -> None:
    with pytest.raises(ArchitectureError, match=r"llama\.attention\.key_length differs from layer to layer"):
        read_hyperparameters(small_metadata("llama", attention__key_length=values))


def test_layers_may_differ_in_kv_heads_and_in_the_gated_product() -> None:
    kv_heads, widths = [2, 1, 2, 4, 2, 2, 2], [80, 80, 160, 80, 80, 80, 80]
    found = read_hyperparameters(small_metadata("llama", attention__head_count_kv=kv_heads, feed_forward_length=widths))
    assert [found.kv_heads(idx) for idx in range(7)] == kv_heads
    assert [found.gated_width(idx) for idx in range(7)] == widths


@pytest.mark.parametrize("values", [[2, 1], [2, 3, 2, 2, 2, 2, 2], [2, "a", 2, 2, 2, 2, 2], []])
def test_lists_that_make_no_sense_are_refused_by_name(values: object) -> None:
    with pytest.raises(ArchitectureError, match=r"llama\.attention\.head_count"):
        read_hyperparameters(small_metadata("llama", attention__head_count_kv=values))


@pytest.mark.parametrize(
    "name",
    ["expert_count", "attn_logit_softcapping", "final_logit_softcapping", "logit_scale", "attention__clamp_kqv"],
)
def test_mathematics_that_no_operation_has_are_refused_not_ignored(name: str) -> None:
    with pytest.raises(ArchitectureError, match=rf"llama\.{name.replace('__', '.')} is 8.*can't run"):
        read_hyperparameters(small_metadata("llama", **{name: 8}))
    assert read_hyperparameters(small_metadata("llama", **{name: 0})).num_layers == 7


def test_experts_that_are_used_are_some_of_those_there_are() -> None:
    known = frozenset({"expert_count"})
    numbers = read_hyperparameters(small_metadata("llama", expert_count=8, expert_used_count=2), known)
    assert (numbers.num_experts, numbers.num_used_experts, numbers.expert_width) == (8, 2, 80)
    for used, message in ((None, "lacks llama.expert_used_count"), (9, "expert_used_count is 9; .* from 1 to 8")):
        with pytest.raises(ArchitectureError, match=message):
            read_hyperparameters(small_metadata("llama", expert_count=8, expert_used_count=used), known)


def test_a_model_that_looks_ahead_is_refused() -> None:
    with pytest.raises(ArchitectureError, match=r"attention\.causal"):
        read_hyperparameters(small_metadata("llama", attention__causal=False))


def test_rope_scaling_keys() -> None:
    metadata = small_metadata(
        "qwen2",
        rope__scaling__type="yarn",
        rope__scaling__factor=4.0,
        rope__scaling__original_context_length=32768,
        rope__scaling__attn_factor=0.5,
        rope__scaling__yarn_beta_fast=64.0,
    )
    scaling = read_hyperparameters(metadata).rope_scaling
    assert (scaling.kind, scaling.factor, scaling.original_context_length) == ("yarn", 4.0, 32768)
    assert (scaling.attention_factor, scaling.beta_fast, scaling.beta_slow) == (0.5, 64.0, 1.0)


def test_scaling_without_a_type_is_linear_under_either_key() -> None:
    for name in ("rope__scaling__factor", "rope__scale_linear"):
        scaling = read_hyperparameters(small_metadata("llama", **{name: 8.0})).rope_scaling
        assert (scaling.kind, scaling.factor, scaling.original_context_length) == ("linear", 8.0, 4096)


def test_scaling_of_type_none_ignores_the_factor() -> None:
    metadata = small_metadata("llama", rope__scaling__type="none", rope__scaling__factor=8.0)
    assert read_hyperparameters(metadata).rope_scaling.factor == 1.0
