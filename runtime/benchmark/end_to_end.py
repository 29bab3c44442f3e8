"""A prompt and its answer through the whole engine: scheduling, sampling, text, the hand-over between threads.

Owns how such a generation is timed, and what of a token's time the device did not use.  Does not know repeats.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from runtime.benchmark.loading import LoadedModel
from runtime.engine import Engine
from runtime.options import GenerateOptions
from runtime.sampling import SamplingOptions
from runtime.timings import Timings

if TYPE_CHECKING:
    from runtime.devices.binding import Batch, Binding

_SEED = 20_240_818


@dataclass(frozen=True, kw_only=True)
class Generated:
    """One generation.  overhead_ms: mean time from token to token, less the device's run."""

    timings: Timings
    decode_tokens_per_s: float
    overhead_ms: float


class TimedBinding:
    """A binding that notes how long each run takes."""

    def __init__(self, binding: Binding) -> None:
        self._binding = binding
        self.limits, self.vocab_size = binding.limits, binding.vocab_size
        self.memory, self.notes = binding.memory, binding.notes
        self.runs_s: list[float] = []

    def run(self, batch: Batch) -> np.ndarray:
        start_s = time.perf_counter()
        rows = self._binding.run(batch)
        self.runs_s.append(time.perf_counter() - start_s)
        return rows

    def copy_page(self, source: int, target: int) -> None:
        self._binding.copy_page(source, target)

    def cancel(self) -> None:
        self._binding.cancel()

    def close(self) -> None:
        self._binding.close()


class EngineDriver:
    """An engine around a loaded model's binding, which it takes over and closes."""

    def __init__(self, loaded: LoadedModel) -> None:
        self._timed = TimedBinding(loaded.binding)
        num_ids = min(loaded.vocabulary.size, loaded.binding.vocab_size)
        self._ids = np.random.default_rng(_SEED).integers(0, num_ids, loaded.description.context_size).tolist()
        self._engine = Engine(
            binding=self._timed, vocabulary=loaded.vocabulary, chat_templates={}, description=loaded.description
        )

    def generate(
        self, prompt_tokens: int, output_tokens: int, on_begin: Callable[[Callable[[], None]], None]
    ) -> Generated | None:
        """With the default sampling and without reuse; on_begin gets what cancels it.  None: it was cancelled."""
        self._timed.runs_s.clear()
        options = GenerateOptions(
            max_tokens=output_tokens, ignore_end=True, reuse_prefix=False, sampling=SamplingOptions(seed=_SEED)
        )
        generation = self._engine.generate(self._ids[:prompt_tokens], options)
        on_begin(generation.cancel)
        for _ in generation:
            pass  # as a caller who shows each piece of text
        timings = generation.result.timings
        if generation.result.finish_reason == "cancelled" or timings.decode_tokens_per_s is None:
            return None
        num_steps = timings.output_tokens - 1
        run_s = sum(self._timed.runs_s[-num_steps:]) / num_steps
        return Generated(
            timings=timings,
            decode_tokens_per_s=timings.decode_tokens_per_s,
            overhead_ms=(1 / timings.decode_tokens_per_s - run_s) * 1e3,
        )

    def close(self) -> None:
        """Ends the engine, and with it the binding."""
        self._engine.close()
