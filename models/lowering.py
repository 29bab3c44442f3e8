"""From a declaration and a model's numbers to the step program.

Owns the order of a layer's halves, what stands before and behind the layers, and which layers are recurrent.  Does not
know what the halves are made of (attentions.py, mixers.py, feed_forwards.py), nor how an operation is computed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from models.architecture import Architecture
from models.attentions import Attentions
from models.errors import ArchitectureError
from models.feed_forwards import FeedForwards
from models.hyperparameters import Hyperparameters
from models.layer_parts import ModelFacts
from models.mixers import make_mixer
from models.program import (
    Buffer,
    Embed,
    Gate,
    KvLayer,
    Normalize,
    Operation,
    Program,
    Project,
    Scale,
    SelectOutputs,
    SoftCap,
)
from models.recurrence import StateLayer
from models.rope import RopeFactors
from models.tensor_checks import EMBEDDING, Shapes, check_all_used, check_shapes, shape_of

HEAD = "output.weight"
LAYERS_EMBEDDING = "per_layer_token_embd.weight"


def lower(
    architecture: Architecture,
    hyperparameters: Hyperparameters,
    tensors: Shapes,
    *,
    factors: RopeFactors | None = None,
    context_size: int | None = None,
) -> Program:
    """The program of one forward pass.

    tensors: each tensor's shape by name, a matrix as (rows, columns).  factors: the file's frequency tables.
    context_size: positions that will be used (it chooses between tables); None: all that the model was trained for.
    Raises TensorError naming the tensor that is missing, has another shape than the numbers say, or is never used.
    """
    facts = ModelFacts(
        architecture=architecture,
        numbers=hyperparameters,
        tensors=tensors,
        factors=factors,
        context_size=context_size or hyperparameters.context_length,
    )
    lowering = _Lowering(facts)
    operations: list[Operation] = []
    for operation in lowering.operations():
        check_shapes(operation, tensors, hyperparameters)
        operations.append(operation)
    program = Program(
        operations=tuple(operations),
        layers=tuple(lowering.kept(layer_idx) for layer_idx in range(hyperparameters.num_layers)),
        hidden=lowering.hidden,
        logits=lowering.logits,
        vocab_size=lowering.vocab_size,
    )
    check_all_used(program, tensors, hyperparameters)
    return program


class _Lowering(Attentions, FeedForwards):
    """The operations of one model, made one by one so that what is wrong in a layer stops before the next."""

    def __init__(self, facts: ModelFacts) -> None:
        super().__init__(facts)
        architecture, numbers, width = facts.architecture, facts.numbers, facts.numbers.width
        self.vocab_size = shape_of(EMBEDDING, facts.tensors)[0]
        self.per_layer = Buffer(name="p", width=numbers.num_layers * numbers.per_layer_width)
        self.selected = Buffer(name="y", width=width)
        self.selected_normed = Buffer(name="z", width=width)
        self.logits = Buffer(name="logits", width=self.vocab_size)
        has_recurrent = any(self._is_recurrent(layer_idx) for layer_idx in range(numbers.num_layers))
        if has_recurrent and architecture.mixer is None:
            raise ArchitectureError(
                f"{architecture.name}.attention.head_count_kv names layers without attention, which Tandem knows no"
                " other mathematics for in this architecture."
            )
        self.mixer = make_mixer(architecture.mixer, numbers) if architecture.mixer and has_recurrent else None

    def operations(self) -> Iterator[Operation]:
        yield Embed(weight=EMBEDDING, out=self.hidden, scale=self._embedding_scale())
        if self.numbers.per_layer_width:
            yield from self._embed_per_layer()
        for layer_idx in range(self.numbers.num_layers):
            if self._is_recurrent(layer_idx):
                yield from self._recurrence(layer_idx)
            else:
                yield from self._attention(layer_idx)
            yield from self._feed_forward(layer_idx)
            if self.numbers.per_layer_width:
                yield from self._join_per_layer(layer_idx)
            if (scale := f"blk.{layer_idx}.layer_output_scale.weight") in self.tensors:
                yield Scale(x=self.hidden, weight=scale, layer_idx=layer_idx)
        yield SelectOutputs(x=self.hidden, out=self.selected)
        yield self._norm(self.architecture.output_norm, self.selected, self.selected_normed, None)
        head = HEAD if HEAD in self.tensors else EMBEDDING
        parts = (self._part(head.removesuffix(".weight"), self.logits),)
        scale = self.numbers.logit_scale or self.architecture.logit_scale
        if scale is not None and not self.architecture.multiplies_logits:
            scale = 1.0 / scale
        yield Project(x=self.selected_normed, parts=parts, scale=scale, is_coarse=self.is_robust)
        cap = self.numbers.logit_soft_cap or self.architecture.logit_soft_cap
        if cap is not None:
            yield SoftCap(x=self.logits, cap=cap)

    def _embedding_scale(self) -> float:
        if self.numbers.embedding_scale is not None:
            return self.numbers.embedding_scale
        return math.sqrt(self.numbers.width) if self.architecture.embedding_scale == "sqrt_width" else 1.0

    def _recurrence(self, layer_idx: int) -> Iterator[Operation]:
        assert self.mixer is not None, "recurrent layers have a mixer"
        block = f"blk.{layer_idx}"
        yield from self._pre_norm(f"{block}.attn_norm", layer_idx)
        yield from self.mixer.operations(self.normed, layer_idx, self._part)
        yield from self._join(
            f"{block}.{self.mixer.out_matrix}", self.mixer.out, f"{block}.post_attention_norm", layer_idx
        )

    def _embed_per_layer(self) -> Iterator[Operation]:
        """A second embedding of every token, with as many values for each layer, and what the first one adds to it."""
        numbers, projected = self.numbers, Buffer(name="pp", width=self.per_layer.width)
        yield Embed(weight=LAYERS_EMBEDDING, out=self.per_layer, scale=math.sqrt(numbers.per_layer_width), layer_idx=0)
        parts = (self._part("per_layer_model_proj", projected),)
        yield Project(x=self.hidden, parts=parts, scale=1.0 / math.sqrt(numbers.width), layer_idx=0)
        yield Normalize(
            x=projected,
            weight="per_layer_proj_norm.weight",
            out=self.per_layer,
            epsilon=numbers.norm_epsilon,
            heads=numbers.num_layers,
            add=True,
            layer_idx=0,
        )

    def _join_per_layer(self, layer_idx: int) -> Iterator[Operation]:
        """A layer's part of it, gated by the hidden state."""
        block, width = f"blk.{layer_idx}", self.numbers.per_layer_width
        gate = Buffer(name="pg", width=width)
        yield Project(x=self.hidden, parts=(self._part(f"{block}.inp_gate", gate),), layer_idx=layer_idx)
        activation = self.architecture.activation
        yield Gate(gate=gate, up=self.per_layer, activation=activation, up_start=layer_idx * width, layer_idx=layer_idx)
        parts, mean = (self._part(f"{block}.proj", self.branch),), math.sqrt(0.5)  # of the two embeddings
        yield Project(x=gate, parts=parts, scale=mean, layer_idx=layer_idx)
        yield self._norm(f"{block}.post_norm", self.branch, self.hidden, layer_idx, add=True)

    def kept(self, layer_idx: int) -> KvLayer | StateLayer | None:
        """What layer layer_idx keeps."""
        if self.mixer is not None and self._is_recurrent(layer_idx):
            return self.mixer.state
        return self.cache(layer_idx) if self._source(layer_idx) == layer_idx else None

    def _is_recurrent(self, layer_idx: int) -> bool:
        if self.numbers.recurrent_layers is not None:
            return self.numbers.recurrent_layers[layer_idx]
        if self.architecture.attention_every is None:
            return False
        return (layer_idx + 1) % (self.numbers.attention_every or self.architecture.attention_every) != 0
