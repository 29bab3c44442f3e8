"""How each kind of test is warmed up and run once.

Owns the way from a workload to a driver's call.  Does not know repeats, peers or models.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from runtime.benchmark.driver import DeviceDriver
from runtime.benchmark.end_to_end import EngineDriver
from runtime.benchmark.samples import Samples
from runtime.benchmark.workloads import Workload
from runtime.errors import EngineError

_WARM_UP_TOKENS = 8


class BenchStopped(EngineError):
    """stop() ended the bench; the rows that were handed out are what there is."""


class Trial(Protocol):
    """One test, made ready."""

    def warm_up(self) -> None:
        """Fills the cache to the depth, and runs once what is not timed."""
        ...

    def run(self, samples: Samples) -> None:
        """One repeat."""
        ...


class DeviceTrial:
    """A test on the bare device."""

    def __init__(self, driver: DeviceDriver, workload: Workload) -> None:
        self._driver, self._workload = driver, workload

    def warm_up(self) -> None:
        workload, driver = self._workload, self._driver
        driver.fill(workload.depth, workload.width if workload.test == "parallel" else 1)
        match workload.test:
            case "prefill":
                driver.prefill(min(workload.prompt_tokens, driver.max_batch_tokens), workload.depth)
            case "verify":
                driver.verify(workload.width, 1, workload.depth)
            case "parallel":
                driver.parallel(workload.width, min(_WARM_UP_TOKENS, workload.output_tokens), workload.depth)
            case _:
                driver.decode(min(_WARM_UP_TOKENS, workload.output_tokens), workload.depth)

    def run(self, samples: Samples) -> None:
        workload, driver, depth = self._workload, self._driver, self._workload.depth
        match workload.test:
            case "prefill":
                samples.add_run(workload.prompt_tokens, driver.prefill(workload.prompt_tokens, depth))
            case "verify":
                samples.add_against_one(workload.width, *driver.verify(workload.width, workload.num_passes, depth))
            case "parallel":
                times = driver.parallel(workload.width, workload.output_tokens, depth)
                samples.add_against_one(workload.width, *times)
            case _:
                samples.add_steps(1, driver.decode(workload.output_tokens, depth))


class EngineTrial:
    """A test through the engine."""

    def __init__(self, engine: EngineDriver, workload: Workload, begin: Callable[[Callable[[], None]], None]) -> None:
        self._engine, self._workload, self._begin = engine, workload, begin

    def warm_up(self) -> None:
        self._engine.generate(min(_WARM_UP_TOKENS, self._workload.prompt_tokens), 2, self._begin)

    def run(self, samples: Samples) -> None:
        generated = self._engine.generate(self._workload.prompt_tokens, self._workload.output_tokens, self._begin)
        if generated is None:
            raise BenchStopped("stopped")
        samples.add_generated(generated)
