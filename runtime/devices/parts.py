"""Binds the parts of a program, each to its device, and joins them.

Owns the joining.  Does not know how many layers are wise (runtime/planner.py) nor which are where (pricing.py).
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import TYPE_CHECKING

from runtime.devices import cpu
from runtime.devices.binding import Binding, CardPlace, DeviceOptions
from runtime.devices.pricing import Split

if TYPE_CHECKING:
    from models.gguf_file import ModelFile

Progress = Callable[[str, int, int], None]


def bind(
    parts: Split, file: ModelFile, options: DeviceOptions, progress: Progress, *, card: CardPlace | None = None
) -> Binding:
    """Makes everything ready; the file may be closed after it.

    progress(stage, done, total) is called from this thread; what it raises ends the binding.  card: for the GPU's
    part, the first if none is named.  Raises CapacityError and DeviceError.
    """
    if parts.gpu is None:
        assert parts.cpu is not None, "a program has operations"
        return cpu.bind(parts.cpu, file, options, progress)
    from runtime.devices import gpu
    from runtime.devices.hybrid import HybridBinding

    with ExitStack() as stack:
        # The card first: it is the one that may have no room, and the CPU's kernels may take long.
        upper = gpu.bind(parts.gpu, file, options, progress, card=card or CardPlace())
        stack.callback(upper.close)
        binding: Binding = upper
        if parts.cpu is not None:
            binding = HybridBinding(cpu.bind(parts.cpu, file, options, progress), upper, parts.links)
        stack.pop_all()
        return binding
