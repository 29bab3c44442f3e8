"""What a program cut in two reserves and moves on each side, without reserving it.

Owns the two parts: which operations run where when so many of the last layers are on the GPU.  Does not know what is
free or what is chosen.  The GPU's kernels are only imported when a part for it is priced.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from models.program import Embed, MixExperts, Program
from models.segments import Link, Segment, divide, feeds_experts
from runtime.devices import cpu, cpu_limits
from runtime.devices.binding import PAGE_SIZE, DeviceMemory, DeviceOptions
from runtime.devices.costs import LayerCost, RowCost, StepCosts

if TYPE_CHECKING:
    from models.gguf_file import ModelFile


@dataclass(frozen=True, kw_only=True)
class Split:
    """The parts of a program; None where a device has nothing to do.  links: their runs in order, by "cpu" and "gpu".

    With all layers on the GPU the embedding is there as well.
    """

    cpu: Segment | None
    gpu: Segment | None
    links: tuple[Link, ...]


def split(program: Program, gpu_layers: int, cpu_experts: int = 0) -> Split:
    """The parts with so many of the last layers, and the head, on the GPU; 0: nothing there.

    cpu_experts: of the first so many layers the experts are on the CPU, wherever the rest of the layer is.
    """
    num_layers = len(program.layers)
    assert 0 <= gpu_layers <= num_layers, "more layers than there are"
    owners = []
    for idx, operation in enumerate(program.operations):
        layer_idx = operation.layer_idx
        if layer_idx is None:
            is_on_cpu = gpu_layers < num_layers if isinstance(operation, Embed) else gpu_layers == 0
        else:
            is_on_cpu = layer_idx < num_layers - gpu_layers
            is_on_cpu |= layer_idx < cpu_experts and feeds_experts(program, idx)
        owners.append("cpu" if is_on_cpu else "gpu")
    chain = divide(program, owners)
    return Split(cpu=chain.segments.get("cpu"), gpu=chain.segments.get("gpu"), links=chain.links)


def expert_layers(program: Program) -> int:
    """How many of the first layers hold all the experts there are; 0: the model has none."""
    found = [operation.layer_idx for operation in program.operations if isinstance(operation, MixExperts)]
    return max(found) + 1 if found else 0


def price_cpu(segment: Segment, file: ModelFile, options: DeviceOptions) -> DeviceMemory:
    """What the CPU's part reserves, to the byte.  Raises DeviceError for what this machine can't run."""
    return cpu.price(segment, file, options)


def price_gpu(segment: Segment, file: ModelFile, options: DeviceOptions) -> DeviceMemory:
    """What the GPU's part reserves, to the byte.  Raises DeviceError for what the GPU's kernels can't run."""
    from runtime.devices import gpu

    return gpu.price(segment, file, options)


def costs_cpu(segment: Segment, file: ModelFile, options: DeviceOptions) -> StepCosts:
    """What the CPU's part moves and multiplies."""
    return cpu_limits.count_costs(segment, file, options)


def _used_shares(segment: Segment) -> dict[str, float]:
    """Of the matrices that hold experts, what one token uses."""
    mixed = [operation for operation in segment.operations if isinstance(operation, MixExperts)]
    return {name: op.num_used / op.num_experts for op in mixed for name in (op.gate, op.up, op.down)}


def costs_gpu(segment: Segment, file: ModelFile, options: DeviceOptions) -> StepCosts:
    """What the GPU's part moves for a token: its weights once, of experts those that it uses, keys and values, and one
    row of the embedding.

    Multiply-adds are left out: decode is far from the card's limit for them.
    """
    from kernels_gpu.plan import page_bytes
    from kernels_gpu.planning import make_plan
    from runtime.devices.gpu import gpu_limits

    body = replace(
        segment, runs=(tuple(operation for operation in segment.operations if not isinstance(operation, Embed)),)
    )
    plan = make_plan(body, file.tensors, gpu_limits(options), options.activations)
    shares = _used_shares(segment)
    weight_bytes = sum(
        round(matrix.layout.size_bytes * shares.get(name, 1.0)) for name, matrix in plan.matrices.items()
    )
    weight_bytes += 4 * sum(plan.vectors.values())
    cache_types = (options.cache_type_k, options.cache_type_v)
    layers = [
        LayerCost(
            position_bytes=page_bytes(layer.num_kv_heads, layer.head_dim, cache_types) // PAGE_SIZE,
            multiply_adds_per_position=0,
            window=layer.window,
        )
        for layer in segment.layers.values()
    ]
    nothing = RowCost(weight_bytes=0, byte_multiply_adds=0, float_multiply_adds=0)
    return StepCosts(
        tokens=replace(nothing, weight_bytes=weight_bytes), outputs=nothing, embedding_bytes=0, layers=tuple(layers)
    )
