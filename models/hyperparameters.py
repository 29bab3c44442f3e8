"""The numbers that shape a model, read from a file's metadata and checked.

Owns the metadata keys and their limits.  Does not know tensors (lowering.py compares shapes) nor what a family does
with a number (architectures.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from models.errors import ArchitectureError
from models.metadata_keys import MetadataKeys, shown
from models.program import Weighing
from models.rope_numbers import MOST_POSITIONS, RopeScaling, rope_dimensions, rope_scaling

# Mathematics that most families lack: a file that asks for it would run without and give wrong text.
_SPECIAL_KEYS: Mapping[str, str] = {
    "expert_count": "a mixture of experts",
    "attn_logit_softcapping": "soft caps on attention",
    "final_logit_softcapping": "soft caps on logits",
    "logit_scale": "a scale on logits",
    "residual_scale": "a scale on branches",
    "embedding_scale": "an embedding scale of its own",
    "attention.clamp_kqv": "clamped Q, K and V",
    "attention.max_alibi_bias": "ALiBi",
    "attention.temperature_scale": "an attention temperature",
    "expert_shared_count": "experts that every token uses",
    "expert_group_count": "experts chosen by groups",
    "pooling_type": "embeddings instead of text",
}
_HARMLESS: Mapping[str, object] = {"expert_group_count": 1}  # of all experts, one group
LAYER_NORM_EPSILON = "attention.layer_norm_epsilon"
# Larger counts than any model has: beyond them a number is damage.
_MOST_LAYERS = 4096
_MOST_EXPERTS = 4096
_MOST_INPUTS = 64
_SIGMOID, _MOST_GATING = 2, 3  # of expert_gating_func; the others are softmax, of all scores or of the chosen


@dataclass(frozen=True, kw_only=True)
class DeltaNumbers:
    """Of a delta rule: num_heads heads with values, which share the queries and keys of num_key_heads."""

    num_heads: int
    num_key_heads: int
    key_dim: int
    value_dim: int


@dataclass(frozen=True, kw_only=True)
class Hyperparameters:
    """A model's numbers.  None: the file is silent and the architecture decides.

    width: values of the hidden state; feed_forward_width: of the gated product; head_dim: of one head.
    rope_dimensions: how many values of a head turn.  window: tokens that a local layer sees (0: there is no window).
    window_pattern: a period (each such layer is global) or for every layer whether it has the window.
    attention_soft_cap, logit_soft_cap: caps.  embedding_scale, residual_scale: factors of the embedding's rows and of
    every branch; logit_scale: of logits (Architecture.multiplies_logits).  attention_temperature: program.Temperature.
    num_experts, num_used_experts, expert_width: of a mixture of experts (0: none) and of each one's gate and up.
    num_spare_layers: layers that stand behind the others in the file and guess further tokens; they aren't run.
    recurrent_layers: for every layer whether it has no attention.  attention_every: the same as a period: layers n - 1,
    2n - 1, ... have attention.  convolution_length: inputs that a recurrent layer's convolution sees.
    local_head_dim, local_rope_dimensions: of layers with a window, where they differ.  kv_heads_of_layers,
    feed_forward_widths: of every layer, where they differ (num_kv_heads and feed_forward_width are the largest then).
    num_shared_layers: so many of the last layers attend to what earlier ones keep.  per_layer_width: values
    for each layer of a token's second embedding (0: there is none).
    num_dense_layers: so many of the first layers have no experts.  shared_expert_width: of the one that all tokens use.
    expert_weighing, expert_weights_scale: see program.MixExperts.
    """

    architecture: str
    context_length: int
    num_layers: int
    width: int
    feed_forward_width: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    norm_epsilon: float
    rope_dimensions: int
    rope_base: float | None
    local_rope_base: float | None
    rope_scaling: RopeScaling
    attention_scale: float | None
    window: int | None
    window_pattern: int | tuple[bool, ...] | None
    attention_soft_cap: float | None = None
    logit_soft_cap: float | None = None
    embedding_scale: float | None = None
    residual_scale: float | None = None
    logit_scale: float | None = None
    attention_temperature: float | None = None
    num_experts: int = 0
    num_used_experts: int = 0
    expert_width: int = 0
    num_spare_layers: int = 0
    recurrent_layers: tuple[bool, ...] | None = None
    attention_every: int | None = None
    convolution_length: int | None = None
    delta: DeltaNumbers | None = None
    local_head_dim: int | None = None
    local_rope_dimensions: int | None = None
    kv_heads_of_layers: tuple[int, ...] | None = None
    feed_forward_widths: tuple[int, ...] | None = None
    num_shared_layers: int = 0
    per_layer_width: int = 0
    num_dense_layers: int = 0
    shared_expert_width: int = 0
    expert_weighing: Weighing | None = None
    expert_weights_scale: float | None = None

    def kv_heads(self, layer_idx: int) -> int:
        """KV heads of a layer that has some."""
        return self.num_kv_heads if self.kv_heads_of_layers is None else self.kv_heads_of_layers[layer_idx]

    def gated_width(self, layer_idx: int) -> int:
        """Values of the gated product of a layer."""
        return self.feed_forward_width if self.feed_forward_widths is None else self.feed_forward_widths[layer_idx]


def read_hyperparameters(metadata: Mapping[str, Any], mathematics: frozenset[str] = frozenset()) -> Hyperparameters:
    """The checked numbers of a file with this metadata; ArchitectureError names the key that is missing or wrong.

    mathematics: keys of what the family may ask for beyond plain Llamas.
    """
    architecture = architecture_name(metadata)
    keys = MetadataKeys(metadata, architecture)
    _refuse_unknown_mathematics(keys, mathematics)
    width = keys.integer("embedding_length")
    num_heads = keys.integer("attention.head_count")
    num_layers, num_spare_layers = _layers(keys)
    kv_heads, recurrent_layers = _kv_heads(keys, num_layers)
    kv_heads = kv_heads or (num_heads,)
    for count in kv_heads:
        if num_heads % count:
            raise ArchitectureError(
                f"{architecture}.attention.head_count is {num_heads}, which its {count} KV heads don't divide."
            )
    head_dim = _head_dim(keys, width, num_heads)
    context_length = keys.integer("context_length", at_most=MOST_POSITIONS)
    epsilon_key = LAYER_NORM_EPSILON if LAYER_NORM_EPSILON in mathematics else "attention.layer_norm_rms_epsilon"
    epsilon = keys.optional_number(epsilon_key, at_least=1e-30, at_most=1.0)
    if epsilon is None:
        raise ArchitectureError(
            f"The file's metadata lacks {architecture}.{epsilon_key}, a small number that a model can't run without."
        )
    widths = keys.integers("feed_forward_length", num_layers)
    feed_forward_width = max(widths)
    num_experts, num_used_experts = _experts(keys)
    expert_width = keys.optional_integer("expert_feed_forward_length", at_least=0) or feed_forward_width
    num_shared = keys.optional_integer("expert_shared_count", at_least=0, at_most=_MOST_EXPERTS) or 0
    return Hyperparameters(
        architecture=architecture,
        context_length=context_length,
        num_layers=num_layers,
        width=width,
        feed_forward_width=feed_forward_width,
        num_heads=num_heads,
        num_kv_heads=max(kv_heads),
        head_dim=head_dim,
        norm_epsilon=epsilon,
        rope_dimensions=rope_dimensions(keys, head_dim),
        rope_base=keys.optional_number("rope.freq_base", at_least=1.001),
        local_rope_base=keys.optional_number("rope.freq_base_swa", at_least=1.001),
        rope_scaling=rope_scaling(keys, context_length),
        attention_scale=keys.optional_number("attention.scale"),
        window=keys.optional_integer("attention.sliding_window", at_least=0, at_most=MOST_POSITIONS),
        window_pattern=_window_pattern(keys, num_layers),
        attention_soft_cap=keys.optional_number("attn_logit_softcapping"),
        logit_soft_cap=keys.optional_number("final_logit_softcapping"),
        embedding_scale=keys.optional_number("embedding_scale"),
        residual_scale=keys.optional_number("residual_scale"),
        logit_scale=keys.optional_number("logit_scale"),
        attention_temperature=keys.optional_number("attention.temperature_scale"),
        num_experts=num_experts,
        num_used_experts=num_used_experts,
        expert_width=expert_width,
        num_spare_layers=num_spare_layers,
        recurrent_layers=_flags(keys, "attention.recurrent_layers", num_layers, num_spare_layers) or recurrent_layers,
        attention_every=keys.optional_integer("full_attention_interval", at_most=_MOST_LAYERS),
        convolution_length=keys.optional_integer("shortconv.l_cache", at_least=2, at_most=_MOST_INPUTS)
        or keys.optional_integer("ssm.conv_kernel", at_least=2, at_most=_MOST_INPUTS),
        delta=_delta(keys),
        local_head_dim=_local_head_dim(keys),
        local_rope_dimensions=keys.optional_integer("rope.dimension_count_swa"),
        kv_heads_of_layers=kv_heads if len(set(kv_heads)) > 1 else None,
        feed_forward_widths=widths if len(set(widths)) > 1 else None,
        num_shared_layers=keys.optional_integer("attention.shared_kv_layers", at_least=0, at_most=num_layers - 1) or 0,
        per_layer_width=keys.optional_integer("embedding_length_per_layer_input", at_least=0) or 0,
        num_dense_layers=keys.optional_integer("leading_dense_block_count", at_least=0, at_most=num_layers) or 0,
        shared_expert_width=keys.optional_integer("expert_shared_feed_forward_length", at_least=0)
        or num_shared * expert_width
        or feed_forward_width,
        expert_weighing=_expert_weighing(keys),
        expert_weights_scale=keys.optional_number("expert_weights_scale"),
    )


def architecture_name(metadata: Mapping[str, Any]) -> str:
    """The file's general.architecture."""
    name = metadata.get("general.architecture")
    if not isinstance(name, str) or not name:
        raise ArchitectureError(
            f"The file's general.architecture is {shown(name)}; the name of an architecture was expected."
        )
    return name


