"""A bench of a tiny model on the real CPU device: every kind of test, every figure, and the memory given back."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from emulated_gpu import install
from tiny_models import write_tiny_model

from runtime.benchmark.end_to_end import EngineDriver
from runtime.benchmark.loading import load_model
from runtime.benchmark.results import Row
from runtime.benchmark.session import BenchSession
from runtime.benchmark.workloads import BenchPlan
from runtime.options import EngineOptions


class Rows:
    """A listener that keeps rows and stages."""

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self.stages: set[str] = set()
        self.notes: list[str] = []

    def loading(self, title: str, stage: str, done: int, total: int) -> None:
        self.stages.add(stage)

    def measuring(self, title: str, done: int, total: int) -> None:
        pass

    def finished(self, row: Row) -> None:
        self.rows.append(row)

    def noted(self, text: str) -> None:
        self.notes.append(text)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_model(tmp_path_factory.mktemp("models") / "tiny ü.gguf", format="Q4_0")


def test_a_real_device_fills_every_figure(path: Path) -> None:
    plan = BenchPlan(
        prompts=(70,),
        outputs=(5,),
        depths=(0, 130),
        repeats=2,
        threads=(1, 2),
        batch_sizes=(64,),
        verify=(4,),
        parallel=(3,),
    )
    rows, num_threads = Rows(), threading.active_count()
    session = BenchSession(plan, rows, version="9")
    session.run([path])
    assert not session.failures and "weights" in rows.stages
    assert len(rows.rows) == 2 * len(plan.workloads())
    assert {row.setting.threads for row in rows.rows} == {1, 2}
    for row in rows.rows:
        assert len(row.tokens_per_s_samples) == 2 and row.spread.least > 0
        (device,) = row.devices
        assert device.device == "cpu" and device.limited_by in ("memory", "multiplier")
        assert device.moved_bytes_per_token > 0 and device.byte_multiply_adds_per_token > 0
        assert device.read_bytes_per_s > 0 and device.limit_share > 0
        assert row.setting.isa in ("avx512", "avxvnni", "avx2", "neon", "portable")
        assert row.setting.model_fingerprint and row.load is not None
    assert threading.active_count() == num_threads


def test_layers_on_a_gpu_are_measured_and_told(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    card = install(monkeypatch)
    plan = BenchPlan(
        prompts=(20,), outputs=(3,), repeats=1, threads=(1,), gpu_layers=(0, 1, "all"), vram_margin_bytes=0
    )
    rows = Rows()
    session = BenchSession(plan, rows, version="9")
    session.run([path])
    assert not session.failures and "gpu-weights" in rows.stages
    for row in rows.rows:
        gpu_layers, times = row.setting.gpu_layers, (row.cpu_ms_per_token, row.gpu_ms_per_token)
        devices = [device.device for device in row.devices]
        split = {0: ["cpu"], 1: ["cpu", card.name], 2: [card.name]}[gpu_layers]
        assert devices == (split if gpu_layers == 0 or row.workload.test == "decode" else [])
        assert all(device.moved_bytes_per_token > 0 and device.limit_share > 0 for device in row.devices)
        if gpu_layers == 0 or row.workload.test == "generate":
            assert times == (None, None)
            continue
        assert row.cpu_ms_per_token is not None and row.gpu_ms_per_token is not None
        assert row.gpu_ms_per_token > 0 and (row.cpu_ms_per_token > 0) == (gpu_layers == 1)
        assert row.cpu_ms_per_token + row.gpu_ms_per_token < 1.05e3 / row.tokens_per_s
        assert row.transfer_ms_per_token is not None
    assert sorted({row.setting.gpu_layers for row in rows.rows}) == [0, 1, 2]


def test_an_answer_through_the_engine_is_as_long_as_asked(path: Path) -> None:
    options = EngineOptions(context_size=64, threads=1)
    driver = EngineDriver(load_model(path, options, lambda stage, done, total: None))
    try:
        cancels: list[object] = []
        generated = driver.generate(20, 7, cancels.append)
        assert generated is not None and len(cancels) == 1
        assert (generated.timings.prompt_tokens, generated.timings.output_tokens) == (20, 7)
        assert generated.timings.reused_tokens == 0
        assert driver.generate(20, 7, cancels.append).timings.reused_tokens == 0  # type: ignore[union-attr]
        assert driver.generate(20, 40, lambda cancel: cancel()) is None
    finally:
        driver.close()


def test_a_model_that_is_none_is_noted(tmp_path: Path) -> None:
    rows = Rows()
    (tmp_path / "none.gguf").write_bytes(b"nothing")
    session = BenchSession(BenchPlan(prompts=(8,), outputs=(0,), repeats=1), rows, version="9")
    session.run([tmp_path / "none.gguf"])
    assert len(session.failures) == 1 and not rows.rows
    assert rows.notes[0].startswith("none.gguf: ")
