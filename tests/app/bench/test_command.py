"""`tandem bench` from the command line on, with a session that plays rows: streams, files, statuses, Ctrl-C."""

from __future__ import annotations

import json
import signal
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from bench_rows import FakeLoads, FakeProbe, make_row, peer_row, write_llama_bench
from command_line import run_tandem

import app.bench.command
from app.bench.command import run
from app.profiles import Profile, profile_path, save_profile
from runtime.benchmark.results import Row
from runtime.benchmark.session import BenchSession
from runtime.benchmark.trials import BenchStopped
from runtime.benchmark.workloads import BenchPlan
from runtime.machine import read_machine

ROWS = (make_row(), peer_row())


@pytest.fixture(autouse=True)
def no_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "settings.toml").touch()
    monkeypatch.setenv("TANDEM_CONFIG", str(tmp_path / "settings.toml"))


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "a model.gguf"
    path.touch()
    return path


class PlaybackSession:
    """Hands rows out; `during` is called after them, in the measuring thread."""

    def __init__(self, rows: Sequence[Row] = ROWS, during: Callable[[PlaybackSession], None] | None = None) -> None:
        self.rows, self.during = rows, during
        self.failures: list[Exception] = []
        self.plans: list[BenchPlan] = []
        self.keywords: dict[str, Any] = {}
        self.paths: list[Path] = []
        self.stopped = threading.Event()

    def __call__(self, plan: BenchPlan, listener: Any, **keywords: Any) -> PlaybackSession:
        self.plans.append(plan)
        self._listener, self.keywords = listener, keywords
        return self

    def run(self, paths: Sequence[Path]) -> None:
        self.paths = list(paths)
        self._listener.loading("a model", "weights", 1, 2)
        self._listener.measuring("a model, decode 128", 1, 3)
        self._listener.noted("A note.")
        self._listener.noted("A note.")
        for row in self.rows:
            self._listener.finished(row)
        if self.during is not None:
            self.during(self)

    def stop(self) -> None:
        self.stopped.set()


def command(
    monkeypatch: pytest.MonkeyPatch, *arguments: str, session: PlaybackSession | None = None
) -> tuple[int, str, str]:
    """Status, stdout and stderr of `tandem bench`."""
    played = session or PlaybackSession()
    monkeypatch.setattr(
        app.bench.command,
        "run",
        lambda request, console: run(request, console, make_session=played),  # type: ignore[arg-type]
    )
    return run_tandem("bench", *arguments)


@pytest.fixture
def tuned(model: Path) -> Profile:
    """What `tandem tune` found for the model on this machine."""
    machine = read_machine()
    profile = Profile(
        model_file=model.name, size_bytes=0, cpu_name=machine.cpu_name, num_cores=machine.num_cores,
        allowed_cpus=machine.allowed_cpus, gpu=None, context_size=2048, threads=1, batch_size=128,
        cache_type_k="q8_0", cache_type_v="q8_0", most_gpu_layers=7, tokens_per_s=1.0, prompt_tokens_per_s=1.0,
        answer_tokens_per_s=1.0, read_bytes_per_s=None, date="2026-01-02",
    )  # fmt: skip
    save_profile(profile, profile_path(model))
    return profile


