"""What the parts of a layer have in common: their buffers, and how products and norms are named and joined.

Owns these pieces.  Does not know what stands in a layer.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from models.architecture import Architecture
from models.hyperparameters import Hyperparameters
from models.program import Buffer, Normalize, Operation, Part, Project
from models.rope import RopeFactors
from models.tensor_checks import Shapes

LEAST_ROBUST_WIDTH = 1024
"""From here on what goes into `ffn_down` and the head may be rounded coarsely.  Narrower models suffer most from it
(docs/quality.md) and are fast anyway."""


@dataclass(frozen=True, kw_only=True)
class ModelFacts:
    """What a program is made from.  factors: the file's frequency tables; context_size: positions that will be used."""

    architecture: Architecture
    numbers: Hyperparameters
    tensors: Shapes
    factors: RopeFactors | None
    context_size: int


class LayerParts:
    """Makes the operations that all layers of a model are put together from."""

    def __init__(self, facts: ModelFacts) -> None:
        self.facts = facts
        self.architecture = architecture = facts.architecture
        self.numbers = facts.numbers
        self.tensors = facts.tensors
        width = facts.numbers.width
        self.hidden = Buffer(name="x", width=width)
        self.normed = Buffer(name="h", width=width) if architecture.has_pre_norms else self.hidden
        self.branch = Buffer(name="b", width=width)
        self.sized: dict[str, dict[int, Buffer]] = {}
        self.window = architecture.window if facts.numbers.window is None else facts.numbers.window or None
        self.is_parallel = architecture.may_be_parallel and not self._has(architecture.feed_forward_norm)
        lacks_norms = architecture.may_lack_qk_norm and not self._has("attn_q_norm") and not self._has("attn_k_norm")
        self.qk_norm = "none" if lacks_norms else architecture.qk_norm
        self.is_robust = width >= LEAST_ROBUST_WIDTH and not architecture.suffers_from_rounding

    def _has(self, name: str) -> bool:
        """Whether some layer has the weight `name`."""
        return any(f"blk.{layer_idx}.{name}.weight" in self.tensors for layer_idx in range(self.numbers.num_layers))

    def _buffer(self, name: str, width: int) -> Buffer:
        """What layers call `name`: one for each width that they give it."""
        known = self.sized.setdefault(name, {})
        return known.setdefault(width, Buffer(name=f"{name}{width if known else ''}", width=width))

    def _pre_norm(self, name: str, layer_idx: int) -> Iterator[Operation]:
        if self.architecture.has_pre_norms:
            yield self._norm(name, self.hidden, self.normed, layer_idx)

    def _join(
        self, matrix: str, x: Buffer, post_norm: str, layer_idx: int, *, is_coarse: bool = False
    ) -> Iterator[Operation]:
        """The end of a branch: its last product, normalised where the family says so, added to the hidden state."""
        requires_bias = self.architecture.required_biases == "all"
        if self.architecture.has_post_norms:
            parts = (self._part(matrix, self.branch, requires_bias=requires_bias),)
            yield Project(x=x, parts=parts, is_coarse=is_coarse, layer_idx=layer_idx)
            yield self._norm(post_norm, self.branch, self.hidden, layer_idx, add=True)
        else:
            parts = (self._part(matrix, self.hidden, requires_bias=requires_bias),)
            scale = self.numbers.residual_scale
            yield Project(x=x, parts=parts, add=True, scale=scale, is_coarse=is_coarse, layer_idx=layer_idx)

    def _norm(self, name: str, x: Buffer, out: Buffer, layer_idx: int | None, *, add: bool = False) -> Normalize:
        bias = f"{name}.bias"
        return Normalize(
            x=x,
            weight=f"{name}.weight",
            out=out,
            epsilon=self.numbers.norm_epsilon,
            bias=bias if self.architecture.requires_norm_bias or bias in self.tensors else None,
            is_centred=self.architecture.norm == "layer",
            add=add,
            layer_idx=layer_idx,
        )

    def _part(self, name: str, out: Buffer, *, requires_bias: bool = False) -> Part:
        bias = f"{name}.bias"
        has_bias = requires_bias or bias in self.tensors
        return Part(weight=f"{name}.weight", out=out, bias=bias if has_bias else None)
