"""The step program: what one forward pass of a model does, as a list of operations on named buffers.

Owns the operations and the rules of a program.  Does not know files, devices or how an operation is computed:
a device binds a program (see runtime/devices), an architecture lowers to one (see lowering.py).

Every buffer holds one float32 row a token.  Shapes below: T tokens of a batch, n tokens whose logits are wanted.
Weights are named as in the GGUF file; a matrix is [rows = outputs, columns = inputs].
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from models.buffers import Buffer
from models.recurrence import Convolve, DeltaRule, Separate, StateLayer, recurrence_weights

Activation = Literal["silu", "gelu_tanh", "clamped_swiglu", "sigmoid", "relu_squared"]
"""What becomes of gate g and up u: silu(g) * u; gelu(g) * u in the tanh form; min(g, 7) * sigmoid(1.702 * min(g, 7)) *
(1 + u between -7 and 7) (OpenAI's open models); sigmoid(g) * u; max(g, 0) ** 2 * u."""
Pairing = Literal["halves", "neighbours"]
Weighing = Literal["softmax", "softmax_of_all", "sigmoid", "normalized_sigmoid"]


@dataclass(frozen=True, kw_only=True)
class Rope:
    """Rotary position embedding: pair i of a head turns by position * frequencies[i] radians.

    pairing: "halves" pairs element i with i + dimensions/2 (NeoX), "neighbours" 2i with 2i + 1 (the original).
    Elements from `dimensions` on are left alone.  magnitude multiplies cosine and sine (YaRN's attention factor).
    """

    dimensions: int
    pairing: Pairing
    frequencies: tuple[float, ...]
    magnitude: float = 1.0


@dataclass(frozen=True, kw_only=True)
class Temperature:
    """Queries far into a text grow by 1 + scale * ln(1 + floor(position / length)) (Llama 4, Ministral 3)."""

    scale: float
    length: int


@dataclass(frozen=True, kw_only=True)
class KvLayer:
    """What one layer keeps of every token: K and V of num_kv_heads heads of head_dim values."""

    num_kv_heads: int
    head_dim: int
    window: int | None = None  # a token sees itself and the window - 1 tokens before it


@dataclass(frozen=True, kw_only=True)
class Embed:
    """out[t] = weight[token_ids[t]] * scale."""

    weight: str
    out: Buffer
    scale: float = 1.0
    layer_idx: int | None = None


@dataclass(frozen=True, kw_only=True)
class Normalize:
    """out = x / sqrt(mean(x ** 2) + epsilon) * weight, row by row; with `add`, out += that (a norm after a branch).

    is_centred: the mean of x is taken off it first (LayerNorm, Ba et al. 2016).  bias: added to the result.
    heads: a row is so many heads, each normalised by itself; weight and bias have the values of one, or of all of them
    (has_own_weights).  weight None: all are 1.
    """

    x: Buffer
    weight: str | None
    out: Buffer
    epsilon: float
    bias: str | None = None
    is_centred: bool = False
    heads: int | None = None
    has_own_weights: bool = False
    add: bool = False
    layer_idx: int | None = None


@dataclass(frozen=True, kw_only=True)
class Part:
    """One matrix of a product: out = x @ weight.T + bias."""

    weight: str
    out: Buffer
    bias: str | None = None


@dataclass(frozen=True, kw_only=True)
class Project:
    """Products that share their input, done in one pass; with `add`, each is added to what its out holds.

    scale: each product, with its bias, is multiplied by it before it is stored or added.
    is_coarse: devices may round this input more than others': the answers hardly suffer.
    """

    x: Buffer
    parts: tuple[Part, ...]
    add: bool = False
    scale: float | None = None
    is_coarse: bool = False
    layer_idx: int | None = None


@dataclass(frozen=True, kw_only=True)
class GatedProject:
    """out = activation(x @ gate.T) * (x @ up.T).

    is_coarse: as a Project's.
    """

    x: Buffer
    gate: str
    up: str
    out: Buffer
    activation: Activation
    is_coarse: bool = False
    layer_idx: int | None = None


@dataclass(frozen=True, kw_only=True)
class Gate:
    """gate = activation(gate) * up, in place: a GatedProject's end, where something else is added to its products.

    up None: ones, a feed-forward without a gate.  up_start: the first of up's values that belongs to the gate, where up
    is wider.
    """

    gate: Buffer
    up: Buffer | None
    activation: Activation
    up_start: int = 0
    layer_idx: int | None = None


@dataclass(frozen=True, kw_only=True)
class MixExperts:
    """Adds to out what the num_used experts of the largest scores make of x, for every token its own.

    add False: out becomes that.  router_x: what stands in x's place in the scores.
    Scores are (router_x @ router.T + router's bias) * router_scale (of equal ones the first wins).  weighing says what
    the chosen ones' results are multiplied by: the softmax of their scores; the chosen ones' part of the softmax of all
    scores; the sigmoid of each score; the same divided by the chosen ones' sum.  Each factor is multiplied by scale and
    by the expert's number in expert_scale.  preference: numbers that are added to all factors while experts are chosen.
    The experts give down(activation(gate x, up x)).  gate, up, down: matrices [experts, rows, columns]; their biases
    [experts, rows], where there are any.  width: rows of gate and up.
    """

    x: Buffer
    router: Part
    gate: str
    up: str
    down: str
    gate_bias: str | None = None
    up_bias: str | None = None
    down_bias: str | None = None
    out: Buffer
    num_experts: int
    num_used: int
    width: int
    activation: Activation
    weighing: Weighing = "softmax"
    preference: str | None = None
    expert_scale: str | None = None
    scale: float = 1.0
    router_x: Buffer | None = None
    router_scale: float = 1.0
    add: bool = True
    layer_idx: int


@dataclass(frozen=True, kw_only=True)
class RotateAndStore:
    """Normalises (where weights are given) and rotates each head of q in place and of k; stores k and v in the cache.

    q: [T, num_heads * head_dim], k, v: [T, num_kv_heads * head_dim].  q_norm, k_norm: weights of head_dim values.
    norms_after: heads are rotated first.  rope None: no rotation in this layer.  temperature: what q is multiplied by
    besides, position by position.
    k, v None: only q is rotated, and nothing is stored: the layer attends to what another one has stored.
    """

    q: Buffer
    k: Buffer | None
    v: Buffer | None
    num_heads: int
    cache: KvLayer
    rope: Rope | None
    q_norm: str | None = None
    k_norm: str | None = None
    epsilon: float = 0.0
    norms_after: bool = False
    temperature: Temperature | None = None
    layer_idx: int


@dataclass(frozen=True, kw_only=True)
class Attend:
    """out = softmax(scale * q K^T, causal and within the layer's window) V for every head, from the layer's cache.

    source_idx: the layer whose cache it is; None: layer_idx's own.
    Query head h reads KV head h // (num_heads // num_kv_heads).  soft_cap: every score s becomes
    soft_cap * tanh(s / soft_cap) before the softmax.  sinks: a score for each head that takes part in its softmax and
    has no value (Xiao et al. 2023).
    """

    q: Buffer
    out: Buffer
    num_heads: int
    cache: KvLayer
    scale: float
    soft_cap: float | None = None
    sinks: str | None = None
    source_idx: int | None = None
    layer_idx: int


@dataclass(frozen=True, kw_only=True)
class Scale:
    """x = x * weight, in place: weight is a single number."""

    x: Buffer
    weight: str
    layer_idx: int | None = None


@dataclass(frozen=True, kw_only=True)
class WeighRows:
    """x = x * sigmoid(by), in place: by has a single number for each row."""

    x: Buffer
    by: Buffer
    layer_idx: int | None = None


@dataclass(frozen=True, kw_only=True)
class SelectOutputs:
    """out[i] = x[outputs[i]]: from here on only the n rows whose logits are wanted."""

    x: Buffer
    out: Buffer
    layer_idx: int | None = None


@dataclass(frozen=True, kw_only=True)
class SoftCap:
    """x = cap * tanh(x / cap), element by element, in place."""

    x: Buffer
    cap: float
    layer_idx: int | None = None


Operation = (
    Embed
    | Normalize
    | Project
    | GatedProject
    | Gate
    | MixExperts
    | RotateAndStore
    | Attend
    | Convolve
    | DeltaRule
    | Separate
    | Scale
    | WeighRows
    | SelectOutputs
    | SoftCap
)


@dataclass(frozen=True, kw_only=True)
class Program:
    """One forward pass.  layers[i] is what layer i keeps; operations stand in order, those of layer i with layer_idx i.

    A layer keeps keys and values of every token, or a state that goes on from token to token; one that attends to what
    another layer keeps has none of its own (None).
    hidden: the buffer that crosses from one layer to the next; logits: [n, vocab_size] at the end.
    """

    operations: tuple[Operation, ...]
    layers: tuple[KvLayer | StateLayer | None, ...]
    hidden: Buffer
    logits: Buffer
    vocab_size: int

    @property
    def kv_layers(self) -> dict[int, KvLayer]:
        """The layers that keep keys and values."""
        return {idx: layer for idx, layer in enumerate(self.layers) if isinstance(layer, KvLayer)}

    @property
    def state_layers(self) -> dict[int, StateLayer]:
        """The layers that keep a state."""
        return {idx: layer for idx, layer in enumerate(self.layers) if isinstance(layer, StateLayer)}

    def buffers(self) -> dict[str, Buffer]:
        """Every buffer by name."""
        found: dict[str, Buffer] = {}
        for operation in self.operations:
            for buffer in buffers_of(operation):
                if found.setdefault(buffer.name, buffer) != buffer:
                    raise AssertionError(f"buffer {buffer.name} has two widths")
        return found

    def weights(self) -> list[str]:
        """Names of all weights, in the order of use, each once."""
        return list(dict.fromkeys(name for operation in self.operations for name in weights_of(operation)))


def buffers_of(operation: Operation) -> Iterator[Buffer]:
    """The buffers that an operation reads or writes."""
    for value in vars(operation).values():
        if isinstance(value, Buffer):
            yield value
        elif isinstance(value, Part):
            yield value.out
        elif isinstance(value, tuple):
            yield from (part.out for part in value if isinstance(part, Part))


def weights_of(operation: Operation) -> Iterator[str]:
    """The weights that an operation reads, in order."""
    match operation:
        case Embed(weight=weight) | Scale(weight=weight):
            yield weight
        case Normalize(weight=weight, bias=bias):
            yield from (name for name in (weight, bias) if name is not None)
        case Project(parts=parts):
            for part in parts:
                yield part.weight
                if part.bias is not None:
                    yield part.bias
        case GatedProject(gate=gate, up=up):
            yield from (gate, up)
        case MixExperts(router=router):
            names = (router.weight, router.bias, operation.gate, operation.gate_bias, operation.up, operation.up_bias)
            names += (operation.down, operation.down_bias, operation.preference, operation.expert_scale)
            yield from (name for name in names if name is not None)
        case RotateAndStore(q_norm=q_norm, k_norm=k_norm):
            yield from (name for name in (q_norm, k_norm) if name is not None)
        case Attend(sinks=str(sinks)):
            yield sinks
        case Convolve() | DeltaRule():
            yield from recurrence_weights(operation)
        case _:
            pass


def multiplied_weights(operations: Iterable[Operation]) -> frozenset[str]:
    """The matrices of products, those of experts left out."""
    found: set[str] = set()
    for operation in operations:
        match operation:
            case Project(parts=parts):
                found.update(part.weight for part in parts)
            case GatedProject(gate=gate, up=up):
                found |= {gate, up}
            case _:
                pass
    return frozenset(found)
