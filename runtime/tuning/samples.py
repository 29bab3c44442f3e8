"""What tuning varies and what a measurement of it says.

Owns the values and the one number that settings are compared by.  Does not know how anything is measured or chosen.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from runtime.benchmark.statistics import Spread
from runtime.devices.binding import CacheType

Stage = Literal["layers", "experts", "threads", "cache", "batch"]
STAGES: tuple[Stage, ...] = ("layers", "experts", "threads", "cache", "batch")

ANSWER_PROMPT_TOKENS, ANSWER_TOKENS = 512, 256
"""The exchange that settings are compared by: a prompt of a page, and an answer of half a page."""


@dataclass(frozen=True, kw_only=True)
class TuneSetting:
    """One choice of everything that is tuned.  cpu_experts: of so many first layers the experts are on the CPU."""

    gpu_layers: int
    threads: int
    batch_size: int
    cache_type_k: CacheType
    cache_type_v: CacheType
    cpu_experts: int = 0


@dataclass(frozen=True, kw_only=True)
class TuneSample:
    """A measured setting, in tokens/s.  stage: what was varied when it was measured first."""

    stage: Stage
    setting: TuneSetting
    prompt: Spread
    decode: Spread

    @property
    def answer_tokens_per_s(self) -> float:
        """Of an answer, the reading of its prompt included."""
        reading_s, writing_s = ANSWER_PROMPT_TOKENS / self.prompt.median, ANSWER_TOKENS / self.decode.median
        return ANSWER_TOKENS / (reading_s + writing_s)


@dataclass(frozen=True, kw_only=True)
class TuneResult:
    """What is known in the end.  curves: the samples of each stage, in the order of what was varied.

    is_complete: nothing was left out because it was stopped.  chosen: the best of what was measured; None: nothing was.
    read_bytes_per_s: the CPU's memory with the chosen number of threads, if there was time for that.
    expert_layers: how many of the first layers hold all experts; 0: there are none.
    """

    context_size: int
    num_layers: int
    curves: tuple[tuple[Stage, tuple[TuneSample, ...]], ...]
    chosen: TuneSample | None
    read_bytes_per_s: float | None
    is_complete: bool
    expert_layers: int = 0
