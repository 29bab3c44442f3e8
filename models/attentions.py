"""The first half of a layer that attends: queries, keys and values, their norms and rotation, what they attend to.

Owns its tensors' names, the order of operations, and what the numbers say of each layer: its cache, window, rotation
and scale.  Does not know how an operation is computed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache

from models.errors import ArchitectureError
from models.layer_parts import LayerParts, ModelFacts
from models.program import (
    Attend,
    Buffer,
    Gate,
    KvLayer,
    Normalize,
    Operation,
    Part,
    Project,
    Rope,
    RotateAndStore,
    Temperature,
)
from models.recurrence import Separate
from models.rope import make_rope


class Attentions(LayerParts):
    """Makes these operations for every layer of a model that attends."""

    def __init__(self, facts: ModelFacts) -> None:
        super().__init__(facts)
        self.rope = lru_cache(self._rope)

    def _attention(self, layer_idx: int) -> Iterator[Operation]:
        numbers, cache = self.numbers, self.cache(layer_idx)
        block = f"blk.{layer_idx}"
        yield from self._pre_norm(f"{block}.attn_norm", layer_idx)
        q_width, kv_width = numbers.num_heads * cache.head_dim, cache.num_kv_heads * cache.head_dim
        has_gates, stores = self.architecture.has_query_gates, self._source(layer_idx) == layer_idx
        q, query_gate = self._buffer("q", q_width), self._buffer("qg", q_width)
        k, v = (self._buffer("k", kv_width), self._buffer("v", kv_width)) if stores else (None, None)
        outs = {"q": self._buffer("qq", 2 * q_width) if has_gates else q, "k": k, "v": v}
        parts = tuple(self._head_part(block, name, out, cache) for name, out in outs.items() if out is not None)
        yield Project(x=self.normed, parts=parts, layer_idx=layer_idx)
        if has_gates:
            yield Separate(x=outs["q"], first=q, second=query_gate, run=cache.head_dim, layer_idx=layer_idx)
        q_norm, k_norm = f"{block}.attn_q_norm", f"{block}.attn_k_norm"
        if self.qk_norm == "rows":
            yield from (self._norm(name, x, x, layer_idx) for name, x in ((q_norm, q), (k_norm, k)) if x is not None)
        if self.qk_norm == "each":
            for name, x in ((q_norm, q), (k_norm, k)):
                if x is not None:
                    heads = x.width // cache.head_dim
                    yield replace(self._norm(name, x, x, layer_idx), bias=None, heads=heads, has_own_weights=True)
        if self.architecture.normalizes_values and v is not None:
            heads, epsilon = cache.num_kv_heads, numbers.norm_epsilon
            yield Normalize(x=v, weight=None, out=v, epsilon=epsilon, heads=heads, layer_idx=layer_idx)
        has_head_norms = self.qk_norm == "heads"
        yield RotateAndStore(
            q=q,
            k=k,
            v=v,
            num_heads=numbers.num_heads,
            cache=cache,
            rope=self.rope(is_local=cache.window is not None) if self._has_rope(layer_idx) else None,
            q_norm=f"{q_norm}.weight" if has_head_norms else None,
            k_norm=f"{k_norm}.weight" if has_head_norms and stores else None,
            epsilon=numbers.norm_epsilon if has_head_norms else 0.0,
            norms_after=has_head_norms and self.architecture.norms_after_rotation,
            temperature=self._temperature(),
            layer_idx=layer_idx,
        )
        attended = self._buffer("a", q_width)
        yield Attend(
            q=q,
            out=attended,
            num_heads=numbers.num_heads,
            cache=cache,
            scale=self._attention_scale(),
            soft_cap=numbers.attention_soft_cap or self.architecture.attention_soft_cap,
            sinks=f"{block}.attn_sinks.weight" if self.architecture.has_sinks else None,
            source_idx=None if stores else self._source(layer_idx),
            layer_idx=layer_idx,
        )
        if has_gates:
            yield Gate(gate=query_gate, up=attended, activation="sigmoid", layer_idx=layer_idx)
            attended = query_gate
        yield from self._join(f"{block}.attn_output", attended, f"{block}.post_attention_norm", layer_idx)

    def _head_part(self, block: str, name: str, out: Buffer, cache: KvLayer) -> Part:
        """The product of q, k or v."""
        full_name = f"{block}.attn_{name}"
        may_lack = name == "v" and self.architecture.value_is_key and cache.window is None
        if may_lack and f"{full_name}.weight" not in self.tensors:
            full_name = f"{block}.attn_k"
        return self._part(full_name, out, requires_bias=self.architecture.required_biases != "none")

    def _source(self, layer_idx: int) -> int:
        """The layer whose keys and values it attends to: its own, or the last earlier one's that sees as far."""
        num_own = self.numbers.num_layers - self.numbers.num_shared_layers
        if layer_idx < num_own:
            return layer_idx
        alike = (idx for idx in reversed(range(num_own)) if self._is_local(idx) == self._is_local(layer_idx))
        found = next(alike, None)
        if found is None:
            raise ArchitectureError(
                f"{self.architecture.name}.attention.shared_kv_layers is {self.numbers.num_shared_layers}, but no"
                f" layer before those sees as far as layer {layer_idx}."
            )
        return found

    def cache(self, layer_idx: int) -> KvLayer:
        """What layer layer_idx keeps of a token, or would if it had its own."""
        numbers, source = self.numbers, self._source(layer_idx)
        window = self.window if self._is_local(layer_idx) else None
        head_dim = numbers.head_dim if window is None else numbers.local_head_dim or numbers.head_dim
        return KvLayer(num_kv_heads=numbers.kv_heads(source), head_dim=head_dim, window=window)

    def _is_local(self, layer_idx: int) -> bool:
        period = self.architecture.global_every
        if period is None or self.window is None:
            return self.architecture.has_windows and self.window is not None
        match self.numbers.window_pattern:
            case tuple() as pattern:
                return pattern[layer_idx]
            case int() as own_period:
                period = own_period
        return (layer_idx + 1) % period != 0

    def _has_rope(self, layer_idx: int) -> bool:
        period = self.architecture.no_rope_every
        if self.architecture.rotates_local_alone and self.window is not None:
            return self._is_local(layer_idx)
        return period is None or (layer_idx + 1) % period != 0

    def _temperature(self) -> Temperature | None:
        scale = self.numbers.attention_temperature
        if scale is None:
            return None
        return Temperature(scale=scale, length=self.numbers.rope_scaling.original_context_length)

    def _rope(self, *, is_local: bool) -> Rope:
        numbers, architecture = self.numbers, self.architecture
        base = numbers.rope_base or architecture.rope_base
        local_base = numbers.local_rope_base or architecture.local_rope_base
        if local_base is None and not architecture.scales_local_rope:
            local_base = base
        if is_local and local_base is not None:
            dimensions = numbers.local_rope_dimensions or numbers.rope_dimensions
            return make_rope(dimensions=dimensions, pairing=architecture.rope_pairing, base=local_base)
        return make_rope(
            dimensions=numbers.rope_dimensions,
            pairing=architecture.rope_pairing,
            base=base,
            scaling=numbers.rope_scaling,
            factors=self.facts.factors,
            context_size=self.facts.context_size,
            truncates_yarn=architecture.truncates_yarn,
        )

    def _attention_scale(self) -> float:
        if (scale := self.numbers.attention_scale or self.architecture.attention_scale) is not None:
            return scale
        widths = {rule.num_layers: rule.width_per_query for rule in self.architecture.scales_of_sizes}
        return 1.0 / math.sqrt(widths.get(self.numbers.num_layers, self.numbers.head_dim))
