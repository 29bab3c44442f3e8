"""Whether a file's tensors are what a program needs: each there, of the right shape, and none left over.

Owns the shapes that operations expect of their weights.  Does not know how a file stores a tensor.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from models.errors import ArchitectureError, TensorError, quoted
from models.hyperparameters import Hyperparameters
from models.program import (
    Attend,
    Embed,
    GatedProject,
    MixExperts,
    Normalize,
    Operation,
    Program,
    Project,
    RotateAndStore,
    Scale,
    weights_of,
)
from models.recurrence import Convolve, DeltaRule, recurrence_shapes
from models.rope import ROPE_FREQS, ROPE_LONG, ROPE_SHORT

Shapes = Mapping[str, tuple[int, ...]]
"""Each tensor's shape by name, a matrix as (rows, columns)."""

EMBEDDING = "token_embd.weight"
# Frequency tables are read when the program is made; those of old files' layers only repeat the metadata.
_TABLES = (ROPE_FREQS, ROPE_SHORT, ROPE_LONG)
_REPEATED_SUFFIX = ".attn_rot_embd.weight"


def shape_of(name: str, tensors: Shapes) -> tuple[int, ...]:
    """The shape of a tensor that must be there.  Raises TensorError."""
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
        case Scale(weight=weight):
            yield weight, (1,)
        case Normalize():
            heads = operation.heads or 1
            one = (operation.x.width // heads,)
            yield from ((name, (heads, *one) if operation.has_own_weights else one) for name in weights_of(operation))
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
        case Convolve() | DeltaRule():
            yield from recurrence_shapes(operation)
        case _:
            pass


def _expert_shapes(operation: MixExperts) -> Iterator[tuple[str, tuple[int, ...]]]:
    experts, x = operation.num_experts, operation.x.width
    yield operation.router.weight, (experts, x)
    if operation.router.bias is not None:
        yield operation.router.bias, (experts,)
    yield from ((name, (experts,)) for name in (operation.preference, operation.expert_scale) if name is not None)
    for weight, bias, rows, columns in (
        (operation.gate, operation.gate_bias, operation.width, x),
        (operation.up, operation.up_bias, operation.width, x),
        (operation.down, operation.down_bias, operation.out.width, operation.width),
    ):
        yield weight, (experts, rows, columns)
        if bias is not None:
            yield bias, (experts, rows)


def check_shapes(operation: Operation, tensors: Shapes, hyperparameters: Hyperparameters) -> None:
    """Raises TensorError for a weight that is missing or has another shape than the numbers say."""
    for name, expected in _expected_shapes(operation, shape_of(EMBEDDING, tensors)[0]):
        if name not in tensors and operation.layer_idx is not None:
            raise TensorError(
                f"The file has no tensor {name}, though {hyperparameters.architecture}.block_count says"
                f" {hyperparameters.num_layers} layers."
            )
        shape = shape_of(name, tensors)
        if shape != expected and (1, *shape) != expected:  # some converters write a single row as a list
            raise TensorError(
                f"The tensor {name} is {_times(shape)}; by the file's metadata ({hyperparameters.architecture}.*)"
                f" {_times(expected)} was expected."
            )


def _times(shape: tuple[int, ...]) -> str:
    return " x ".join(str(size) for size in shape) + (" values" if len(shape) == 1 else "")


def check_all_used(program: Program, tensors: Shapes, hyperparameters: Hyperparameters) -> None:
    """A tensor that no operation reads is mathematics that this architecture lacks: the text would be wrong."""
    used = set(program.weights())
    first, spare = hyperparameters.num_layers, hyperparameters.num_spare_layers
    not_run = tuple(f"blk.{layer_idx}." for layer_idx in range(first, first + spare))
    unused = [
        name
        for name in tensors
        if name not in used
        and name not in _TABLES
        and not name.endswith(_REPEATED_SUFFIX)
        and not name.startswith(not_run)
    ]
    if unused:
        others = f" and {len(unused) - 1} more" if len(unused) > 1 else ""
        raise ArchitectureError(
            f"The file holds the tensor {quoted(unused[0])}{others}, which a model of the architecture"
            f" {hyperparameters.architecture} with {hyperparameters.num_layers} layers doesn't use:"
            " without it the answers would be wrong."
        )