def _refuse_unknown_mathematics(keys: MetadataKeys, known: frozenset[str]) -> None:
    for key, meaning in _SPECIAL_KEYS.items():
        full_key, value = keys.find(key)
        if value and key not in known and _HARMLESS.get(key) != value:
            raise ArchitectureError(
                f"{full_key} is {shown(value)}: Tandem can't run {meaning} in this architecture yet."
            )
    if keys.find("attention.causal")[1] is False:
        raise ArchitectureError(f"{keys.architecture}.attention.causal is false: the model doesn't write text.")


def _layers(keys: MetadataKeys) -> tuple[int, int]:
    """Layers that are run, and those behind them that guess further tokens."""
    num_layers = keys.integer("block_count", at_most=_MOST_LAYERS)
    num_spare = keys.optional_integer("nextn_predict_layers", at_least=0, at_most=num_layers - 1) or 0
    return num_layers - num_spare, num_spare


def _kv_heads(keys: MetadataKeys, num_layers: int) -> tuple[tuple[int, ...] | None, tuple[bool, ...] | None]:
    """KV heads of every layer (or of all), and where a list gives some none, for every layer whether that is so."""
    key = "attention.head_count_kv"
    full_key, value = keys.find(key)
    if value is None:
        return None, None
    if not isinstance(value, list) or not any(value) or all(value):
        return keys.integers(key, num_layers), None
    if len(value) < num_layers:
        raise ArchitectureError(
            f"{full_key} has {len(value)} items; one for each of the {num_layers} layers was expected."
        )
    used = [item for item in value if item]
    keys.metadata = {**keys.metadata, full_key: used}
    return (keys.integer(key),), tuple(not item for item in value[:num_layers])


