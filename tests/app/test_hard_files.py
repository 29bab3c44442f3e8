"""`tandem generate -m` with what is no model: one clear sentence, status 1, nothing on stdout, nothing loaded."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from command_line import run_tandem
from tiny_models import Tensor, gguf_bytes, write_tiny_model

Refused = Callable[[str], str]
A_HALF = Tensor(name="blk.0.attn_q.weight.lora_a", ggml_id=0, shape=(1, 4), data=np.zeros(4, "<f4").tobytes())


@pytest.fixture
def refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Refused:
    """What the command says of a model that it refuses."""
    (tmp_path / "settings.toml").touch()
    monkeypatch.setenv("TANDEM_CONFIG", str(tmp_path / "settings.toml"))
    monkeypatch.setenv("TANDEM_MODELS_DIR", str(tmp_path / "models"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.chdir(tmp_path)

    def run(model: str) -> str:
        monkeypatch.setattr("runtime.devices.cpu.bind", lambda *_: pytest.fail("nothing may be loaded"))
        status, out, said = run_tandem("generate", "-m", model, "-p", "x")
        assert status == 1 and out == ""
        assert said.startswith("tandem: ") and said.count("\n") == 1 and said.endswith((".\n", "?\n"))
        assert "Traceback" not in said and "\x1b" not in said
        return said

    return run


def test_files_that_hold_nothing_or_something_else(refused: Refused, tmp_path: Path) -> None:
    contents = {
        "empty.gguf": (b"", "is empty (0 bytes)"),
        "page.gguf": (b"<!DOCTYPE html><html>", "It looks like a web page"),
        "lfs.gguf": (b"version https://git-lfs.github.com/spec/v1", "a Git LFS pointer"),
        "zip.gguf": (b"PK\x03\x04" + bytes(60), "a ZIP archive"),
        "\x1b[2J.gguf": (b"GGUX", "expected 'GGUF'"),
    }
    for name, (data, words) in contents.items():
        (tmp_path / name).write_bytes(data)
        assert words in refused(name)


def test_places_that_are_no_files(refused: Refused, tmp_path: Path) -> None:
    (tmp_path / "folder.gguf").mkdir()
    write_tiny_model(tmp_path / "folder.gguf" / "inside.gguf")
    os.mkfifo(tmp_path / "pipe.gguf")
    (tmp_path / "dangling.gguf").symlink_to("nowhere")
    (tmp_path / "round.gguf").symlink_to("round.gguf")
    for name, words in (
        ("folder.gguf", "is a folder: name the .gguf file in it (it holds 'inside.gguf')"),
        ("pipe.gguf", "a device, pipe or socket"),
        ("/dev/zero", "a device, pipe or socket"),
        ("dangling.gguf", "does not exist"),
        ("round.gguf", "cannot be opened: Too many levels of symbolic links"),
        ("~nobody-of-that-name/x.gguf", "There is no file"),
        ("x" * 300 + ".gguf", "There is no file"),
    ):
        assert words in refused(name), name


def test_parts_of_models(refused: Refused, tmp_path: Path) -> None:
    whole = write_tiny_model(tmp_path / "whole.gguf").read_bytes()
    (tmp_path / "cut.gguf").write_bytes(whole[: len(whole) * 3 // 4])
    (tmp_path / "m.gguf.part1of2").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "typed.gguf").write_bytes(gguf_bytes({"general.type": "adapter"}, [A_HALF]))
    (tmp_path / "old.gguf").write_bytes(gguf_bytes({"general.architecture": "llama"}, [A_HALF]))
    for name, words in (
        ("cut.gguf", "tensors are not complete, the first is"),
        ("./m.gguf.part1of2", "put all pieces together again"),
        ("typed.gguf", "not a language model but a LoRA adapter"),
        ("old.gguf", "not a language model but a LoRA adapter"),
    ):
        assert words in refused(name), name


@pytest.mark.parametrize(
    "name",
    ["owner/repo:../../../secret.gguf", "owner/../../secret", "../secret", "owner/repo:/etc/passwd", "./../x.gguf"],
)
def test_names_that_would_lead_out_of_the_models_folder(refused: Refused, name: str, tmp_path: Path) -> None:
    (tmp_path / "models" / "owner" / "repo").mkdir(parents=True)
    (tmp_path / "secret.gguf").write_bytes(b"GGUF")
    said = refused(name)
    assert "There is no file" in said or "downloads are off" in said
