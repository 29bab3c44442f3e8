"""From a declaration and a model's numbers to the step program.

Owns the names of tensors and the order of operations; checks every tensor's shape as it is used.  Does not know how a
file stores a tensor, nor how an operation is computed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from functools import lru_cache

from models.architectures import Architecture
from models.errors import ArchitectureError, TensorError, quoted
from models.hyperparameters import Hyperparameters
from models.program import (
    Attend,
    Buffer,
    Embed,
    GatedProject,
    KvLayer,
    MixExperts,
    Normalize,
    Operation,
    Part,
    Program,
    Project,
    Rope,
    RotateAndStore,
    SelectOutputs,
    SoftCap,
    Temperature,
    weights_of,
)
from models.rope import ROPE_FREQS, ROPE_LONG, ROPE_SHORT, RopeFactors, make_rope

Shapes = Mapping[str, tuple[int, ...]]

EMBEDDING = "token_embd.weight"
HEAD = "output.weight"
# Frequency tables are read when the program is made; those of old files' layers only repeat the metadata.
_TABLES = (ROPE_FREQS, ROPE_SHORT, ROPE_LONG)
_REPEATED_SUFFIX = ".attn_rot_embd.weight"


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
    lowering = _Lowering(
        architecture, hyperparameters, tensors, factors, context_size or hyperparameters.context_length
    )
    operations: list[Operation] = []
    for operation in lowering.operations():
        _check_shapes(operation, tensors, hyperparameters)
        operations.append(operation)
    program = Program(
        operations=tuple(operations),
        layers=tuple(lowering.cache(layer_idx) for layer_idx in range(hyperparameters.num_layers)),
        hidden=lowering.hidden,
        logits=lowering.logits,
        vocab_size=lowering.vocab_size,
    )
    _check_all_used(program, tensors, hyperparameters)
    return program


class _Lowering:
    """The operations of one model, made one by one so that what is wrong in a layer stops before the next."""

    def __init__(
        self,
        architecture: Architecture,
        hyperparameters: Hyperparameters,
        tensors: Shapes,
        factors: RopeFactors | None,
        context_size: int,
    ) -> None:
        self.architecture = architecture
        self.numbers = hyperparameters
        self.tensors = tensors
        self.factors = factors
        self.context_size = context_size
        self.vocab_size = _shape_of(EMBEDDING, tensors)[0]
        width = hyperparameters.width
        q_width = hyperparameters.num_heads * hyperparameters.head_dim
        kv_width = hyperparameters.num_kv_heads * hyperparameters.head_dim
        self.hidden = Buffer(name="x", width=width)
        self.normed = Buffer(name="h", width=width) if architecture.has_pre_norms else self.hidden
        self.branch = Buffer(name="b", width=width)
        self.q = Buffer(name="q", width=q_width)
        self.k = Buffer(name="k", width=kv_width)
        self.v = Buffer(name="v", width=kv_width)
        self.attended = Buffer(name="a", width=q_width)
        self.gated = Buffer(name="g", width=hyperparameters.feed_forward_width)
        self.scores = Buffer(name="r", width=hyperparameters.num_experts)
        self.selected = Buffer(name="y", width=width)
        self.selected_normed = Buffer(name="z", width=width)
        self.logits = Buffer(name="logits", width=self.vocab_size)
        self.rope = lru_cache(self._rope)

    def operations(self) -> Iterator[Operation]:
        yield Embed(weight=EMBEDDING, out=self.hidden, scale=self._embedding_scale())
        for layer_idx in range(self.numbers.num_layers):
            yield from self._attention(layer_idx)
            yield from self._feed_forward(layer_idx)
        yield SelectOutputs(x=self.hidden, out=self.selected)
        yield self._norm("output_norm", self.selected, self.selected_normed, None)
        head = HEAD if HEAD in self.tensors else EMBEDDING
        parts = (self._part(head.removesuffix(".weight"), self.logits),)
        divisor = self.numbers.logit_scale
        yield Project(x=self.selected_normed, parts=parts, scale=None if divisor is None else 1.0 / divisor)
        cap = self.numbers.logit_soft_cap or self.architecture.logit_soft_cap
        if cap is not None:
            yield SoftCap(x=self.logits, cap=cap)

    def _embedding_scale(self) -> float:
        if self.numbers.embedding_scale is not None:
            return self.numbers.embedding_scale
        return math.sqrt(self.numbers.width) if self.architecture.embedding_scale == "sqrt_width" else 1.0

    def _attention(self, layer_idx: int) -> Iterator[Operation]:
        numbers, cache = self.numbers, self.cache(layer_idx)
        block = f"blk.{layer_idx}"
        yield from self._pre_norm(f"{block}.attn_norm", layer_idx)
        required = self.architecture.requires_qkv_bias
        parts = tuple(
            self._part(f"{block}.attn_{out.name}", out, requires_bias=required) for out in (self.q, self.k, self.v)
        )
        yield Project(x=self.normed, parts=parts, layer_idx=layer_idx)
        q_norm, k_norm = f"{block}.attn_q_norm", f"{block}.attn_k_norm"
        if self.architecture.qk_norm == "rows":
            yield self._norm(q_norm, self.q, self.q, layer_idx)
            yield self._norm(k_norm, self.k, self.k, layer_idx)
        has_head_norms = self.architecture.qk_norm == "heads"
        yield RotateAndStore(
            q=self.q,
            k=self.k,
            v=self.v,
            num_heads=numbers.num_heads,
            cache=cache,
            rope=self.rope(is_local=cache.window is not None) if self._has_rope(layer_idx) else None,
            q_norm=f"{q_norm}.weight" if has_head_norms else None,
            k_norm=f"{k_norm}.weight" if has_head_norms else None,
            epsilon=numbers.norm_epsilon if has_head_norms else 0.0,
            temperature=self._temperature(),
            layer_idx=layer_idx,
        )
        yield Attend(
            q=self.q,
            out=self.attended,
            num_heads=numbers.num_heads,
            cache=cache,
            scale=self._attention_scale(),
            soft_cap=numbers.attention_soft_cap or self.architecture.attention_soft_cap,
            sinks=f"{block}.attn_sinks.weight" if self.architecture.has_sinks else None,
            layer_idx=layer_idx,
        )
        yield from self._join(f"{block}.attn_output", self.attended, f"{block}.post_attention_norm", layer_idx)

    def _feed_forward(self, layer_idx: int) -> Iterator[Operation]:
        block = f"blk.{layer_idx}"
        yield from self._pre_norm(f"{block}.{self.architecture.feed_forward_norm}", layer_idx)
        if self.numbers.num_experts:
            yield self._experts(block, layer_idx)
            return
        yield GatedProject(
            x=self.normed,
            gate=f"{block}.ffn_gate.weight",
            up=f"{block}.ffn_up.weight",
            out=self.gated,
            activation=self.architecture.activation,
            sensitive=self.architecture.has_sensitive_gate,
            layer_idx=layer_idx,
        )
        yield from self._join(f"{block}.ffn_down", self.gated, f"{block}.post_ffw_norm", layer_idx)

    def _experts(self, block: str, layer_idx: int) -> MixExperts:
        numbers = self.numbers

        def bias(name: str) -> str | None:
            return name if name in self.tensors else None

        return MixExperts(
            x=self.normed,
            router=self._part(f"{block}.ffn_gate_inp", self.scores),
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
            layer_idx=layer_idx,
        )

    def _pre_norm(self, name: str, layer_idx: int) -> Iterator[Operation]:
        if self.architecture.has_pre_norms:
            yield self._norm(name, self.hidden, self.normed, layer_idx)

    def _join(self, matrix: str, x: Buffer, post_norm: str, layer_idx: int) -> Iterator[Operation]:
        """The end of a branch: its last product, normalised where the family says so, added to the hidden state."""
        if self.architecture.has_post_norms:
            yield Project(x=x, parts=(self._part(matrix, self.branch),), layer_idx=layer_idx)
            yield self._norm(post_norm, self.branch, self.hidden, layer_idx, add=True)
        else:
            parts = (self._part(matrix, self.hidden),)
            yield Project(x=x, parts=parts, add=True, scale=self.numbers.residual_scale, layer_idx=layer_idx)

    def _norm(self, name: str, x: Buffer, out: Buffer, layer_idx: int | None, *, add: bool = False) -> Normalize:
        epsilon = self.numbers.norm_epsilon
        return Normalize(x=x, weight=f"{name}.weight", out=out, epsilon=epsilon, add=add, layer_idx=layer_idx)

    def _part(self, name: str, out: Buffer, *, requires_bias: bool = False) -> Part:
        bias = f"{name}.bias"
        has_bias = requires_bias or bias in self.tensors
        return Part(weight=f"{name}.weight", out=out, bias=bias if has_bias else None)

    def cache(self, layer_idx: int) -> KvLayer:
        """What layer layer_idx keeps of a token."""
        numbers = self.numbers
        window = numbers.window if self._is_local(layer_idx) else None
        return KvLayer(num_kv_heads=numbers.num_kv_heads, head_dim=numbers.head_dim, window=window)

    def _is_local(self, layer_idx: int) -> bool:
        period = self.architecture.global_every
        if period is None or self.numbers.window is None:
            return self.architecture.has_windows and self.numbers.window is not None
        match self.numbers.window_pattern:
            case tuple() as pattern:
                return pattern[layer_idx]
            case int() as own_period:
                period = own_period
        return (layer_idx + 1) % period != 0

    def _has_rope(self, layer_idx: int) -> bool:
        period = self.architecture.no_rope_every
        return period is None or (layer_idx + 1) % period != 0

    def _temperature(self) -> Temperature | None:
        scale = self.numbers.attention_temperature
        if scale is None:
            return None
        return Temperature(scale=scale, length=self.numbers.rope_scaling.original_context_length)

    def _rope(self, *, is_local: bool) -> Rope:
        numbers, architecture = self.numbers, self.architecture
        local_base = numbers.local_rope_base or architecture.local_rope_base
        if is_local and local_base is not None:
            return make_rope(dimensions=numbers.rope_dimensions, pairing=architecture.rope_pairing, base=local_base)
        return make_rope(
            dimensions=numbers.rope_dimensions,
            pairing=architecture.rope_pairing,
            base=numbers.rope_base or architecture.rope_base,
            scaling=numbers.rope_scaling,
            factors=self.factors,
            context_size=self.context_size,
            truncates_yarn=architecture.truncates_yarn,
        )

    def _attention_scale(self) -> float:
        if self.numbers.attention_scale is not None:
            return self.numbers.attention_scale
        widths = {rule.num_layers: rule.width_per_query for rule in self.architecture.scales_of_sizes}
        return 1.0 / math.sqrt(widths.get(self.numbers.num_layers, self.numbers.head_dim))


def _shape_of(name: str, tensors: Shapes) -> tuple[int, ...]:
    if name not in tensors:
        raise TensorError(f"The file has no tensor {name}; the model can't run without it.")
    shape = tensors[name]
    if not shape:
        raise TensorError(f"The tensor {name} has no dimensions.")
    return shape


def _expected_shapes(operation: Operation, vocab_size: int) -> Iterator[tuple[str, tuple[int, ...]]]:
    match operation:
        case Embed():
            yield operation.weight, (vocab_size, operation.out.width)
        case Normalize():
            yield operation.weight, (operation.x.width,)
        case Project():
            for part in operation.parts:
                yield part.weight, (part.out.width, operation.x.width)
                if part.bias is not None:
                    yield part.bias, (part.out.width,)
        case GatedProject():
            yield operation.gate, (operation.out.width, operation.x.width)
            yield operation.up, (operation.out.width, operation.x.width)
        case MixExperts():
            yield from _expert_shapes(operation)
        case RotateAndStore():
            for name in weights_of(operation):
                yield name, (operation.cache.head_dim,)
        case Attend(sinks=str(sinks)):
            yield sinks, (operation.num_heads,)
        case _:
            pass


def _expert_shapes(operation: MixExperts) -> Iterator[tuple[str, tuple[int, ...]]]:
    experts, x = operation.num_experts, operation.x.width
    yield operation.router.weight, (experts, x)
    if operation.router.bias is not None:
        yield operation.router.bias, (experts,)
    for weight, bias, rows, columns in (
        (operation.gate, operation.gate_bias, operation.width, x),
        (operation.up, operation.up_bias, operation.width, x),
        (operation.down, operation.down_bias, operation.out.width, operation.width),
    ):
        yield weight, (experts, rows, columns)
        if bias is not None:
            yield bias, (experts, rows)


def _check_shapes(operation: Operation, tensors: Shapes, hyperparameters: Hyperparameters) -> None:
    for name, expected in _expected_shapes(operation, _shape_of(EMBEDDING, tensors)[0]):
        if name not in tensors and operation.layer_idx is not None:
            raise TensorError(
                f"The file has no tensor {name}, though {hyperparameters.architecture}.block_count says"
                f" {hyperparameters.num_layers} layers."
            )
        shape = _shape_of(name, tensors)
        if shape != expected:
            raise TensorError(
                f"The tensor {name} is {_times(shape)}; by the file's metadata ({hyperparameters.architecture}.*)"
                f" {_times(expected)} was expected."
            )


def _times(shape: tuple[int, ...]) -> str:
    return " x ".join(str(size) for size in shape) + (" values" if len(shape) == 1 else "")


def _check_all_used(program: Program, tensors: Shapes, hyperparameters: Hyperparameters) -> None:
    """A tensor that no operation reads is mathematics that this architecture lacks: the text would be wrong."""
    used = set(program.weights())
    unused = [
        name for name in tensors if name not in used and name not in _TABLES and not name.endswith(_REPEATED_SUFFIX)
    ]
    if unused:
        others = f" and {len(unused) - 1} more" if len(unused) > 1 else ""
        raise ArchitectureError(
            f"The file holds the tensor {quoted(unused[0])}{others}, which a model of the architecture"
            f" {hyperparameters.architecture} with {hyperparameters.num_layers} layers doesn't use:"
            " without it the answers would be wrong."
        )
