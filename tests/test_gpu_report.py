"""`make test-gpu` and `make bench-gpu` without a GPU: what they call, and that a part that fails costs no other."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from command_line import run_tandem
from emulated_device import EmulatedDevice
from faked_cards import cards_of, fake_card
from large_models import Experts, fill, write_large_mixture, write_large_model
from tiny_models import TinyShape

from kernels_gpu.measuring import Sizes
from runtime import cards

SMALL = Sizes(
    rows=64, columns=256, tokens=9, positions=70, num_heads=4, num_kv_heads=2, head_dim=32, spread_bytes=1 << 15,
    copied_bytes=1 << 12, blocks=2, rounds=3, repeats=2,
)  # fmt: skip
SHAPE = TinyShape(width=256, num_heads=4, num_kv_heads=2, head_dim=64, feed_forward_width=512)


@pytest.fixture
def report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The script, which writes into a folder of its own and finds a card."""
    path = Path(__file__).resolve().parents[1] / ".ci" / "gpu_report.py"
    spec = importlib.util.spec_from_file_location("gpu_report", path)
    assert spec is not None and spec.loader is not None
    monkeypatch.setattr(sys, "path", list(sys.path))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    (tmp_path / "docs").mkdir()
    monkeypatch.setattr(module, "ROOT", tmp_path)
    monkeypatch.setattr(cards, "read_cards", lambda: cards_of(fake_card(8)))
    return module


def written(report: ModuleType) -> str:
    (path,) = (report.ROOT / "docs").iterdir()
    return path.read_text("utf-8")


class Calls:
    """Stands in for subprocesses: kernels are measured on the emulator, the rest says what it is."""

    def __init__(self, report: ModuleType, failing: Sequence[str] = ()) -> None:
        self.report, self.failing, self.commands = report, failing, list[str]()

    def __call__(self, command: Sequence[str], limit_s: float) -> subprocess.CompletedProcess[str]:
        words = " ".join(map(str, command[1:]))
        self.commands.append(words)
        if any(word in words for word in self.failing):
            return subprocess.CompletedProcess(command, 1, "", "Traceback\nthe card is gone")
        if " kernels " in words:
            rows = self.report.measure(words.split(" kernels ")[1].split(), EmulatedDevice(), SMALL)
            return subprocess.CompletedProcess(command, 0, "\n".join(map(json.dumps, rows)), "")
        return subprocess.CompletedProcess(command, 0, f"said {words}\n", "")


def random_models(report: ModuleType, monkeypatch: pytest.MonkeyPatch, paths: Sequence[Any]) -> None:
    monkeypatch.setattr(report, "models", lambda folder, file: iter(paths))
    monkeypatch.setattr(report, "on_disk", lambda name: None)


def test_every_kernel_and_model_is_in_the_file(report: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = Calls(report)
    monkeypatch.setattr(report, "called", calls)
    random_models(report, monkeypatch, [("1B", Path("one.gguf"), "auto"), ("2B", Path("two.gguf"), "all")])
    assert report.main("bench") == 0
    text = written(report)
    assert text.startswith("# Speed on the Fake 8 GB\n") and "driver 580.65" in text
    for name, _ in report.FORMATS:
        assert f"| {name} product_1 |" in text and f"| {name} prompt |" in text
    assert "| attention f16/f16, 1 token |" in text and "int8 products alone" in text
    assert "| 1.00 |" in text and "%" in text
    assert "said -m app bench one.gguf -ngl auto -p 512" in text and "## 2B, -ngl all" in text
    assert "llama.cpp's CUDA build was not measured" in text


def test_what_fails_is_said_and_the_rest_measured(report: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = Calls(report, failing=("kernels Q4_K", "kernels limits", "one.gguf"))
    monkeypatch.setattr(report, "called", calls)
    random_models(report, monkeypatch, [("1B", Path("one.gguf"), "auto"), ("2B", Path("two.gguf"), "all")])
    assert report.main("bench") == 1
    text = written(report)
    assert "The kernels of Q4_K 2 failed: the card is gone" in text and "| Q6_K product_1 |" in text
    assert "It failed: the card is gone" in text and "said -m app bench two.gguf" in text


def test_no_time_is_said(report: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report, "called", Calls(report))
    monkeypatch.setattr(report, "LIMIT_S", 10)
    random_models(report, monkeypatch, [("1B", Path("one.gguf"), "auto")])
    assert report.main("bench") == 0
    assert "There was no time left for 1B with auto layers." in written(report)


def test_a_card_that_only_cuda_finds_is_measured_too(report: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cards, "read_cards", lambda: cards.Cards(fault="No NVIDIA driver was found on this machine."))
    monkeypatch.setattr(report, "called", Calls(report))
    assert report.main("tests") == 0
    assert "CUDA found the card all the same." in written(report)
    assert "-m pytest -m gpu" in written(report)
    monkeypatch.setattr(report, "called", Calls(report, failing=("card",)))
    (report.ROOT / "docs" / written_name(report)).unlink()
    assert report.main("tests") == 1
    assert not list((report.ROOT / "docs").iterdir())


def written_name(report: ModuleType) -> str:
    (path,) = (report.ROOT / "docs").iterdir()
    return path.name


def test_a_command_that_takes_too_long_is_ended_with_what_it_said(report: ModuleType) -> None:
    command = [sys.executable, "-c", "import time; print('begun', flush=True); time.sleep(60)"]
    done = report.called(command, 2)
    assert done.returncode == 124 and done.stdout == "begun\n" and "ended" in done.stderr


def test_a_file_of_random_weights_can_be_measured(tmp_path: Path) -> None:
    path = fill(write_large_model(tmp_path / "random.gguf", SHAPE, vocab_size=600))
    status, out, err = run_tandem(
        "bench", path, "-p", "4", "-n", "2", "-r", "1", "-t", "1", "--device", "cpu", "--no-generate", "--no-chart"
    )
    assert (status, "| 4" in out or "4 |" in out) == (0, True), err
    mixture = write_large_mixture(
        tmp_path / "mixture.gguf", SHAPE, Experts(num_experts=4, num_used=2, width=256), vocab_size=600
    )
    assert fill(mixture).read_bytes()[-64:].strip(b"\0")
