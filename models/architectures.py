"""The model families as values: what an architecture does that its file doesn't say.

Owns the declarations and the lookup by name (architecture.py has their fields).  Does not know files, shapes or
operations: lowering.py reads a declaration, and nothing anywhere asks for a family's name.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from models.architecture import Architecture, ScaleOfSize
from models.errors import ArchitectureError, quoted
from models.hyperparameters import LAYER_NORM_EPSILON

LLAMA = Architecture(
    name="llama",
    rope_pairing="neighbours",
    activation="silu",
    mathematics=frozenset({"expert_count"}),
)

QWEN2 = Architecture(
    name="qwen2",
    rope_pairing="halves",
    activation="silu",
    required_biases="qkv",
)

EXAONE = Architecture(name="exaone", rope_pairing="halves", activation="silu")

QWEN3 = Architecture(
    name="qwen3",
    rope_pairing="halves",
    activation="silu",
    qk_norm="heads",
)

QWEN3MOE = Architecture(
    name="qwen3moe",
    rope_pairing="halves",
    activation="silu",
    qk_norm="heads",
    mathematics=frozenset({"expert_count"}),
)

GPT_OSS = Architecture(
    name="gpt-oss",
    rope_pairing="halves",
    activation="clamped_swiglu",
    required_biases="qkv",
    feed_forward_norm="post_attention_norm",
    rope_base=150_000.0,
    global_every=2,
    has_sinks=True,
    truncates_yarn=False,
    mathematics=frozenset({"expert_count"}),
)

MISTRAL3 = Architecture(
    name="mistral3",
    rope_pairing="neighbours",
    activation="silu",
    mathematics=frozenset({"attention.temperature_scale"}),
)

# Its files hold Q, K and V in one tensor and gate and up in another: see fused_tensors.py.
PHI3 = Architecture(
    name="phi3",
    rope_pairing="halves",
    activation="silu",
    has_windows=True,
)

SMOLLM3 = Architecture(
    name="smollm3",
    rope_pairing="neighbours",
    activation="silu",
    no_rope_every=4,
)

GRANITE = Architecture(
    name="granite",
    rope_pairing="neighbours",
    activation="silu",
    mathematics=frozenset({"embedding_scale", "residual_scale", "logit_scale"}),
)

# Its files with a window are OLMo 3.
OLMO2 = Architecture(
    name="olmo2",
    rope_pairing="halves",
    activation="silu",
    qk_norm="rows",
    has_pre_norms=False,
    has_post_norms=True,
    global_every=4,
    scales_local_rope=False,
)

EXAONE4 = Architecture(
    name="exaone4",
    rope_pairing="halves",
    activation="silu",
    qk_norm="heads",
    has_pre_norms=False,
    has_post_norms=True,
    global_every=4,
    rotates_local_alone=True,
)

COHERE2 = Architecture(
    name="cohere2",
    rope_pairing="neighbours",
    activation="silu",
    norm="layer",
    may_be_parallel=True,
    global_every=4,
    window=4096,
    rotates_local_alone=True,
    logit_scale=0.0625,
    multiplies_logits=True,
    mathematics=frozenset({LAYER_NORM_EPSILON, "logit_scale"}),
)

COMMAND_R = replace(
    COHERE2,
    name="command-r",
    qk_norm="each",
    may_lack_qk_norm=True,
    global_every=None,
    window=None,
    rotates_local_alone=False,
)

HUNYUAN_DENSE = Architecture(
    name="hunyuan-dense",
    rope_pairing="halves",
    activation="silu",
    qk_norm="heads",
    norms_after_rotation=True,
)

STARCODER2 = Architecture(
    name="starcoder2",
    rope_pairing="halves",
    activation="gelu_tanh",
    required_biases="all",
    norm="layer",
    requires_norm_bias=True,
    is_ungated=True,
    has_windows=True,
    window=4096,
    mathematics=frozenset({LAYER_NORM_EPSILON}),
)

# StableLM 2 12B has norms of each head, and branches that read alike.
STABLELM = Architecture(
    name="stablelm",
    rope_pairing="halves",
    activation="silu",
    norm="layer",
    requires_norm_bias=True,
    qk_norm="each",
    may_lack_qk_norm=True,
    may_be_parallel=True,
    mathematics=frozenset({LAYER_NORM_EPSILON}),
)

NEMOTRON = Architecture(
    name="nemotron",
    rope_pairing="halves",
    activation="relu_squared",
    norm="layer",
    requires_norm_bias=True,
    is_ungated=True,
    mathematics=frozenset({LAYER_NORM_EPSILON}),
)

ARCEE = Architecture(name="arcee", rope_pairing="neighbours", activation="relu_squared", is_ungated=True)

PHI2 = replace(STARCODER2, name="phi2", may_be_parallel=True, has_windows=False, window=None)

GEMMA = Architecture(
    name="gemma",
    rope_pairing="halves",
    activation="gelu_tanh",
    suffers_from_rounding=True,
    embedding_scale="sqrt_width",
)

GEMMA2 = Architecture(
    name="gemma2",
    rope_pairing="halves",
    activation="gelu_tanh",
    has_post_norms=True,
    suffers_from_rounding=True,
    embedding_scale="sqrt_width",
    global_every=2,
    attention_soft_cap=50.0,
    logit_soft_cap=30.0,
    mathematics=frozenset({"attn_logit_softcapping", "final_logit_softcapping"}),
    # Gemma 2 27B: 4608 values of width for 32 heads of 128.
    scales_of_sizes=(ScaleOfSize(num_layers=46, width_per_query=144),),
)

GEMMA3 = Architecture(
    name="gemma3",
    rope_pairing="halves",
    activation="gelu_tanh",
    qk_norm="heads",
    has_post_norms=True,
    suffers_from_rounding=True,
    embedding_scale="sqrt_width",
    rope_base=1_000_000.0,
    local_rope_base=10_000.0,
    global_every=6,
    # Gemma 3 27B: 5376 values of width for 32 heads of 128.
    scales_of_sizes=(ScaleOfSize(num_layers=62, width_per_query=168),),
)

# The text part: files of pictures and sound are others.
GEMMA4 = Architecture(
    name="gemma4",
    rope_pairing="halves",
    activation="gelu_tanh",
    qk_norm="heads",
    normalizes_values=True,
    value_is_key=True,
    attention_scale=1.0,
    has_post_norms=True,
    suffers_from_rounding=True,
    embedding_scale="sqrt_width",
    rope_base=1_000_000.0,
    local_rope_base=10_000.0,
    global_every=6,
    experts_stand="beside",
    mathematics=frozenset({"final_logit_softcapping", "expert_count"}),
)

LFM2 = Architecture(
    name="lfm2",
    rope_pairing="halves",
    activation="silu",
    qk_norm="heads",
    rope_base=1_000_000.0,
    has_windows=True,
    mixer="short_convolution",
    output_norm="token_embd_norm",
)

LFM2MOE = replace(
    LFM2,
    name="lfm2moe",
    expert_weighing="normalized_sigmoid",
    requires_preferences=True,
    mathematics=frozenset({"expert_count"}),
)

# Qwen 3.5; of its rotation's three directions text uses one.
QWEN35 = Architecture(
    name="qwen35",
    rope_pairing="halves",
    activation="silu",
    qk_norm="heads",
    feed_forward_norm="post_attention_norm",
    mixer="delta_rule",
    attention_every=4,
    has_query_gates=True,
)

QWEN35MOE = replace(QWEN35, name="qwen35moe", shared_expert="weighed", mathematics=frozenset({"expert_count"}))

QWEN3NEXT = replace(QWEN35MOE, name="qwen3next", mixer="grouped_delta_rule")

QWEN2MOE = replace(
    QWEN2,
    name="qwen2moe",
    expert_weighing="softmax_of_all",
    shared_expert="weighed",
    mathematics=frozenset({"expert_count"}),
)

# Of models that see, the text: one of their rotation's three directions.
QWEN2VL, QWEN3VL = replace(QWEN2, name="qwen2vl"), replace(QWEN3, name="qwen3vl")
QWEN3VLMOE = replace(QWEN3MOE, name="qwen3vlmoe")

GRANITEMOE = replace(GRANITE, name="granitemoe", mathematics=GRANITE.mathematics | {"expert_count"})

OLMOE = Architecture(
    name="olmoe",
    rope_pairing="halves",
    activation="silu",
    qk_norm="rows",
    expert_weighing="softmax_of_all",
    mathematics=frozenset({"expert_count"}),
)

GLM4 = Architecture(name="glm4", rope_pairing="neighbours", activation="silu", has_post_norms=True)

GLM4MOE = Architecture(
    name="glm4moe",
    rope_pairing="halves",
    activation="silu",
    qk_norm="heads",
    may_lack_qk_norm=True,
    feed_forward_norm="post_attention_norm",
    expert_weighing="normalized_sigmoid",
    requires_preferences=True,
    shared_expert="plain",
    mathematics=frozenset({"expert_count", "expert_shared_count"}),
)

SEED_OSS = replace(QWEN2, name="seed_oss", feed_forward_norm="post_attention_norm")

ERNIE4_5 = Architecture(name="ernie4_5", rope_pairing="neighbours", activation="silu", rope_base=500_000.0)

ARCHITECTURES: Mapping[str, Architecture] = MappingProxyType(
    {
        architecture.name: architecture
        for architecture in (
            LLAMA,
            MISTRAL3,
            QWEN2,
            QWEN3,
            QWEN3MOE,
            PHI3,
            SMOLLM3,
            GRANITE,
            OLMO2,
            EXAONE4,
            COHERE2,
            COMMAND_R,
            HUNYUAN_DENSE,
            STARCODER2,
            STABLELM,
            NEMOTRON,
            ARCEE,
            PHI2,
            GEMMA,
            QWEN2VL,
            EXAONE,
            GEMMA2,
            GEMMA3,
            GEMMA4,
            GPT_OSS,
            LFM2,
            LFM2MOE,
            QWEN35,
            QWEN35MOE,
            QWEN3NEXT,
            QWEN2MOE,
            QWEN3VL,
            QWEN3VLMOE,
            GRANITEMOE,
            OLMOE,
            GLM4,
            GLM4MOE,
            SEED_OSS,
            ERNIE4_5,
        )
    }
)


def find_architecture(name: str) -> Architecture:
    """The declaration of `name`; ArchitectureError naming those there are, and the nearest, where there is none."""
    if name in ARCHITECTURES:
        return ARCHITECTURES[name]
    known = ", ".join(ARCHITECTURES)
    nearest = difflib.get_close_matches(name, ARCHITECTURES, n=1, cutoff=0.5)
    hint = f"; the nearest is {nearest[0]}, but its mathematics differ" if nearest else ""
    raise ArchitectureError(
        f"general.architecture is {quoted(name)}, which Tandem can't run. It runs {known}{hint}."
        " Choose a model of one of these."
    )
