"""`tandem tune` from the command line on, with a session that plays results: streams, files, statuses, Ctrl-C."""

from __future__ import annotations

import json
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from command_line import run_tandem

import app.tune.command
from app.profiles import load_profile, profile_path
from app.tune.command import run
from runtime.benchmark.statistics import spread_of
from runtime.tuning.samples import Stage, TuneResult, TuneSample, TuneSetting
from runtime.tuning.session import Fixed

BASE = TuneSetting(gpu_layers=0, threads=2, batch_size=512, cache_type_k="f16", cache_type_v="f16")


def sample(stage: Stage, decode: float, prompt: float, **setting: Any) -> TuneSample:
    chosen = TuneSetting(**{**vars(BASE), **setting})
    return TuneSample(stage=stage, setting=chosen, decode=spread_of([decode]), prompt=spread_of([prompt]))


THREADS = (sample("threads", 40, 100, threads=1), sample("threads", 50, 200))
BATCHES = (sample("batch", 50, 150, batch_size=128), THREADS[1])


def result(**more: Any) -> TuneResult:
    return TuneResult(
        **{
            "context_size": 4096,
            "num_layers": 30,
            "curves": (("threads", THREADS), ("batch", BATCHES)),
            "chosen": THREADS[1],
            "read_bytes_per_s": 2e10,
            "is_complete": True,
            **more,
        }
    )


class PlaybackSession:
    """Plays one result; `during` is called in the measuring thread."""

    def __init__(self, played: TuneResult, during: Callable[[PlaybackSession], None] = lambda session: None) -> None:
        self._played, self._during = played, during
        self.fixed: Fixed | None = None
        self.options: Any = None
        self.stopped = threading.Event()

    def __call__(self, options: Any, fixed: Fixed, listener: Any, **_: Any) -> PlaybackSession:
        self.options, self.fixed, self._listener = options, fixed, listener
        return self

    def run(self, path: Path) -> TuneResult:
        self._listener.loading("2 threads", "weights", 1, 2)
        self._listener.measuring("2 threads", 1, 3)
        for measured in THREADS:
            self._listener.finished(measured)
        self._listener.noted("A note.")
        self._during(self)
        return self._played

    def stop(self) -> None:
        self.stopped.set()


@pytest.fixture(autouse=True)
def settings_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "settings.toml").touch()
    monkeypatch.setenv("TANDEM_CONFIG", str(tmp_path / "settings.toml"))
    return tmp_path


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "a model.gguf"
    path.write_bytes(b"GGUF")
    return path


def command(monkeypatch: pytest.MonkeyPatch, session: PlaybackSession, *arguments: str | Path) -> tuple[int, str, str]:
    """Status, stdout and stderr of `tandem tune`."""
    monkeypatch.setattr(
        app.tune.command,
        "run",
        lambda request, console: run(request, console, make_session=session),  # type: ignore[arg-type]
    )
    return run_tandem("tune", *arguments)


def test_the_choice_is_all_that_reaches_stdout_and_is_kept(monkeypatch: pytest.MonkeyPatch, model: Path) -> None:
    status, out, err = command(monkeypatch, PlaybackSession(result()), model)
    assert status == 0
    assert out.splitlines() == [
        "threads   2",
        "batch     512",
        "KV cache  f16",
        "context   4096 tokens",
        "decode    50.00 tokens/s",
        "prompt    200.0 tokens/s",
        "answer    33.33 tokens/s (256 tokens, after a prompt of 512, reading included)",
    ]
    assert "1 thread: decode 40.00, prompt 100.0 tokens/s\n" in err and "note: A note.\n" in err
    assert "Threads: decode, tokens/s\n" in err and "Batch size: prompt, tokens/s\n" in err
    assert "  2 threads *  " in err and "  1 thread     " in err
    profile = load_profile(profile_path(model))
    assert profile is not None
    assert (profile.threads, profile.batch_size, profile.context_size) == (2, 512, 4096)
    assert (profile.tokens_per_s, profile.read_bytes_per_s, profile.most_gpu_layers) == (50, 2e10, None)
    assert f"Kept in {profile_path(model)}" in err


def test_a_dry_run_keeps_nothing(monkeypatch: pytest.MonkeyPatch, model: Path) -> None:
    status, out, err = command(monkeypatch, PlaybackSession(result()), model, "--dry-run", "--json")
    value = json.loads(out)
    assert (status, value["profile"], value["is_complete"]) == (0, None, True)
    assert value["chosen"]["decode_tokens_per_s"] == 50
    assert [curve["varied"] for curve in value["curves"]] == ["threads", "batch"]
    assert not profile_path(model).exists() and "Kept" not in err


def test_flags_are_not_varied_and_settings_are_where_it_begins(
    monkeypatch: pytest.MonkeyPatch, model: Path, settings_folder: Path
) -> None:
    (settings_folder / "settings.toml").write_text("threads = 1\nbatch_size = 256\n")
    session = PlaybackSession(result())
    command(monkeypatch, session, model, "-t", "2", "-ctk", "q8_0", "-ngl", "auto", "-c", "999")
    assert session.fixed == Fixed(threads=True, cache_types=True)
    assert (session.options.threads, session.options.batch_size, session.options.context_size) == (2, 256, 999)
    assert session.options.cache_type_k == "q8_0"


def test_the_curves_become_a_picture(monkeypatch: pytest.MonkeyPatch, model: Path, tmp_path: Path) -> None:
    plot = tmp_path / "curves.svg"
    command(monkeypatch, PlaybackSession(result()), model, "--plot", plot)
    texts = [element.text for element in ElementTree.parse(plot).iter() if element.text]
    assert {"tandem tune", "Threads: decode, tokens/s", "2 threads *", "1 thread"} <= set(texts)
    assert command(monkeypatch, PlaybackSession(result()), model, "--plot", "curves.jpeg")[0] == 2


def test_an_interrupt_keeps_the_best_of_what_was_measured(monkeypatch: pytest.MonkeyPatch, model: Path) -> None:
    def during(session: PlaybackSession) -> None:
        signal.raise_signal(signal.SIGINT)
        assert session.stopped.wait(10)

    played = result(is_complete=False, curves=(("threads", THREADS[:1]),), chosen=THREADS[0], read_bytes_per_s=None)
    status, out, err = command(monkeypatch, PlaybackSession(played, during), model)
    assert status == 130
    assert "threads   1" in out and "this is the best of what was measured" in err
    profile = load_profile(profile_path(model))
    assert profile is not None and (profile.threads, profile.read_bytes_per_s) == (1, None)


def test_an_interrupt_before_anything_was_measured_leaves_nothing(monkeypatch: pytest.MonkeyPatch, model: Path) -> None:
    def during(session: PlaybackSession) -> None:
        signal.raise_signal(signal.SIGINT)
        assert session.stopped.wait(10)

    played = result(is_complete=False, curves=(), chosen=None, read_bytes_per_s=None)
    status, out, _ = command(monkeypatch, PlaybackSession(played, during), model)
    assert (status, out) == (130, "") and not profile_path(model).exists()
