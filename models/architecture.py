"""What is declared of a model family: its fields, what each means and what holds where nothing is said.

Owns the form alone.  The families are in architectures.py; lowering.py and its parts read them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from models.mixers import MixerKind
from models.program import Activation, Pairing, Weighing

QkNorm = Literal["none", "heads", "rows", "each"]
Biases = Literal["none", "qkv", "all"]
NormKind = Literal["root_mean_square", "layer"]


@dataclass(frozen=True, kw_only=True)
class ScaleOfSize:
    """The models of num_layers layers divide q K^T by sqrt(width_per_query), which their files don't say."""

    num_layers: int
    width_per_query: int


@dataclass(frozen=True, kw_only=True)
class Architecture:
    """One family.  Where a field has a counterpart in the file, it is what holds when the file is silent.

    rope_pairing: as the converter left the rows of Q and K (it permutes those of `llama` so that neighbours pair).
    required_biases: a file without biases of Q, K and V, or of all products in layers, is refused; elsewhere biases are
        used where a file has them.  requires_norm_bias: the same of norms.
    norm: root mean square, or LayerNorm, which takes the mean off first.
    qk_norm: before they are rotated, every head of q and k is normalised, or the row of all heads; "each": every
        head with weights of its own.  may_lack_qk_norm: not where the file has no such weights.
        norms_after_rotation: they are normalised when they have been rotated.
    has_pre_norms, has_post_norms: a branch's input is normalised; its result is, before it joins the hidden state.
    feed_forward_norm: what the file calls the norm before gate and up.  may_be_parallel: where the file has no such
        norm, they read what attention reads.  is_ungated: there is no gate, down(activation(up x)).
    embedding_scale: rows of the embedding are multiplied by 1 or by the square root of the width.
    global_every: layers n - 1, 2n - 1, ... see the whole context, the others a window; None: all layers are alike.
    has_windows: where layers are alike, whether they have a window.  window: tokens that it covers.
    no_rope_every: layers n - 1, 2n - 1, ... don't rotate; None: all rotate.
    multiplies_logits: by logit_scale, which logits are divided by elsewhere.
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
    required_biases: Biases = "none"
    requires_norm_bias: bool = False
    norm: NormKind = "root_mean_square"
    qk_norm: QkNorm = "none"
    may_lack_qk_norm: bool = False
    norms_after_rotation: bool = False
    has_pre_norms: bool = True
    has_post_norms: bool = False
    feed_forward_norm: str = "ffn_norm"
    may_be_parallel: bool = False
    is_ungated: bool = False
    suffers_from_rounding: bool = False
    embedding_scale: Literal["one", "sqrt_width"] = "one"
    rope_base: float = 10_000.0
    local_rope_base: float | None = None
    scales_local_rope: bool = True
    rotates_local_alone: bool = False
    global_every: int | None = None
    has_windows: bool = False
    window: int | None = None
    no_rope_every: int | None = None
    attention_soft_cap: float | None = None
    logit_soft_cap: float | None = None
    logit_scale: float | None = None
    multiplies_logits: bool = False
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
