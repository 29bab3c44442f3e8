"""The second half of a layer: a gated product, a mixture of experts, or both.

Owns its tensors' names and the order of operations.  Does not know how an operation is computed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

from models.layer_parts import LayerParts
from models.program import Buffer, Gate, GatedProject, MixExperts, Normalize, Operation, Project, WeighRows


class FeedForwards(LayerParts):
    """Makes these operations for every layer of a model."""

    def _feed_forward(self, layer_idx: int) -> Iterator[Operation]:
        block, numbers = f"blk.{layer_idx}", self.numbers
        has_experts = numbers.num_experts > 0 and layer_idx >= numbers.num_dense_layers
        if has_experts and self.architecture.experts_stand == "beside":
            yield from self._beside_experts(block, layer_idx)
            return
        if not self.is_parallel:
            yield from self._pre_norm(f"{block}.{self.architecture.feed_forward_norm}", layer_idx)
        if has_experts:
            yield from self._shared_expert(block, layer_idx)
            yield self._experts(block, layer_idx)
            return
        gated = self._buffer("g", numbers.gated_width(layer_idx))
        yield from (
            self._ungated(block, gated, layer_idx)
            if self.architecture.is_ungated
            else (self._gated(block, "", gated, layer_idx),)
        )
        yield from self._join(f"{block}.ffn_down", gated, f"{block}.post_ffw_norm", layer_idx, is_coarse=self.is_robust)

    def _ungated(self, block: str, out: Buffer, layer_idx: int) -> Iterator[Operation]:
        """activation(up x), without a gate."""
        up = self._part(f"{block}.ffn_up", out, requires_bias=self.architecture.required_biases == "all")
        is_coarse = not self.architecture.suffers_from_rounding
        yield Project(x=self.normed, parts=(up,), is_coarse=is_coarse, layer_idx=layer_idx)
        yield Gate(gate=out, up=None, activation=self.architecture.activation, layer_idx=layer_idx)

    def _gated(self, block: str, suffix: str, out: Buffer, layer_idx: int) -> GatedProject:
        return GatedProject(
            x=self.normed,
            gate=f"{block}.ffn_gate{suffix}.weight",
            up=f"{block}.ffn_up{suffix}.weight",
            out=out,
            activation=self.architecture.activation,
            is_coarse=not self.architecture.suffers_from_rounding,
            layer_idx=layer_idx,
        )

    def _shared_expert(self, block: str, layer_idx: int) -> Iterator[Operation]:
        """What every token uses beside its own experts, where there is such a thing."""
        if self.architecture.shared_expert == "none":
            return
        gated = self._buffer("gs", self.numbers.shared_expert_width)
        yield self._gated(block, "_shexp", gated, layer_idx)
        if self.architecture.shared_expert == "weighed":
            share = Buffer(name="rs", width=1)
            parts = (self._part(f"{block}.ffn_gate_inp_shexp", share),)
            yield Project(x=self.normed, parts=parts, layer_idx=layer_idx)
            yield WeighRows(x=gated, by=share, layer_idx=layer_idx)
        parts = (self._part(f"{block}.ffn_down_shexp", self.hidden),)
        yield Project(x=gated, parts=parts, add=True, layer_idx=layer_idx)

    def _beside_experts(self, block: str, layer_idx: int) -> Iterator[Operation]:
        """Gemma 4's: a product for all tokens and one of experts, each between norms of its own, the sum normalised."""
        joined, routed = (self._buffer(name, self.hidden.width) for name in ("j", "ri"))
        gated = self._buffer("g", self.numbers.gated_width(layer_idx))
        yield from self._pre_norm(f"{block}.{self.architecture.feed_forward_norm}", layer_idx)
        yield self._gated(block, "", gated, layer_idx)
        yield Project(x=gated, parts=(self._part(f"{block}.ffn_down", self.branch),), layer_idx=layer_idx)
        yield self._norm(f"{block}.post_ffw_norm_1", self.branch, joined, layer_idx)
        epsilon = self.numbers.norm_epsilon
        weight = f"{block}.ffn_gate_inp.scale"
        yield Normalize(x=self.hidden, weight=weight, out=routed, epsilon=epsilon, layer_idx=layer_idx)
        yield from self._pre_norm(f"{block}.pre_ffw_norm_2", layer_idx)
        yield replace(
            self._experts(block, layer_idx),
            router_x=routed,
            router_scale=1.0 / math.sqrt(self.hidden.width),
            expert_scale=f"{block}.ffn_down_exps.scale",
            out=self.branch,
            add=False,
        )
        yield self._norm(f"{block}.post_ffw_norm_2", self.branch, joined, layer_idx, add=True)
        yield self._norm(f"{block}.post_ffw_norm", joined, self.hidden, layer_idx, add=True)

    def _experts(self, block: str, layer_idx: int) -> MixExperts:
        numbers = self.numbers

        preference = f"{block}.exp_probs_b.bias"

        def bias(name: str) -> str | None:
            return name if name in self.tensors else None

        return MixExperts(
            x=self.normed,
            router=self._part(f"{block}.ffn_gate_inp", Buffer(name="r", width=numbers.num_experts)),
            gate=f"{block}.ffn_gate_exps.weight",
            up=f"{block}.ffn_up_exps.weight",
            down=f"{block}.ffn_down_exps.weight",
            gate_bias=bias(f"{block}.ffn_gate_exps.bias"),
            up_bias=bias(f"{block}.ffn_up_exps.bias"),
            down_bias=bias(f"{block}.ffn_down_exps.bias"),
            out=self.hidden,
            num_experts=numbers.num_experts,
            num_used=numbers.num_used_experts,
            width=numbers.expert_width,
            activation=self.architecture.activation,
            weighing=numbers.expert_weighing or self.architecture.expert_weighing,
            preference=preference if self.architecture.requires_preferences else bias(preference),
            scale=(numbers.expert_weights_scale or 1.0) * (numbers.residual_scale or 1.0),
            layer_idx=layer_idx,
        )
