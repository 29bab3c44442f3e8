"""Tuning on a device without a model: what is loaded, and what is left when it is stopped anywhere."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from bench_rows import FakeLoads, FakeProbe
from fake_device import FakeBinding
from faked_cards import cards_of, fake_card, fake_machine
from large_models import THIRTY_BILLION, THIRTY_BILLION_EXPERTS, write_large_mixture
from tiny_models import write_tiny_model

from runtime.benchmark.loading import LoadedModel
from runtime.errors import CapacityError, DeviceError
from runtime.options import EngineOptions
from runtime.tuning.samples import TuneResult, TuneSample
from runtime.tuning.session import Fixed, TuneSession

MACHINE = replace(fake_machine(), allowed_cpus=2, num_cores=2, num_fast_cores=2)
EVERYTHING = Fixed(gpu_layers=True, cpu_experts=True, threads=True, batch_size=True, cache_types=True)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_model(tmp_path_factory.mktemp("models") / "tiny.gguf", vocabulary="none")


class Log:
    """A listener that keeps everything; `on` is called with the kind of each event."""

    def __init__(self, on: Callable[[str], None] = lambda kind: None) -> None:
        self.samples: list[TuneSample] = []
        self.notes: list[str] = []
        self.session: TuneSession | None = None
        self._on = on

    def stop(self) -> None:
        assert self.session is not None, "it runs"
        self.session.stop()

    def loading(self, title: str, stage: str, done: int, total: int) -> None:
        self._on("loading")

    def measuring(self, title: str, done: int, total: int) -> None:
        self._on("measuring")

    def finished(self, sample: TuneSample) -> None:
        self.samples.append(sample)
        self._on("finished")

    def noted(self, text: str) -> None:
        self.notes.append(text)


def tuned(
    model: Path,
    log: Log,
    loads: Callable[..., LoadedModel],
    *,
    fixed: Fixed = EVERYTHING,
    cards: float | None = None,
    options: EngineOptions | None = None,
) -> TuneResult:
    probe = FakeProbe()
    session = TuneSession(
        options or EngineOptions(threads=2),
        fixed,
        log,
        load=loads,
        open_probe=lambda options, progress: probe,
        machine=MACHINE,
        cards=cards_of() if cards is None else cards_of(fake_card(cards)),
    )
    log.session = session
    result = session.run(model)
    assert probe.is_closed or not probe.asked
    return result


def test_everything_is_varied_and_the_machine_measured(model: Path) -> None:
    log, loads = Log(), FakeLoads()
    result = tuned(model, log, loads, fixed=Fixed())
    assert result.is_complete and result.read_bytes_per_s == 1e6
    assert {stage for stage, _ in result.curves} == {"threads", "cache", "batch"}
    tried = [options for _, options in loads.loads]
    assert {options.threads for options in tried} == {1, 2}
    assert {options.cache_type_k for options in tried} == {"f16", "q8_0"}
    assert {options.batch_size for options in tried} == {128, 256, 512}, "the window has 512 tokens"
    assert {options.device for options in tried} == {"cpu"}
    assert all(options.context_size == 512 for options in tried)
    assert all(binding.is_closed for binding in loads.bindings)
    assert result.chosen is not None and result.chosen.decode.median > 0


def test_layers_are_tried_where_there_is_a_card(model: Path) -> None:
    log, loads = Log(), FakeLoads()
    fixed = replace(EVERYTHING, gpu_layers=False)
    result = tuned(model, log, loads, fixed=fixed, cards=24)
    assert {options.gpu_layers for _, options in loads.loads} == {"auto", 1, 2}
    assert {options.device for _, options in loads.loads} == {"cpu", "auto"}
    ((stage, samples),) = result.curves
    assert (stage, [sample.setting.gpu_layers for sample in samples]) == ("layers", [0, 1, 2])


def test_experts_are_varied_where_not_all_fit(tmp_path: Path) -> None:
    path = write_large_mixture(tmp_path / "mixture.gguf", THIRTY_BILLION, THIRTY_BILLION_EXPERTS)
    log, loads = Log(), FakeLoads()
    fixed = replace(EVERYTHING, cpu_experts=False)
    result = tuned(path, log, loads, fixed=fixed, cards=12)
    ((stage, samples),) = result.curves
    assert stage == "experts" and result.expert_layers == 48
    assert [sample.setting.cpu_experts for sample in samples] == [20, 27, 34, 41, 48]
    assert {(options.gpu_layers, options.cpu_experts) for _, options in loads.loads} == {
        (48, count) for count in (20, 27, 34, 41, 48)
    }


def test_what_is_fixed_is_measured_once(model: Path) -> None:
    log, loads = Log(), FakeLoads()
    result = tuned(model, log, loads)
    assert len(loads.loads) == 1 and result.chosen == log.samples[0]


@pytest.mark.parametrize("window", [1, 2, 3, 65])
def test_a_window_of_hardly_any_tokens_is_measured_too(model: Path, window: int) -> None:
    result = tuned(model, Log(), FakeLoads(), options=EngineOptions(threads=1, context_size=window))
    assert result.chosen is not None and result.context_size == window


def test_what_cant_be_loaded_is_noted_and_passed_over(model: Path) -> None:
    loads = FakeLoads()

    def load(path: Path, options: EngineOptions, progress: Callable[[str, int, int], None]) -> LoadedModel:
        if options.cache_type_k == "q8_0":
            raise CapacityError("No room.", needed_bytes=2, available_bytes=1)
        return loads(path, options, progress)

    log = Log()
    result = tuned(model, log, load, fixed=replace(EVERYTHING, cache_types=False))
    assert log.notes == ["KV cache q8_0: No room."]
    assert result.chosen is not None and result.chosen.setting.cache_type_k == "f16"


def test_nothing_that_can_be_loaded_is_a_fault(model: Path) -> None:
    def load(path: Path, options: EngineOptions, progress: Callable[[str, int, int], None]) -> LoadedModel:
        raise DeviceError("No device.")

    with pytest.raises(DeviceError, match="No device"):
        tuned(model, Log(), load)


@pytest.mark.parametrize("event", ["loading", "measuring", "finished"])
@pytest.mark.parametrize("count", [1, 3])
def test_stopped_anywhere_it_keeps_what_was_measured(model: Path, event: str, count: int) -> None:
    seen = 0

    def on(kind: str) -> None:
        nonlocal seen
        seen += kind == event
        if kind == event and seen == count:
            log.stop()

    log, loads = Log(on), FakeLoads()
    result = tuned(model, log, loads, fixed=Fixed())
    assert not result.is_complete
    shown = {sample.setting for _, samples in result.curves for sample in samples}
    assert shown == {sample.setting for sample in log.samples}
    assert (result.chosen is None) == (not log.samples)
    assert all(binding.is_closed for binding in loads.bindings)


def test_a_run_in_progress_is_cancelled(model: Path) -> None:
    bindings: list[FakeBinding] = []

    def prepare(binding: FakeBinding) -> None:
        bindings.append(binding)
        binding.hold()

    log, loads = Log(), FakeLoads(prepare)
    results: list[TuneResult] = []
    thread = threading.Thread(target=lambda: results.append(tuned(model, log, loads)))
    thread.start()
    while not bindings:
        threading.Event().wait(0.01)
    assert bindings[0].entered.wait(10)
    log.stop()
    thread.join(10)
    assert results and results[0].chosen is None and not results[0].is_complete
