"""What stands in a layer where others have attention: the operations of recurrent layers.

Owns their tensors' names and the order of operations, up to the last product, which joins the hidden state as
attention's does (attentions.py).  Does not know how an operation is computed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal, Protocol

from models.buffers import Buffer
from models.errors import ArchitectureError
from models.hyperparameters import Hyperparameters
from models.program import Gate, Normalize, Operation, Part, Project
from models.recurrence import Convolve, DeltaRule, Separate, StateLayer

MixerKind = Literal["short_convolution", "delta_rule", "grouped_delta_rule"]
MakePart = Callable[[str, Buffer], Part]

DELTA_EPSILON = 1e-6  # beside the sums of squares of q and k; no file says it


class Mixer(Protocol):
    """A recurrent layer's own part.  out: what it gives; out_matrix: the last product's name in its layer."""

    @property
    def state(self) -> StateLayer: ...

    @property
    def out(self) -> Buffer: ...

    @property
    def out_matrix(self) -> str: ...

    def operations(self, x: Buffer, layer_idx: int, part: MakePart) -> Iterator[Operation]:
        """From the layer's normalised input to `out`."""
        ...


@dataclass(frozen=True)
class ShortConvolution:
    """c * convolution(b * x), where one product gives b, c and x (LFM2); see fused_tensors.py."""

    state: StateLayer
    b: Buffer
    c: Buffer
    x: Buffer
    out: Buffer
    out_matrix: str = "shortconv.out_proj"

    @staticmethod
    def of(numbers: Hyperparameters) -> ShortConvolution:
        names = ("b", "c", "x", "a")
        b, c, x, out = (Buffer(name=f"conv.{name}", width=numbers.width) for name in names)
        if numbers.convolution_length is None:
            raise _lacking(numbers, "shortconv.l_cache")
        state = StateLayer(num_inputs=numbers.convolution_length - 1, channels=numbers.width)
        return ShortConvolution(state=state, b=b, c=c, x=x, out=out)

    def operations(self, x: Buffer, layer_idx: int, part: MakePart) -> Iterator[Operation]:
        block = f"blk.{layer_idx}.shortconv"
        parts = (part(f"{block}.in_b", self.b), part(f"{block}.in_c", self.c), part(f"{block}.in_x", self.x))
        yield Project(x=x, parts=parts, layer_idx=layer_idx)
        yield Convolve(
            x=self.x,
            weight=f"{block}.conv.weight",
            out=self.out,
            state=self.state,
            before=self.b,
            after=self.c,
            layer_idx=layer_idx,
        )


@dataclass(frozen=True)
class GatedDeltaNet:
    """The gated delta rule behind a short convolution, its heads normalised and gated (Qwen 3.5).

    both: where one product gives what is learnt and what is forgotten, group by group of the heads that share a key;
    these heads stand together then (Qwen 3 Next).
    """

    state: StateLayer
    num_key_heads: int
    epsilon: float
    mixed: Buffer
    convolved: Buffer
    decay: Buffer
    learn: Buffer
    heads: Buffer
    out: Buffer
    both: Buffer | None = None
    out_matrix: str = field(default="ssm_out")

    @staticmethod
    def of(numbers: Hyperparameters, *, is_grouped: bool = False) -> GatedDeltaNet:
        delta, length = numbers.delta, numbers.convolution_length
        if delta is None or length is None:
            raise _lacking(numbers, "ssm.inner_size" if delta is None else "ssm.conv_kernel")
        value_width = delta.num_heads * delta.value_dim
        channels = 2 * delta.num_key_heads * delta.key_dim + value_width
        return GatedDeltaNet(
            state=StateLayer(
                num_inputs=length - 1,
                channels=channels,
                num_heads=delta.num_heads,
                key_dim=delta.key_dim,
                value_dim=delta.value_dim,
            ),
            num_key_heads=delta.num_key_heads,
            epsilon=numbers.norm_epsilon,
            mixed=Buffer(name="delta.m", width=channels),
            convolved=Buffer(name="delta.c", width=channels),
            decay=Buffer(name="delta.g", width=delta.num_heads),
            learn=Buffer(name="delta.b", width=delta.num_heads),
            heads=Buffer(name="delta.o", width=value_width),
            out=Buffer(name="delta.z", width=value_width),
            both=Buffer(name="delta.bg", width=2 * delta.num_heads) if is_grouped else None,
        )

    @staticmethod
    def grouped(numbers: Hyperparameters) -> GatedDeltaNet:
        return GatedDeltaNet.of(numbers, is_grouped=True)

    def operations(self, x: Buffer, layer_idx: int, part: MakePart) -> Iterator[Operation]:
        block = f"blk.{layer_idx}"
        parts = [part(f"{block}.attn_qkv", self.mixed), part(f"{block}.attn_gate", self.out)]
        if self.both is None:
            parts += [part(f"{block}.ssm_alpha", self.decay), part(f"{block}.ssm_beta", self.learn)]
        else:
            parts.append(part(f"{block}.ssm_ba", self.both))
        yield Project(x=x, parts=tuple(parts), layer_idx=layer_idx)
        if self.both is not None:
            group = self.state.num_heads // self.num_key_heads
            yield Separate(x=self.both, first=self.learn, second=self.decay, run=group, layer_idx=layer_idx)
        yield Convolve(
            x=self.mixed,
            weight=f"{block}.ssm_conv1d.weight",
            out=self.convolved,
            state=self.state,
            activation="silu",
            layer_idx=layer_idx,
        )
        yield DeltaRule(
            x=self.convolved,
            decay=self.decay,
            learn=self.learn,
            rate=f"{block}.ssm_a",
            shift=f"{block}.ssm_dt.bias",
            out=self.heads,
            num_key_heads=self.num_key_heads,
            is_grouped=self.both is not None,
            epsilon=DELTA_EPSILON,
            state=self.state,
            layer_idx=layer_idx,
        )
        yield Normalize(
            x=self.heads,
            weight=f"{block}.ssm_norm.weight",
            out=self.heads,
            epsilon=self.epsilon,
            heads=self.state.num_heads,
            layer_idx=layer_idx,
        )
        yield Gate(gate=self.out, up=self.heads, activation="silu", layer_idx=layer_idx)


_MIXERS: Mapping[MixerKind, Callable[[Hyperparameters], Mixer]] = MappingProxyType(
    {
        "short_convolution": ShortConvolution.of,
        "delta_rule": GatedDeltaNet.of,
        "grouped_delta_rule": GatedDeltaNet.grouped,
    }
)


def make_mixer(kind: MixerKind, numbers: Hyperparameters) -> Mixer:
    """The mixer of a model's recurrent layers.  Raises ArchitectureError naming the key that its file lacks."""
    return _MIXERS[kind](numbers)


def _lacking(numbers: Hyperparameters, key: str) -> ArchitectureError:
    return ArchitectureError(
        f"The file's metadata lacks {numbers.architecture}.{key}, which a model of that architecture can't run without."
    )
