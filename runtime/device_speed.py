"""How much of what the memory gives a token takes: the bytes that a pass reads, and how fast they can be read.

Owns the joining of costs and limits for someone who watches a loaded model.  Does not know tokens or time.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from models.segments import whole
from runtime.adapters import open_adapted
from runtime.devices import cpu_limits
from runtime.devices.costs import StepCosts, run_cost
from runtime.machine import choose_threads, read_machine
from runtime.options import EngineOptions
from runtime.placement import place, usable_cards

_LEAST_ARENA_BYTES = 128 * 2**20
_ARENA_BYTES = 512 * 2**20
_ARENA_SHARE = 8


@dataclass(frozen=True, kw_only=True)
class PassReads:
    """What one pass for one token moves."""

    costs: StepCosts

    def bytes_at(self, position: int) -> int:
        """Weights, and the keys and values of the positions before."""
        return run_cost(self.costs, [position], count=1, num_outputs=1).moved_bytes


def pass_reads(path: Path | str, options: EngineOptions) -> PassReads:
    """For a model that is loaded with these options.  Raises CapacityError, ModelError, DeviceError."""
    with open_adapted(path, options.adapters) as file:
        placement = place(file, options, read_machine(), cards=usable_cards(options))
        return PassReads(costs=cpu_limits.count_costs(whole(placement.model.program), file, placement.device_options))


def memory_speed(options: EngineOptions) -> float:
    """Bytes a second that this machine reads with as many threads; takes a moment, and all of them.

    Raises DeviceError.
    """
    machine = read_machine()
    available = machine.memory_available_bytes or _ARENA_BYTES * _ARENA_SHARE
    arena_bytes = max(_LEAST_ARENA_BYTES, min(_ARENA_BYTES, available // _ARENA_SHARE))
    probe = cpu_limits.open_probe(
        isa=options.isa, kernel_folder=options.kernel_folder, arena_bytes=arena_bytes, progress=lambda *_: None
    )
    try:
        return probe.measure(choose_threads(options.threads, machine)[0]).read_bytes_per_s
    finally:
        probe.close()