def planned(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> tuple[BenchPlan, str]:
    """The plan that is measured, and stderr."""
    session = PlaybackSession()
    _, _, stderr = command(monkeypatch, *arguments, session=session)
    return session.plans[-1], stderr


def test_a_profile_holds_as_for_other_runs(monkeypatch: pytest.MonkeyPatch, model: Path, tuned: Profile) -> None:
    plan, stderr = planned(monkeypatch, str(model))
    assert (plan.threads, plan.batch_sizes, plan.cache_types_k, plan.most_gpu_layers) == ((1,), (128,), ("q8_0",), 7)
    assert f"profile: {tuned} (tuned 2026-01-02" in stderr
    plan, _ = planned(monkeypatch, str(model), "-t", "2,1", "-ctk", "f16")
    assert (plan.threads, plan.cache_types_k, plan.cache_types_v) == ((2, 1), ("f16",), ("f16",))
    assert planned(monkeypatch, str(model), "-d", "4096")[0].most_gpu_layers is None  # more than it was measured with


def test_a_profile_can_be_left_out(
    monkeypatch: pytest.MonkeyPatch, model: Path, tuned: Profile, tmp_path: Path
) -> None:
    for arguments in ([str(model), "--no-profile"], [str(model), "--activations", "fast"]):
        plan, stderr = planned(monkeypatch, *arguments)
        assert (plan.threads, plan.most_gpu_layers) == ((None,), None)
        assert "profile" not in stderr
    other = tmp_path / "another.gguf"
    other.touch()
    plan, stderr = planned(monkeypatch, str(model), str(other))
    assert plan.threads == (None,)
    assert "their profiles are left out" in stderr


def test_the_table_is_all_that_reaches_stdout(monkeypatch: pytest.MonkeyPatch, model: Path) -> None:
    status, stdout, stderr = command(monkeypatch, str(model))
    assert status == 0
    assert stdout.startswith("| engine") and "- CPU:" in stdout and stdout.endswith("\n")
    assert (
        stderr.count("note: A note.") == 1
        and "decode 128, 2 threads, balanced: 300.0 tokens/s (290.0 .. 320.0)" in stderr
    )
    assert "Decode, tokens/s" in stderr and "Decode, tokens/s" not in stdout


@pytest.mark.parametrize("format", ["json", "jsonl", "csv"])
def test_other_formats_hold_rows_and_environment(monkeypatch: pytest.MonkeyPatch, model: Path, format: str) -> None:
    status, stdout, stderr = command(monkeypatch, str(model), "--format", format, "--no-chart")
    assert status == 0 and "Decode, tokens/s" not in stderr
    if format == "json":
        document = json.loads(stdout)
        rows, environment = document["rows"], document["environment"]
        assert environment["options"]["models"] == ["a model.gguf"] and environment["load_end"] is not None
    elif format == "jsonl":
        rows = [json.loads(line) for line in stdout.splitlines()]
        environment = rows[0]["environment"]
    else:
        assert stdout.count("\n") == 3 and "machine_cpu_name" in stdout
        return
    assert [row["engine"] for row in rows] == ["tandem", "llama.cpp"]
    assert environment["machine"]["cpu_name"] and environment["versions"]["numpy"] and environment["date"]


def test_flags_reach_the_plan(monkeypatch: pytest.MonkeyPatch, model: Path) -> None:
    session = PlaybackSession()
    words = "-p 8 -n 4 -d 0,16 -r 2 -t 1 -b 32 --activations fast --verify 4 --parallel 2 --no-generate --isa avx2"
    assert command(monkeypatch, str(model), *words.split(), session=session)[0] == 0
    (plan,) = session.plans
    assert (plan.prompts, plan.outputs, plan.depths, plan.repeats) == ((8,), (4,), (0, 16), 2)
    assert (plan.threads, plan.batch_sizes, plan.activations, plan.isa) == ((1,), (32,), ("fast",), "avx2")
    assert (plan.verify, plan.parallel, plan.has_generate) == ((4,), (2,), False)
    assert session.paths == [model] and session.keywords["peer"] is None


def test_settings_are_defaults(monkeypatch: pytest.MonkeyPatch, model: Path) -> None:
    monkeypatch.setenv("TANDEM_THREADS", "1")
    monkeypatch.setenv("TANDEM_ACTIVATIONS", "exact")
    monkeypatch.setenv("TANDEM_KERNELS_DIR", "kernels")
    monkeypatch.setenv("TANDEM_MODEL", str(model))
    session = PlaybackSession()
    assert command(monkeypatch, "--activations", "fast", session=session)[0] == 0
    (plan,) = session.plans
    assert (plan.threads, plan.activations, plan.kernel_folder) == ((1,), ("fast",), Path("kernels"))
    assert session.paths == [model]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("-p", "0", "-n", "0"), "There is nothing to measure."),
        (("-r", "0"), "--repetitions"),
        (("--activations", "rough"), "--activations"),
        (("--plot", "x.gif"), "--plot draws SVG or PNG"),
        (("--peer", "x"), "both are needed"),
        (("--n-promt", "1"), "did you mean --n-prompt"),
        (("--compare", "a", "b", "--plot", "x.svg"), "measures nothing"),
    ],
)
def test_what_makes_no_sense_is_a_usage_error(
    monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], sentence: str
) -> None:
    status, stdout, stderr = command(monkeypatch, *words)
    assert (status, stdout) == (2, "")
    assert sentence in stderr and stderr.startswith("usage: tandem bench")


def test_a_plot_is_written(monkeypatch: pytest.MonkeyPatch, model: Path, tmp_path: Path) -> None:
    plot = tmp_path / "plot.svg"
    assert command(monkeypatch, str(model), "--plot", str(plot))[0] == 0
    assert ElementTree.fromstring(plot.read_text(encoding="utf-8")).tag.endswith("svg")
    picture = tmp_path / "plot.png"
    assert command(monkeypatch, str(model), "--plot", str(picture))[0] == 0
    assert picture.read_bytes().startswith(b"\x89PNG")
    (tmp_path / "folder.svg").mkdir()
    status, stdout, stderr = command(monkeypatch, str(model), "--plot", str(tmp_path / "folder.svg"))
    assert status == 0 and stdout and "can't be written: Is a directory" in stderr
    status, stdout, stderr = command(monkeypatch, str(model), "--plot", str(tmp_path / "no" / "plot.svg"))
    assert status == 2 and not stdout and f"there is no folder {tmp_path / 'no'}" in stderr


