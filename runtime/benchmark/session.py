"""A whole bench: every model, load and test of a plan, with another engine in turn if there is one.

Owns the order of measuring, and how it is stopped.  Does not know formats, nor how a single test runs.  Each repeat of
a test is followed by the other engine's, variant by variant (A B C A B C), so that what changes on the machine meets
all alike.  The machine's limits are measured beside each repeat.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Protocol

from models.errors import ModelError
from runtime.benchmark.driver import DeviceDriver
from runtime.benchmark.end_to_end import EngineDriver
from runtime.benchmark.guessing import GuessingDriver, GuessingSamples, LoadEngine, guessing_options
from runtime.benchmark.loading import Load, LoadedModel, load_model
from runtime.benchmark.peers import Peer, PeerCall, PeerError, PeerStopped
from runtime.benchmark.results import Row
from runtime.benchmark.samples import (
    Samples,
    Stamp,
    device_shares,
    engine_setting,
    guessing_row,
    make_row,
    middle,
    own_setting,
    peer_row,
    peer_setting,
    ratio_to_better,
)
from runtime.benchmark.trials import BenchStopped, DeviceTrial, EngineTrial, Trial
from runtime.benchmark.workloads import BenchPlan, Workload
from runtime.devices import cpu_limits
from runtime.devices.binding import DeviceTimes, HasTimes
from runtime.devices.costs import LimitsProbe, MachineLimits
from runtime.engine import Engine
from runtime.errors import Cancelled, EngineError
from runtime.machine import read_machine
from runtime.options import EngineOptions
from runtime.prompts import Prompt

_ARENA_BYTES = 2**30
_ARENA_SHARE = 16  # of the memory that is available
_LEAST_ARENA_BYTES = 64 * 2**20

OpenProbe = Callable[[EngineOptions, Callable[[str, int, int], None]], LimitsProbe]


class Listener(Protocol):
    """Hears what happens, in the measuring thread."""

    def loading(self, title: str, stage: str, done: int, total: int) -> None:
        """A model, or the probe of the machine's limits, is being made ready."""
        ...

    def measuring(self, title: str, done: int, total: int) -> None:
        """Repeats of a test."""
        ...

    def finished(self, row: Row) -> None:
        """A row is there."""
        ...

    def noted(self, text: str) -> None:
        """A sentence for the user."""
        ...


