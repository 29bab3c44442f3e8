"""Where another engine's benchmark is looked for."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from bench_rows import write_llama_bench

import app.bench.finding_peer
from app.bench.finding_peer import find_peer
from app.errors import AppError
from runtime.benchmark.peers import PeerError


def test_it_is_found_on_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_llama_bench(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_peer("llama.cpp", None).name == "llama.cpp"


@pytest.mark.parametrize("inside", ["", "bin", "build/bin"])
def test_a_folder_stands_for_what_is_in_it(tmp_path: Path, inside: str) -> None:
    folder = tmp_path / inside
    folder.mkdir(parents=True, exist_ok=True)
    write_llama_bench(folder)
    assert find_peer("ik_llama.cpp", str(tmp_path)).name == "ik_llama.cpp"


def test_a_file_is_taken_as_it_is(tmp_path: Path) -> None:
    path = write_llama_bench(tmp_path).rename(tmp_path / "my-bench")
    assert find_peer("llama.cpp", str(path)).version.startswith("4711")


def test_a_python_is_asked_for_llama_cpp() -> None:
    with pytest.raises(PeerError, match="llama_cpp"):
        find_peer("llama.cpp", sys.executable)


def test_nothing_found_is_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(app.bench.finding_peer, "find_spec", lambda name: None)
    with pytest.raises(AppError, match="there is no llama-bench on the PATH"):
        find_peer("llama.cpp", None)
    with pytest.raises(AppError, match="nowhere is neither a program nor a folder with one"):
        find_peer("llama.cpp", "nowhere")
    (tmp_path / "notes.txt").touch()
    with pytest.raises(AppError, match="neither a program"):
        find_peer("llama.cpp", str(tmp_path / "notes.txt"))