def test_the_peer_is_found_and_handed_over(monkeypatch: pytest.MonkeyPatch, model: Path, tmp_path: Path) -> None:
    session = PlaybackSession()
    peer = str(write_llama_bench(tmp_path))
    assert command(monkeypatch, str(model), "--against", "llama.cpp", "--peer", peer, session=session)[0] == 0
    assert session.keywords["peer"].version == "4711 (c0ffee)"
    status, stdout, stderr = command(monkeypatch, str(model), "--against", "llama.cpp", "--peer", str(model))
    assert (status, stdout) == (1, "") and "llama.cpp can't be measured" in stderr


def test_a_failure_keeps_the_rows_and_is_status_1(monkeypatch: pytest.MonkeyPatch, model: Path) -> None:
    session = PlaybackSession(during=lambda session: session.failures.append(ValueError()))
    status, stdout, _ = command(monkeypatch, str(model), session=session)
    assert status == 1 and stdout.startswith("| engine")


def test_nothing_measured_prints_nothing(monkeypatch: pytest.MonkeyPatch, model: Path) -> None:
    session = PlaybackSession(rows=(), during=lambda session: session.failures.append(ValueError()))
    assert command(monkeypatch, str(model), session=session)[:2] == (1, "")


def test_our_own_bug_in_the_measuring_thread_is_reported(monkeypatch: pytest.MonkeyPatch, model: Path) -> None:
    def break_down(session: PlaybackSession) -> None:
        raise ZeroDivisionError("a bug")

    status, stdout, stderr = command(monkeypatch, str(model), session=PlaybackSession(during=break_down))
    assert (status, stdout) == (1, "") and "ZeroDivisionError: a bug" in stderr


@pytest.mark.parametrize("signals", [(signal.SIGINT,), (signal.SIGTERM, signal.SIGTERM)])
@pytest.mark.parametrize("format", ["md", "json", "jsonl", "csv"])
def test_an_interrupt_keeps_the_finished_rows(
    monkeypatch: pytest.MonkeyPatch, model: Path, format: str, signals: tuple[signal.Signals, ...]
) -> None:
    def interrupt(session: PlaybackSession) -> None:
        for number in signals:
            signal.pthread_kill(threading.main_thread().ident or 0, number)
        assert session.stopped.wait(10)
        raise BenchStopped("stopped")

    session = PlaybackSession(rows=ROWS[:1], during=interrupt)
    status, stdout, _ = command(monkeypatch, str(model), "--format", format, session=session)
    assert status == 130
    assert "300.0" in stdout


def test_a_real_session_from_flags_to_json(monkeypatch: pytest.MonkeyPatch, model: Path, tmp_path: Path) -> None:
    """Everything but the device: a plan, two engines in turn, a document."""

    def make(plan: BenchPlan, listener: Any, **keywords: Any) -> BenchSession:
        return BenchSession(
            plan, listener, load=FakeLoads(), open_probe=lambda options, progress: FakeProbe(), **keywords
        )

    words = "-p 8 -n 4 -r 2 -t 1 --verify 2 --parallel 2 --format json --against llama.cpp --peer"
    arguments = [str(model), *words.split(), str(write_llama_bench(tmp_path, rates="50.0"))]
    status, stdout, stderr = command(monkeypatch, *arguments, session=make)  # type: ignore[arg-type]
    assert status == 0, stderr
    rows = json.loads(stdout)["rows"]
    assert [(row["engine"], row["test"], row["variant"]) for row in rows] == [
        *(("tandem", "prefill", ""), ("llama.cpp", "prefill", "default"), ("llama.cpp", "prefill", "--repack 0")),
        *(("tandem", "decode", ""), ("llama.cpp", "decode", "default"), ("llama.cpp", "decode", "--repack 0")),
        *(("tandem", "verify", ""), ("llama.cpp", "verify", "default"), ("llama.cpp", "verify", "--repack 0")),
        ("tandem", "parallel", ""),
        ("tandem", "generate", ""),
    ]
    assert rows[0]["peer_ratio"]["ratio"]["median"] > 0 and rows[9]["peer_ratio"] is None