def open_cpu_probe(options: EngineOptions, progress: Callable[[str, int, int], None]) -> LimitsProbe:
    """The CPU's, with as much memory to read as no cache holds."""
    available = read_machine().memory_available_bytes or _ARENA_BYTES * _ARENA_SHARE
    arena_bytes = max(_LEAST_ARENA_BYTES, min(_ARENA_BYTES, available // _ARENA_SHARE))
    return cpu_limits.open_probe(
        isa=options.isa, kernel_folder=options.kernel_folder, arena_bytes=arena_bytes, progress=progress
    )


class BenchSession:
    """One run.  run() belongs to one thread; stop() may come from any.  failures: what was noted and left out."""

    def __init__(
        self,
        plan: BenchPlan,
        listener: Listener,
        *,
        version: str,
        peer: Peer | None = None,
        load: Load = load_model,
        load_engine: LoadEngine = Engine.load,
        open_probe: OpenProbe = open_cpu_probe,
    ) -> None:
        self.failures: list[Exception] = []
        self._plan, self._listener, self._version = plan, listener, version
        self._peer, self._load, self._open_probe = peer, load, open_probe
        self._load_engine = load_engine
        self._probe: LimitsProbe | None = None
        self._peer_decode_rates: dict[tuple[str, int], float] = {}  # of this load, by variant and depth
        self._lock = threading.Lock()
        self._is_stopped = False
        self._stop_current: Callable[[], None] | None = None

    def run(self, paths: Sequence[Path]) -> None:
        """Measures everything; rows go to the listener as they are finished.

        What is wrong with one load is noted, and the next one is tried.  Raises BenchStopped after stop().
        """
        try:
            for path in paths:
                for options in self._plan.loads():
                    self._try(path, options)
        finally:
            if self._probe is not None:
                self._probe.close()

    def stop(self) -> None:
        """From any thread: ends what is being measured; a row with finished repeats is still handed out."""
        with self._lock:
            self._is_stopped = True
            if self._stop_current is not None:
                self._stop_current()

    def _try(self, path: Path, options: EngineOptions) -> None:
        try:
            if any(workload.test != "guess" for workload in self._plan.workloads()):
                self._bench(path, options)
            if self._plan.guessing is not None:
                self._bench_guessing(path, options)
        except BenchStopped:
            raise
        except Exception as error:
            if self._is_stopped:  # children of this process may have met the same signal
                raise BenchStopped("stopped") from error
            if not isinstance(error, EngineError | ModelError):
                raise
            self._fail(f"{path.name}: {error}", error)

    def _fail(self, text: str, error: Exception) -> None:
        self.failures.append(error)
        self._listener.noted(text)

    @contextmanager
    def _stoppable(self, stop: Callable[[], None]) -> Iterator[None]:
        """While this lasts, `stop` is what ends it early; what the device or the peer then raises is BenchStopped."""
        self._begin(stop)
        try:
            yield
        except (Cancelled, PeerStopped) as error:
            raise BenchStopped("stopped") from error
        finally:
            with self._lock:
                self._stop_current = None

    def _begin(self, stop: Callable[[], None]) -> None:
        with self._lock:
            if self._is_stopped:
                raise BenchStopped("stopped")
            self._stop_current = stop

    def _check(self) -> None:
        if self._is_stopped:
            raise BenchStopped("stopped")

    def _progress(self, path: Path) -> Callable[[str, int, int], None]:
        def progress(stage: str, done: int, total: int) -> None:
            self._check()
            self._listener.loading(path.stem, stage, done, total)

        self._check()
        return progress

    def _bench(self, path: Path, options: EngineOptions) -> None:
        progress = self._progress(path)
        if self._probe is None:
            self._probe = self._open_probe(options, progress)
        self._peer_decode_rates.clear()
        loaded = self._load(path, options, progress)
        close = loaded.binding.close
        try:
            for note in loaded.notes:
                self._listener.noted(f"{path.name}: {note}")
            workloads = self._plan.workloads()
            driver = DeviceDriver(loaded.binding)
            for workload in workloads:
                if workload.test not in ("generate", "guess"):
                    self._measure(loaded, options, workload, DeviceTrial(driver, workload))
            for workload in workloads:
                if workload.test == "generate":
                    engine = EngineDriver(loaded)
                    close = engine.close
                    self._measure(loaded, options, workload, EngineTrial(engine, workload, self._begin))
        finally:
            close()

    def _bench_guessing(self, path: Path, options: EngineOptions) -> None:
        """With an engine of its own, since the draft model is loaded beside the model."""
        plan = self._plan.guessing
        assert plan is not None
        options = guessing_options(options, plan)
        with self._load_engine(path, options, self._progress(path)) as engine:
            for note in engine.notes:
                self._listener.noted(f"{path.name}: {note}")
            driver = GuessingDriver(engine, answer_tokens=plan.answer_tokens)
            driver.warm_up(plan.sets[0].prompts[0], self._begin)
            setting = engine_setting(engine.description, options, isa=cpu_limits.chosen_isa(options.isa))
            for workload in self._plan.workloads():
                if workload.test != "guess":
                    continue
                prompts = next(one.prompts for one in plan.sets if one.name == workload.prompt_set)
                samples = GuessingSamples()
                try:
                    self._answer_all(driver, setting.model_file, workload, prompts, samples)
                finally:
                    if samples.whole:
                        stamp, version = self._stamp(), self._version
                        self._listener.finished(guessing_row(setting, workload, samples, stamp, version=version))

    def _answer_all(
        self,
        driver: GuessingDriver,
        model: str,
        workload: Workload,
        prompts: Sequence[Prompt],
        samples: GuessingSamples,
    ) -> None:
        title, total = f"{Path(model).stem}, {workload.label}", self._plan.repeats * len(prompts)
        for repeat in range(self._plan.repeats):
            samples.repeats.append([])
            for number, prompt in enumerate(prompts):
                self._listener.measuring(title, repeat * len(prompts) + number, total)
                pair = driver.answer(prompt, repeat + number, workload.temperature, self._begin)
                self._check()
                if pair is not None:
                    samples.repeats[-1].append(pair)
        self._listener.measuring(title, total, total)

    def _stamp(self) -> Stamp:
        return Stamp(
            repeats=self._plan.repeats,
            date=datetime.now(UTC).isoformat(timespec="seconds"),
            load=read_machine().load,
        )

    def _measure(self, loaded: LoadedModel, options: EngineOptions, workload: Workload, trial: Trial) -> None:
        """One row, and the peer's for the same test; of what was finished when it is stopped."""
        assert self._probe is not None
        threads, samples = loaded.description.threads, Samples()
        call = PeerCall(
            path=loaded.description.path,
            threads=threads,
            cache_type_k=options.cache_type_k,
            cache_type_v=options.cache_type_v,
            workload=workload,
        )
        title = f"{call.path.stem}, {workload.label}, {threads} {'thread' if threads == 1 else 'threads'}"
        limits = [self._probe.measure(threads)]
        try:
            self._listener.measuring(title, 0, self._plan.repeats)
            with self._stoppable(loaded.binding.cancel):
                trial.warm_up()
            for repeat in range(self._plan.repeats):
                times = _times_of(loaded, workload)
                with self._stoppable(loaded.binding.cancel):
                    trial.run(samples)
                if times is not None and (now := _times_of(loaded, workload)) is not None:
                    samples.spent.append(now.since(times))
                limits.append(self._probe.measure(threads))
                self._ask_peer(call, samples)
                self._listener.measuring(title, repeat + 1, self._plan.repeats)
        finally:
            if samples.tokens_per_s:
                self._hand_out(loaded, options, workload, samples, middle(limits[1:] or limits))

    def _ask_peer(self, call: PeerCall, samples: Samples) -> None:
        peer = self._peer
        if peer is None or not peer.can_run(call.workload):
            return
        for variant in peer.variants:
            rates = samples.peers.setdefault(variant.name, [])
            if len(rates) < len(samples.tokens_per_s) - 1:
                continue  # it failed before
            try:
                with self._stoppable(peer.stop):
                    rates.append(peer.measure(call, variant))
            except PeerError as error:
                self._fail(f"{call.workload.label}, {variant.name}: {error}", error)

    def _hand_out(
        self, loaded: LoadedModel, options: EngineOptions, workload: Workload, samples: Samples, limits: MachineLimits
    ) -> None:
        setting = own_setting(loaded, options)
        stamp = self._stamp()
        shares = device_shares(loaded, workload, limits, samples)
        ratio = ratio_to_better(self._peer.name, samples) if self._peer else None
        self._listener.finished(
            make_row(setting, workload, samples, stamp, version=self._version, devices=shares, peer_ratio=ratio)
        )
        for variant, rates in samples.peers.items():
            if self._peer is not None and rates:
                theirs, place = peer_setting(setting, self._peer.name, variant), (variant, workload.depth)
                if workload.test == "decode":
                    self._peer_decode_rates[place] = median(rates)
                decode_rate = self._peer_decode_rates.get(place)
                version = self._peer.version
                row = peer_row(theirs, workload, rates, stamp, version=version, decode_rate=decode_rate)
                self._listener.finished(row)


def _times_of(loaded: LoadedModel, workload: Workload) -> DeviceTimes | None:
    """Where the device's time went so far, for tests whose runs all are of one kind."""
    binding = loaded.binding
    return binding.times if isinstance(binding, HasTimes) and workload.test in ("prefill", "decode") else None
