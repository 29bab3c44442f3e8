"""The search: one stage after the other, each varying one thing and keeping the best.

Owns which settings are tried and which one is kept.  Does not know how a setting is measured.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from runtime.devices.binding import CacheType
from runtime.tuning.samples import STAGES, Stage, TuneSample, TuneSetting

NOISE_SHARE = 0.03
"""What gains less than that over what would be used anyhow is not worth a change."""
ROUNDING_SHARE = 0.10
"""Keys and values in fewer bits change answers a little: they must gain that much."""

_COARSE_PARTS = 4

Measure = Callable[[Stage, TuneSetting], TuneSample | None]
"""None: a setting that does not fit or can't be run."""


@dataclass(frozen=True, kw_only=True)
class TuneSpace:
    """What may be varied; a single value (or none) leaves its stage out.  most_gpu_layers: how many fit.
    cpu_experts: of how many of the first layers the experts are on the CPU, where all these layers are on the GPU.

    The first of the cache types is what is used anyhow.
    """

    most_gpu_layers: int = 0
    cpu_experts: tuple[int, ...] = ()
    threads: tuple[int, ...] = ()
    cache_types: tuple[tuple[CacheType, CacheType], ...] = ()
    batch_sizes: tuple[int, ...] = ()


class Search:
    """Runs the stages from a setting on.  curves and best hold what is known also after an exception of `measure`."""

    def __init__(self, space: TuneSpace, start: TuneSetting, measure: Measure) -> None:
        self._space, self._measure = space, measure
        self._samples: dict[TuneSetting, TuneSample | None] = {}
        self._tried: dict[Stage, list[TuneSetting]] = {}
        self._start = start
        self.best: TuneSample | None = None

    def run(self) -> None:
        """Everything.  What `measure` raises ends it."""
        for stage in STAGES:
            candidates = self._candidates(stage)
            if len(candidates) > 1 or (stage == STAGES[-1] and not self._samples):
                self._try(stage, candidates)
                if stage == "layers":
                    self._refine(candidates)

    @property
    def curves(self) -> tuple[tuple[Stage, tuple[TuneSample, ...]], ...]:
        """What was measured, by stage, in ascending order of what was varied."""
        found: list[tuple[Stage, tuple[TuneSample, ...]]] = [
            (stage, self._curve(stage, self._tried.get(stage, []))) for stage in STAGES
        ]
        return tuple((stage, samples) for stage, samples in found if samples)

    def _curve(self, stage: Stage, settings: Sequence[TuneSetting]) -> tuple[TuneSample, ...]:
        samples = [sample for setting in settings if (sample := self._samples.get(setting)) is not None]
        return tuple(sorted(samples, key=lambda sample: _place(stage, sample.setting)))

    @property
    def _base(self) -> TuneSetting:
        return self.best.setting if self.best is not None else self._start

    def _candidates(self, stage: Stage) -> list[TuneSetting]:
        """What is used anyhow comes first, so that a stage that is stopped has something to compare with."""
        base, space = self._base, self._space
        varied: Iterator[TuneSetting]
        match stage:
            case "layers":
                most = space.most_gpu_layers
                varied = (replace(base, gpu_layers=count) for count in (coarse(0, most) if most else ()))
            case "experts":
                varied = (replace(base, cpu_experts=count) for count in space.cpu_experts if base.gpu_layers)
            case "threads":
                varied = (replace(base, threads=count) for count in space.threads)
            case "cache":
                varied = (replace(base, cache_type_k=k, cache_type_v=v) for k, v in space.cache_types)
            case "batch":
                varied = (replace(base, batch_size=size) for size in space.batch_sizes)
        return list(dict.fromkeys([base, *varied]))

    def _try(self, stage: Stage, candidates: Sequence[TuneSetting]) -> None:
        tried = self._tried.setdefault(stage, [])
        for setting in candidates:
            if setting not in tried:
                tried.append(setting)
            if setting not in self._samples:
                self._samples[setting] = self._measure(stage, setting)
            sample = self._samples[setting]
            if sample is not None:
                self._compare(stage, sample)

    def _compare(self, stage: Stage, sample: TuneSample) -> None:
        """Keeps it if it beats the best, also when that is measured again: the machine may have been busy before."""
        best = self.best
        if best is None or sample.setting == best.setting:
            self.best = sample
            return
        share = 1 + (ROUNDING_SHARE if stage == "cache" else NOISE_SHARE)
        if sample.answer_tokens_per_s <= best.answer_tokens_per_s * share:
            return
        self.best = sample  # also if the next measurement is interrupted
        again = self._measure(best.stage, best.setting)
        if again is None:
            return
        if again.answer_tokens_per_s > best.answer_tokens_per_s:
            self._samples[best.setting] = again
        if sample.answer_tokens_per_s <= again.answer_tokens_per_s * share:
            self.best = self._samples[best.setting]

    def _refine(self, coarse: Sequence[TuneSetting]) -> None:
        """Halves the distance to both neighbours of the best until nothing lies between."""
        known = sorted(setting.gpu_layers for setting in coarse)
        gap = max((right - left for left, right in zip(known, known[1:], strict=False)), default=0)
        while gap > 1:
            gap = (gap + 1) // 2
            middle = self._base.gpu_layers
            near = [count for count in (middle - gap, middle + gap) if 0 <= count <= self._space.most_gpu_layers]
            self._try("layers", [replace(self._base, gpu_layers=count) for count in near])


def coarse(least: int, most: int) -> list[int]:
    """The least, the most, and quarters between."""
    return sorted({least + round((most - least) * part / _COARSE_PARTS) for part in range(_COARSE_PARTS + 1)})


def _place(stage: Stage, setting: TuneSetting) -> tuple[int, ...]:
    bits = {"f16": 16, "q8_0": 8, "q4_0": 4}
    match stage:
        case "layers":
            return (setting.gpu_layers,)
        case "experts":
            return (setting.cpu_experts,)
        case "threads":
            return (setting.threads,)
        case "cache":
            return (-bits[setting.cache_type_k], -bits[setting.cache_type_v])
        case "batch":
            return (setting.batch_size,)


def thread_counts(default: int, most: int) -> tuple[int, ...]:
    """Numbers of threads to try up to the processors that may be used: every one of few, of many the likely ones."""
    if most <= 4:
        return tuple(range(1, most + 1))
    doubled = [1 << power for power in range(1, most.bit_length()) if 1 << power <= most]
    near = [default - 1, default, default + 1, default // 2, default * 3 // 4]
    return tuple(sorted({count for count in (*doubled, *near, most) if 1 <= count <= most}))
