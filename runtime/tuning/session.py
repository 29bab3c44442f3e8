"""Tuning one model: every setting of the search is loaded, run and measured, and the best is known at any time.

Owns the loading and the timing, and how it is stopped.  Does not know which settings are tried (search.py).
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from models.errors import ModelError
from runtime.benchmark.driver import DeviceDriver
from runtime.benchmark.loading import Load, load_model
from runtime.benchmark.session import OpenProbe, open_cpu_probe
from runtime.benchmark.statistics import spread_of
from runtime.cards import Cards, read_cards
from runtime.devices.binding import CacheType
from runtime.errors import Cancelled, EngineError
from runtime.machine import Machine, default_threads, read_machine
from runtime.options import EngineOptions
from runtime.plans import ModelPlan, plan_model
from runtime.tuning.samples import ANSWER_PROMPT_TOKENS, Stage, TuneResult, TuneSample, TuneSetting
from runtime.tuning.search import Search, TuneSpace, coarse, thread_counts

_MOST_DEPTH = 1024
_DECODE_TOKENS = 24
_REPEATS = 3
_BATCH_SIZES = (128, 256, 512, 1024)
_CACHE_TYPES: tuple[CacheType, ...] = ("f16", "q8_0")
_WARM_UP_TOKENS = 2


class TuneStopped(Exception):
    """stop() was called."""


@dataclass(frozen=True, kw_only=True)
class Fixed:
    """What the user chose, which is not varied."""

    gpu_layers: bool = False
    cpu_experts: bool = False
    threads: bool = False
    batch_size: bool = False
    cache_types: bool = False


class Listener(Protocol):
    """Hears what happens, in the measuring thread."""

    def loading(self, title: str, stage: str, done: int, total: int) -> None:
        """A setting is being made ready."""
        ...

    def measuring(self, title: str, done: int, total: int) -> None:
        """Repeats of a measurement."""
        ...

    def finished(self, sample: TuneSample) -> None:
        """A setting was measured."""
        ...

    def noted(self, text: str) -> None:
        """A sentence for the user."""
        ...


class TuneSession:
    """One run.  run() belongs to one thread; stop() may come from any."""

    def __init__(
        self,
        options: EngineOptions,
        fixed: Fixed,
        listener: Listener,
        *,
        load: Load = load_model,
        open_probe: OpenProbe = open_cpu_probe,
        machine: Machine | None = None,
        cards: Cards | None = None,
    ) -> None:
        self._options, self._fixed, self._listener = options, fixed, listener
        self._load, self._open_probe = load, open_probe
        self._machine = machine or read_machine()
        self._cards = cards if cards is not None else Cards() if options.device == "cpu" else read_cards()
        self._lock = threading.Lock()
        self._is_stopped = False
        self._cancel_current: Callable[[], None] | None = None

    def run(self, path: Path) -> TuneResult:
        """Measures; after stop() what was measured so far.  Raises ModelError and EngineError when nothing can be."""
        plan = plan_model(path, self._options, machine=self._machine, cards=self._cards)
        options = replace(self._options, context_size=plan.bill.context_size)
        faults: list[Exception] = []

        def measure(stage: Stage, setting: TuneSetting) -> TuneSample | None:
            try:
                return self._measure(path, _with(options, setting), stage, setting)
            except (EngineError, ModelError) as error:
                if self._is_stopped:
                    raise TuneStopped from error
                faults.append(error)
                self._listener.noted(f"{setting_text(stage, setting)}: {error}")
                return None

        search = Search(self._space(plan), _start(plan, options), measure)
        read_bytes_per_s = None
        try:
            search.run()
            if search.best is not None:
                read_bytes_per_s = self._read_speed(options, search.best.setting.threads)
        except TuneStopped:
            pass
        if search.best is None and faults:
            raise faults[0]
        return TuneResult(
            context_size=plan.bill.context_size,
            num_layers=plan.num_layers,
            curves=search.curves,
            chosen=search.best,
            read_bytes_per_s=read_bytes_per_s,
            is_complete=read_bytes_per_s is not None,
            expert_layers=plan.expert_layers,
        )

    def stop(self) -> None:
        """From any thread: ends what is being measured."""
        with self._lock:
            self._is_stopped = True
            if self._cancel_current is not None:
                self._cancel_current()

    def _space(self, plan: ModelPlan) -> TuneSpace:
        fixed, machine = self._fixed, self._machine
        most = min(plan.bill.context_size, max(_BATCH_SIZES))
        return TuneSpace(
            most_gpu_layers=0 if fixed.gpu_layers else plan.bill.gpu_layers,
            threads=() if fixed.threads else thread_counts(default_threads(machine), machine.allowed_cpus),
            cpu_experts=() if fixed.cpu_experts else _experts(plan),
            cache_types=() if fixed.cache_types else tuple((name, name) for name in _CACHE_TYPES),
            batch_sizes=() if fixed.batch_size else tuple(size for size in _BATCH_SIZES if size <= most),
        )

    def _measure(self, path: Path, options: EngineOptions, stage: Stage, setting: TuneSetting) -> TuneSample:
        title = setting_text(stage, setting)

        def progress(what: str, done: int, total: int) -> None:
            self._check()
            self._listener.loading(title, what, done, total)

        self._check()
        loaded = self._load(path, options, progress)
        try:
            with self._lock:
                self._cancel_current = loaded.binding.cancel
            self._check()
            sample = self._run(DeviceDriver(loaded.binding), loaded.description.context_size, title, stage, setting)
        except Cancelled as error:
            raise TuneStopped from error
        finally:
            with self._lock:
                self._cancel_current = None
            loaded.binding.close()
        self._listener.finished(sample)
        return sample

    def _run(
        self, driver: DeviceDriver, context_size: int, title: str, stage: Stage, setting: TuneSetting
    ) -> TuneSample:
        """A prompt from the start, then tokens one by one at a depth, both several times."""
        prompt_tokens = max(1, min(ANSWER_PROMPT_TOKENS, context_size // 2))
        decode_tokens = max(1, min(_DECODE_TOKENS, context_size // 4))
        depth = min(_MOST_DEPTH, context_size // 2)
        driver.prefill(min(prompt_tokens, setting.batch_size), 0)
        driver.decode(min(_WARM_UP_TOKENS, decode_tokens), 0)
        prompt, decode = [], []
        for repeat in range(_REPEATS):
            self._check()
            self._listener.measuring(title, repeat, _REPEATS)
            prompt.append(prompt_tokens / driver.prefill(prompt_tokens, 0))
            driver.fill(depth)
            decode.append(decode_tokens / sum(driver.decode(decode_tokens, depth)))
        self._listener.measuring(title, _REPEATS, _REPEATS)
        return TuneSample(stage=stage, setting=setting, prompt=spread_of(prompt), decode=spread_of(decode))

    def _read_speed(self, options: EngineOptions, threads: int) -> float:
        def progress(what: str, done: int, total: int) -> None:
            self._check()
            self._listener.loading("memory", what, done, total)

        self._check()
        probe = self._open_probe(options, progress)
        try:
            # The best of several: whatever else runs meanwhile can only make it less.
            return max(probe.measure(threads).read_bytes_per_s for _ in range(_REPEATS))
        finally:
            probe.close()

    def _check(self) -> None:
        if self._is_stopped:
            raise TuneStopped


def setting_text(stage: Stage, setting: TuneSetting) -> str:
    """What a stage varies, in words: "2 threads"."""
    match stage:
        case "layers":
            return f"{setting.gpu_layers} GPU {'layer' if setting.gpu_layers == 1 else 'layers'}"
        case "experts":
            return f"experts of {setting.cpu_experts} {'layer' if setting.cpu_experts == 1 else 'layers'} on the CPU"
        case "threads":
            return f"{setting.threads} {'thread' if setting.threads == 1 else 'threads'}"
        case "cache":
            k, v = setting.cache_type_k, setting.cache_type_v
            return f"KV cache {k if k == v else f'{k}/{v}'}"
        case "batch":
            return f"batch {setting.batch_size}"


def _start(plan: ModelPlan, options: EngineOptions) -> TuneSetting:
    """What would be used anyhow."""
    return TuneSetting(
        gpu_layers=plan.bill.gpu_layers,
        threads=plan.threads,
        batch_size=min(options.batch_size, plan.bill.context_size),
        cache_type_k=options.cache_type_k,
        cache_type_v=options.cache_type_v,
        cpu_experts=plan.bill.cpu_experts,
    )


def _experts(plan: ModelPlan) -> tuple[int, ...]:
    """As few as fit beside all layers that do, all, and some between."""
    if not plan.expert_layers or not plan.bill.gpu_layers:
        return ()
    return tuple(coarse(max(plan.bill.cpu_experts, plan.num_layers - plan.bill.gpu_layers), plan.expert_layers))


def _with(options: EngineOptions, setting: TuneSetting) -> EngineOptions:
    device = options.device if options.device == "cpu" or setting.gpu_layers else "cpu"
    return replace(
        options,
        device=device,
        gpu_layers=setting.gpu_layers if device != "cpu" else "auto",
        cpu_experts=setting.cpu_experts,
        threads=setting.threads,
        batch_size=setting.batch_size,
        cache_type_k=setting.cache_type_k,
        cache_type_v=setting.cache_type_v,
    )
