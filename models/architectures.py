"""The model families as values: what an architecture does that its file doesn't say.

Owns the declarations and the lookup by name.  Does not know files, shapes or operations: lowering.py reads a
declaration, and nothing anywhere asks for a family's name.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Literal

from models.errors import ArchitectureError, quoted
from models.mixers import MixerKind
from models.program import Activation, Pairing, Weighing

QkNorm = Literal["none", "heads", "rows"]


@dataclass(frozen=True, kw_only=True)
class ScaleOfSize:
    """The models of num_layers layers divide q K^T by sqrt(width_per_query), which their files don't say."""

    num_layers: int
    width_per_query: int


@dataclass(frozen=True, kw_only=True)
class Architecture:
    """One family.  Where a field has a counterpart in the file, it is what holds when the file is silent.

    rope_pairing: as the converter left the rows of Q and K (it permutes those of `llama` so that neighbours pair).
    requires_qkv_bias: a file without biases of Q, K and V is refused; elsewhere biases are used where a file has them.
    qk_norm: before they are rotated, every head of q and k is normalised, or the row of all heads.
    has_pre_norms, has_post_norms: a branch's input is normalised; its result is, before it joins the hidden state.
    feed_forward_norm: what the file calls the norm before gate and up.
    embedding_scale: rows of the embedding are multiplied by 1 or by the square root of the width.
    global_every: layers n - 1, 2n - 1, ... see the whole context, the others a window; None: all layers are alike.
    has_windows: where layers are alike, whether they have the window that the file gives.
    no_rope_every: layers n - 1, 2n - 1, ... don't rotate; None: all rotate.
    attention_soft_cap, logit_soft_cap: caps of scores and of logits.  has_sinks: every head has a score of its own.
    truncates_yarn: the pairs between which YaRN's ramp lies are rounded outwards to whole numbers.
    mathematics: metadata keys of what a family may ask for; files of the others that hold one are refused.
    suffers_from_rounding: one byte for what goes into the feed-forward costs this family most (Gemma's norms let single
        channels stand out: perplexity moves by 1.7 % over 1,900 tokens, by 0.3 % with two terms at gate and up).
    local_rope_base: the rotation base of layers with a window (theirs is never scaled); None: as in the other layers.
    scales_local_rope: such layers turn by scaled frequencies where the others do.  rotates_local_alone: of a model with
        a window, the layers that see the whole context don't rotate.
    mixer: what recurrent layers have in attention's place; None: there are no such layers.
    attention_every: layers n - 1, 2n - 1, ... have attention, the others are recurrent.
    attention_scale: what q K^T is multiplied by; None: one over the square root of a head's length.
    normalizes_values: every head of v is normalised, without weights.  value_is_key: layers that see the whole
        context take for v what their keys are made of, where they have no attn_v.
    has_query_gates: behind each head's query stand as many values, through whose sigmoid its result goes.
    expert_weighing: where the file doesn't say; see program.MixExperts.  experts_stand: in the place of the gated
        product or beside one.  shared_expert: every token uses it, as it is or weighed by a score of its own.
    requires_preferences: a file without numbers that are added while experts are chosen is refused.
    output_norm: what the file calls the norm before the head.
    """

    name: str
    rope_pairing: Pairing
    activation: Activation
    requires_qkv_bias: bool = False
    qk_norm: QkNorm = "none"
    has_pre_norms: bool = True
    has_post_norms: bool = False
    feed_forward_norm: str = "ffn_norm"
    suffers_from_rounding: bool = False
    embedding_scale: Literal["one", "sqrt_width"] = "one"
    rope_base: float = 10_000.0
    local_rope_base: float | None = None
    scales_local_rope: bool = True
    rotates_local_alone: bool = False
    global_every: int | None = None
    has_windows: bool = False
    no_rope_every: int | None = None
    attention_soft_cap: float | None = None
    logit_soft_cap: float | None = None
    has_sinks: bool = False
    truncates_yarn: bool = True
    mixer: MixerKind | None = None
    attention_every: int | None = None
    has_query_gates: bool = False
    attention_scale: float | None = None
    normalizes_values: bool = False
    value_is_key: bool = False
    expert_weighing: Weighing = "softmax"
    experts_stand: Literal["instead", "beside"] = "instead"
    shared_expert: Literal["none", "plain", "weighed"] = "none"
    requires_preferences: bool = False
    output_norm: str = "output_norm"
    mathematics: frozenset[str] = frozenset()
    scales_of_sizes: tuple[ScaleOfSize, ...] = ()


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
    requires_qkv_bias=True,
)

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
    requires_qkv_bias=True,
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
QWEN3VL, QWEN3VLMOE = replace(QWEN3, name="qwen3vl"), replace(QWEN3MOE, name="qwen3vlmoe")

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
