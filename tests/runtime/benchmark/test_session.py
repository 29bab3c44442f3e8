"""A whole bench on a device without a model: rows, turns with a peer, faults, and being stopped anywhere."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from bench_rows import FakeLoads, FakeProbe
from fake_device import FakeBinding

from runtime.benchmark.peers import PeerCall, PeerError, PeerStopped, Variant
from runtime.benchmark.results import Row
from runtime.benchmark.session import BenchSession
from runtime.benchmark.trials import BenchStopped
from runtime.benchmark.workloads import BenchPlan, Workload
from runtime.devices.costs import MachineLimits
from runtime.errors import DeviceError

PLAN = BenchPlan(
    prompts=(40,), outputs=(6,), depths=(0, 70), repeats=3, verify=(3,), parallel=(2,), threads=(1,), batch_sizes=(32,)
)
SMALL = BenchPlan(prompts=(8,), outputs=(4,), repeats=3, has_generate=False, threads=(1,))
MODEL = Path("folder/a model.gguf")


class Log:
    """A listener that keeps everything; `on` is called with the kind of each event."""

    def __init__(self, on: Callable[[str], None] = lambda kind: None) -> None:
        self.rows: list[Row] = []
        self.notes: list[str] = []
        self.titles: list[tuple[str, int, int]] = []
        self._on = on

    def loading(self, title: str, stage: str, done: int, total: int) -> None:
        self._on("loading")

    def measuring(self, title: str, done: int, total: int) -> None:
        self.titles.append((title, done, total))
        self._on("measuring")

    def finished(self, row: Row) -> None:
        self.rows.append(row)
        self._on("finished")

    def noted(self, text: str) -> None:
        self.notes.append(text)


class FakePeer:
    """Takes turns and answers a fixed rate for each variant; fails or waits where a test says so."""

    name, version = "llama.cpp", "b1"
    variants = (Variant(name="default"), Variant(name="--repack 0", arguments=("--repack", "0")))

    def __init__(self, rates: dict[str, float] | None = None) -> None:
        self.rates = rates or {"default": 10.0, "--repack 0": 20.0}
        self.calls: list[tuple[PeerCall, str]] = []
        self.on_measure: Callable[[PeerCall, Variant], None] = lambda call, variant: None
        self._stopped = threading.Event()

    def can_run(self, workload: Workload) -> bool:
        return workload.test in ("prefill", "decode", "verify")

    def measure(self, call: PeerCall, variant: Variant) -> float:
        self.calls.append((call, variant.name))
        self.on_measure(call, variant)
        if self._stopped.is_set():
            raise PeerStopped("stopped")
        return self.rates[variant.name]

    def stop(self) -> None:
        self._stopped.set()


def run(
    plan: BenchPlan,
    log: Log,
    loads: FakeLoads,
    peer: FakePeer | None = None,
    paths: tuple[Path, ...] = (MODEL,),
    probe: FakeProbe | None = None,
):
    probe = probe or FakeProbe()
    session = BenchSession(plan, log, version="9", peer=peer, load=loads, open_probe=lambda options, progress: probe)
    try:
        session.run(paths)
    finally:
        assert probe.is_closed or not probe.asked
        assert all(binding.is_closed for binding in loads.bindings)
    return session, probe


def test_every_test_of_the_plan_becomes_a_row() -> None:
    log, loads = Log(), FakeLoads()
    session, probe = run(PLAN, log, loads)
    assert [row.workload for row in log.rows] == list(PLAN.workloads())
    assert not session.failures
    for row in log.rows:
        assert len(row.tokens_per_s_samples) == 3 and row.is_complete
        assert row.spread.least <= row.tokens_per_s <= row.spread.most
        assert (row.engine_version, row.setting.engine, row.setting.isa) == ("9", "tandem", "avx512")
        assert (row.setting.model_file, row.setting.threads, row.setting.batch_size) == ("a model.gguf", 1, 32)
        (device,) = row.devices
        assert device.moved_bytes_per_token > 0 and device.limit_share == pytest.approx(
            row.tokens_per_s / device.limit_tokens_per_s
        )
        is_several = row.workload.test in ("verify", "parallel")
        assert (row.step_time_ratio is not None) == is_several
        assert len(row.step_time_ratio_samples) == (3 if is_several else 0)
        assert (row.inter_token_p50_ms is None) == (row.workload.test in ("prefill", "verify"))
        assert (row.ttft_s is not None) == (row.overhead_ms is not None) == (row.workload.test == "generate")
    assert probe.asked == [1] * (1 + 3) * len(log.rows)
    assert log.notes == ["a model.gguf: a note"]
    assert log.titles[0] == ("a model, prefill 40, 1 thread", 0, 3)


def test_the_limit_is_the_middle_of_those_measured_beside_each_repeat() -> None:
    """Memory that is quick before the test, or in one repeat, makes no test look slow."""

    class Drifting(FakeProbe):
        def measure(self, threads: int) -> MachineLimits:
            limits = super().measure(threads)
            return replace(limits, read_bytes_per_s=(9e9, 1e9, 8e9, 2e9)[(len(self.asked) - 1) % 4])

    log = Log()
    run(PLAN, log, FakeLoads(), probe=Drifting())
    assert [device.read_bytes_per_s for row in log.rows for device in row.devices] == [2e9] * len(log.rows)


def test_every_model_and_load_is_measured() -> None:
    log, loads = Log(), FakeLoads()
    plan = replace(SMALL, activations=("fast", "exact"), threads=(1, 2), repeats=1)
    run(plan, log, loads, paths=(MODEL, Path("b.gguf")))
    assert [(path.name, load.activations, load.threads) for path, load in loads.loads] == [
        (name, activations, threads)
        for name in ("a model.gguf", "b.gguf")
        for activations in ("fast", "exact")
        for threads in (1, 2)
    ]
    assert len(log.rows) == 16
    assert {row.setting.model_fingerprint for row in log.rows} == {"of a model.gguf", "of b.gguf"}


def test_the_peer_takes_its_turn_after_every_repeat() -> None:
    log, peer = Log(), FakePeer()
    run(SMALL, log, FakeLoads(), peer)
    assert [name for _, name in peer.calls] == ["default", "--repack 0"] * 6
    assert {call.path for call, _ in peer.calls} == {MODEL}
    assert [(row.setting.engine, row.setting.variant, row.workload.test) for row in log.rows] == [
        (engine, variant, test)
        for test in ("prefill", "decode")
        for engine, variant in (("tandem", ""), ("llama.cpp", "default"), ("llama.cpp", "--repack 0"))
    ]
    for own, default, repacked in (log.rows[:3], log.rows[3:]):
        assert default.tokens_per_s_samples == (10.0,) * 3 and repacked.tokens_per_s_samples == (20.0,) * 3
        assert default.setting.activations is None and default.peer_ratio is None and default.engine_version == "b1"
        ratio = own.peer_ratio
        assert ratio is not None and (ratio.peer, ratio.variant) == ("llama.cpp", "--repack 0")
        assert ratio.ratio_samples == tuple(rate / 20.0 for rate in own.tokens_per_s_samples)


def test_a_peers_pass_is_held_against_its_own_single_tokens() -> None:
    log = Log()
    run(replace(SMALL, prompts=(0,), verify=(4,)), log, FakeLoads(), FakePeer({"default": 10.0, "--repack 0": 20.0}))
    ratios = {row.setting.variant: row.step_time_ratio for row in log.rows if row.workload.test == "verify"}
    assert ratios["default"] == ratios["--repack 0"] == 4.0  # four tokens at the rate of one take four times as long
    assert ratios[""] is not None


def test_a_peer_is_not_asked_for_what_it_has_not() -> None:
    log, peer = Log(), FakePeer()
    run(replace(SMALL, prompts=(8,), outputs=(4,), parallel=(2,), has_generate=True), log, FakeLoads(), peer)
    assert {call.workload.test for call, _ in peer.calls} == {"prefill", "decode"}
    own = {row.workload.test: row.peer_ratio for row in log.rows if row.setting.engine == "tandem"}
    assert own["parallel"] is None and own["generate"] is None and own["decode"] is not None


def test_a_variant_that_fails_is_noted_once_and_left_out() -> None:
    def fail(call: PeerCall, variant: Variant) -> None:
        if variant.name == "default" and call.workload.test == "decode":
            raise PeerError("it broke")

    log, peer = Log(), FakePeer()
    peer.on_measure = fail
    session, _ = run(SMALL, log, FakeLoads(), peer)
    assert len(session.failures) == 1
    assert log.notes[1:] == ["decode 4, default: it broke"]
    assert [row.setting.variant for row in log.rows] == ["", "default", "--repack 0", "", "--repack 0"]
    assert len(log.rows[3].tokens_per_s_samples) == 3


def test_a_load_that_fails_does_not_hold_the_others_up() -> None:
    def spoil(binding: FakeBinding) -> None:
        if not loads.bindings:
            binding.fail_next = DeviceError("The device is gone.")

    log, loads = Log(), FakeLoads(spoil)
    session, _ = run(replace(SMALL, threads=(1, 2)), log, loads)
    assert [str(failure) for failure in session.failures] == ["The device is gone."]
    assert "a model.gguf: The device is gone." in log.notes
    assert {row.setting.threads for row in log.rows} == {2}


def test_our_own_bugs_are_not_hidden() -> None:
    def spoil(binding: FakeBinding) -> None:
        binding.fail_next = ZeroDivisionError("a bug")

    with pytest.raises(ZeroDivisionError):
        run(SMALL, Log(), FakeLoads(spoil))


@pytest.mark.parametrize("kind", ["loading", "measuring", "finished"])
def test_it_can_be_stopped_at_every_event(kind: str) -> None:
    """From the listener itself, at the first event of that kind: nothing more is begun."""
    sessions: list[BenchSession] = []
    log, loads = Log(lambda event: sessions[0].stop() if event == kind else None), FakeLoads()
    sessions.append(BenchSession(PLAN, log, version="9", load=loads, open_probe=lambda options, progress: FakeProbe()))
    with pytest.raises(BenchStopped):
        sessions[0].run([MODEL])
    assert len(log.rows) == (1 if kind == "finished" else 0)
    assert all(binding.is_closed for binding in loads.bindings)


def test_a_stop_during_a_run_keeps_what_was_finished() -> None:
    """The device waits in the second repeat of the decode test; the first one still makes a row."""
    # Prefill: a warm-up and three repeats of one run; decode: a warm-up of four runs, then four a repeat.
    log, loads = Log(), FakeLoads(lambda binding: binding.hold_at_run(4 + 4 + 4 + 2))
    session = BenchSession(SMALL, log, version="9", load=loads, open_probe=lambda options, progress: FakeProbe())
    outcome: list[BaseException] = []

    def work() -> None:
        try:
            session.run([MODEL])
        except BaseException as error:
            outcome.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    while not loads.bindings:
        time.sleep(0.001)
    assert loads.bindings[0].entered.wait(10)
    session.stop()
    thread.join(10)
    assert not thread.is_alive() and isinstance(outcome[0], BenchStopped)
    assert [(row.workload.test, len(row.tokens_per_s_samples), row.is_complete) for row in log.rows] == [
        ("prefill", 3, True),
        ("decode", 1, False),
    ]
    assert loads.bindings[0].is_closed


def test_a_stop_while_the_peer_measures_ends_the_peer() -> None:
    log, peer = Log(), FakePeer()
    session = BenchSession(
        SMALL, log, version="9", peer=peer, load=FakeLoads(), open_probe=lambda options, progress: FakeProbe()
    )
    peer.on_measure = lambda call, variant: session.stop() if variant.name == "--repack 0" else None
    with pytest.raises(BenchStopped):
        session.run([MODEL])
    assert [(row.setting.variant, len(row.tokens_per_s_samples)) for row in log.rows] == [("", 1), ("default", 1)]


def test_a_stop_in_the_engines_test_ends_the_generation() -> None:
    plan = BenchPlan(prompts=(8,), outputs=(40,), repeats=2, threads=(1,))
    log = Log(lambda event: session.stop() if event == "measuring" and "generate" in log.titles[-1][0] else None)
    session = BenchSession(plan, log, version="9", load=FakeLoads(), open_probe=lambda options, progress: FakeProbe())
    with pytest.raises(BenchStopped):
        session.run([MODEL])
    assert [row.workload.test for row in log.rows] == ["prefill", "decode"]