def _delta(keys: MetadataKeys) -> DeltaNumbers | None:
    """Of a delta rule, under the names that converters borrow from state-space models."""
    inner = keys.optional_integer("ssm.inner_size", at_least=0)
    if not inner:
        return None
    num_heads, num_key_heads = keys.integer("ssm.time_step_rank"), keys.integer("ssm.group_count")
    if inner % num_heads or num_heads % num_key_heads:
        raise ArchitectureError(
            f"{keys.architecture}.ssm.time_step_rank is {num_heads}, which doesn't divide ssm.inner_size ({inner}) or"
            f" isn't a multiple of ssm.group_count ({num_key_heads})."
        )
    return DeltaNumbers(
        num_heads=num_heads,
        num_key_heads=num_key_heads,
        key_dim=keys.integer("ssm.state_size"),
        value_dim=inner // num_heads,
    )


def _experts(keys: MetadataKeys) -> tuple[int, int]:
    """How many experts there are and how many a token uses; 0, 0 where there are none."""
    num_experts = keys.optional_integer("expert_count", at_least=0, at_most=_MOST_EXPERTS) or 0
    if num_experts == 0:
        return 0, 0
    return num_experts, keys.integer("expert_used_count", at_most=num_experts)


def _head_dim(keys: MetadataKeys, width: int, num_heads: int) -> int:
    key_length = keys.optional_integer("attention.key_length")
    if key_length is None and width % num_heads:
        raise ArchitectureError(
            f"{keys.architecture}.attention.head_count is {num_heads}, which doesn't divide the embedding length"
            f" {width}, and the file gives no attention.key_length."
        )
    head_dim = key_length or width // num_heads
    value_length = keys.optional_integer("attention.value_length") or width // num_heads
    if value_length != head_dim:
        raise ArchitectureError(
            f"{keys.architecture}.attention.value_length is {value_length} and the length of a key {head_dim}:"
            " Tandem can't run heads whose keys and values differ in length yet."
        )
    return head_dim


