"""What a program cut in two reserves and moves on each side, without reserving it.

Owns the two parts: which operations run where when so many of the last layers are on the GPU.  Does not know what is
free or what is chosen.  The GPU's kernels are only imported when a part for it is priced.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from models.program import Embed, Program
from models.segments import Segment, cut, whole
from runtime.devices import cpu, cpu_limits
from runtime.devices.binding import PAGE_SIZE, DeviceMemory, DeviceOptions
from runtime.devices.costs import LayerCost, RowCost, StepCosts

if TYPE_CHECKING:
    from models.gguf_file import ModelFile


@dataclass(frozen=True, kw_only=True)
class Split:
    """The two parts of a program; None where a device has nothing to do.

    With all layers on the GPU the embedding is there as well, and nothing crosses.
    """

    cpu: Segment | None
    gpu: Segment | None


def split(program: Program, gpu_layers: int) -> Split:
    """The parts with so many of the last layers, and the head, on the GPU; 0: nothing there."""
    num_layers = len(program.layers)
    assert 0 <= gpu_layers <= num_layers, "more layers than there are"
    if gpu_layers == 0:
        return Split(cpu=whole(program), gpu=None)
    if gpu_layers == num_layers:
        return Split(cpu=None, gpu=whole(program))
    first, rest = cut(program, num_layers - gpu_layers)
    return Split(cpu=first, gpu=rest)


def cpu_program(segment: Segment) -> Program:
    """A segment that begins with the embedding, as a program of its own.

    One without the head leaves the hidden state of every token where the logits would be.
    """
    program = segment.program
    if segment.gives_logits:
        return program
    layers = program.layers[: len({operation.layer_idx for operation in segment.operations} - {None})]
    hidden = program.hidden
    return replace(program, operations=segment.operations, layers=layers, logits=hidden, vocab_size=hidden.width)


def cpu_options(segment: Segment, options: DeviceOptions) -> DeviceOptions:
    """What such a program is bound with: without the head, it gives a row for each token."""
    if segment.gives_logits:
        return options
    return replace(options, limits=replace(options.limits, max_outputs=options.limits.max_batch_tokens))


def price_cpu(segment: Segment, file: ModelFile, options: DeviceOptions) -> DeviceMemory:
    """What the CPU's part reserves, to the byte.  Raises DeviceError for what this machine can't run."""
    return cpu.price(cpu_program(segment), file, cpu_options(segment, options))


def price_gpu(segment: Segment, file: ModelFile, options: DeviceOptions) -> DeviceMemory:
    """What the GPU's part reserves, to the byte.  Raises DeviceError for what the GPU's kernels can't run."""
    from runtime.devices import gpu

    return gpu.price(segment, file, options)


def costs_cpu(segment: Segment, file: ModelFile, options: DeviceOptions) -> StepCosts:
    """What the CPU's part moves and multiplies."""
    return cpu_limits.count_costs(cpu_program(segment), file, options)


def costs_gpu(segment: Segment, file: ModelFile, options: DeviceOptions) -> StepCosts:
    """What the GPU's part moves for a token: its weights once, of the embedding one row, keys and values.

    Multiply-adds are left out: decode is far from the card's limit for them.
    """
    from kernels_gpu.plan import make_plan, page_bytes
    from runtime.devices.gpu import gpu_limits

    body = replace(
        segment, operations=tuple(operation for operation in segment.operations if not isinstance(operation, Embed))
    )
    plan = make_plan(body, file.tensors, gpu_limits(options), options.activations)
    weight_bytes = sum(matrix.layout.size_bytes for matrix in plan.matrices.values())
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
