"""What a program cut in two reserves on each side, without reserving it.

Owns the two parts: which operations run where when so many of the last layers are on the GPU.  Does not know what is
free or what is chosen.  The GPU's kernels are only imported when a part for it is priced.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING

from models.program import Program
from models.segments import Segment, cut, whole
from runtime.devices import cpu
from runtime.devices.binding import DeviceMemory, DeviceOptions
from runtime.errors import DeviceError

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
    layers = program.layers[: len(segment.layers)]
    return replace(program, operations=segment.operations, layers=layers, logits=program.hidden)


def price_cpu(segment: Segment, file: ModelFile, options: DeviceOptions) -> DeviceMemory:
    """What the CPU's part reserves, to the byte.  Raises DeviceError for what this machine can't run."""
    return cpu.price(cpu_program(segment), file, options)


def price_gpu(segment: Segment, file: ModelFile, options: DeviceOptions) -> DeviceMemory:
    """What the GPU's part reserves, to the byte.  Raises DeviceError for what the GPU's kernels can't run."""
    from kernels_gpu.binding import GpuOptions, bill
    from kernels_gpu.plan import GpuLimits, UnsupportedError

    if (options.cache_type_k, options.cache_type_v) != ("f16", "f16"):
        raise DeviceError(
            "The GPU kernels keep keys and values as f16 alone: leave -ctk and -ctv out, or compute on the CPU."
        )
    try:
        made = bill(segment, file, GpuLimits(**asdict(options.limits)), GpuOptions(activations=options.activations))
    except UnsupportedError as error:
        text = str(error)
        raise DeviceError(f"{text[:1].upper()}{text[1:].rstrip('.')}.") from error
    return DeviceMemory(**asdict(made))