def _expert_weighing(keys: MetadataKeys) -> Weighing | None:
    """What the file says of it: a number for the function of the scores, and whether factors are normalised."""
    function = keys.optional_integer("expert_gating_func", at_least=0, at_most=_MOST_GATING) or 0
    _, is_normalized = keys.find("expert_weights_norm")
    if function == _SIGMOID:
        return "sigmoid" if is_normalized is False else "normalized_sigmoid"
    if is_normalized is None:
        return None
    return "softmax_of_all" if is_normalized is False else "softmax"


def _local_head_dim(keys: MetadataKeys) -> int | None:
    """Of layers with a window, where the file gives them heads of their own."""
    key_length = keys.optional_integer("attention.key_length_swa")
    value_length = keys.optional_integer("attention.value_length_swa")
    if value_length != key_length:
        raise ArchitectureError(
            f"{keys.architecture}.attention.value_length_swa is {value_length} and the length of a key {key_length}:"
            " Tandem can't run heads whose keys and values differ in length yet."
        )
    return key_length


def _window_pattern(keys: MetadataKeys, num_layers: int) -> int | tuple[bool, ...] | None:
    key = "attention.sliding_window_pattern"
    return _flags(keys, key, num_layers) or keys.optional_integer(key, at_most=_MOST_LAYERS)


def _flags(keys: MetadataKeys, key: str, num_layers: int, num_spare: int = 0) -> tuple[bool, ...] | None:
    """What a list says of each layer that is run; None where the value is no list."""
    full_key, value = keys.find(key)
    if not isinstance(value, list):
        return None
    if len(value) != num_layers + num_spare:
        raise ArchitectureError(
            f"{full_key} has {len(value)} items; one for each of the {num_layers + num_spare} layers was expected."
        )
    return tuple(bool(item) for item in value[:num_layers])
