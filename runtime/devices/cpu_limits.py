"""What programs cost on the CPU, and what it gives at most, in the engine's terms.

Owns the translation from kernels_cpu.  Does not know how anything is counted or measured.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from kernels_cpu.costs import count_costs as count_cpu_costs
from kernels_cpu.isa import choose
from kernels_cpu.kv_layout import CacheTypes
from kernels_cpu.limits import LimitsProbe as CpuLimitsProbe
from models.segments import Segment
from runtime.devices.binding import DeviceOptions
from runtime.devices.costs import LayerCost, LimitsProbe, MachineLimits, RowCost, StepCosts
from runtime.devices.cpu import device_errors

if TYPE_CHECKING:
    from models.gguf_file import ModelFile


def count_costs(segment: Segment, file: ModelFile, options: DeviceOptions) -> StepCosts:
    """The costs of a segment bound with these options."""
    with device_errors():
        cache_types = CacheTypes.named(options.cache_type_k, options.cache_type_v)
        costs = count_cpu_costs(segment, file.tensors, options.isa, options.activations, cache_types)
    return StepCosts(
        tokens=RowCost(**asdict(costs.tokens)),
        outputs=RowCost(**asdict(costs.outputs)),
        embedding_bytes=costs.embedding_bytes,
        layers=tuple(LayerCost(**asdict(layer)) for layer in costs.layers),
    )


def chosen_isa(isa: str) -> str:
    """The instruction-set level that `isa` (perhaps "auto") means on this machine."""
    with device_errors():
        return choose(isa).name


class _Probe:
    def __init__(self, probe: CpuLimitsProbe) -> None:
        self._probe = probe

    def measure(self, threads: int) -> MachineLimits:
        return MachineLimits(**asdict(self._probe.measure(threads)))

    def close(self) -> None:
        self._probe.close()


def open_probe(
    *, isa: str, kernel_folder: Path, arena_bytes: int, progress: Callable[[str, int, int], None]
) -> LimitsProbe:
    """Makes ready to measure the CPU's limits.  arena_bytes: memory to read, several times the last cache.

    progress(stage, done, total) is called from this thread; what it raises ends it.
    """
    with device_errors():
        return _Probe(
            CpuLimitsProbe(
                kernel_folder.expanduser(), isa, arena_bytes, lambda done, total: progress("kernels", done, total)
            )
        )
