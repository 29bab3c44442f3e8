"""`tandem doctor`: complete, parseable, and without secrets."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path

from faked_cards import cards_of, fake_card

from app.doctor import Folders, diagnose, gpu_lines, run
from app.output import Console


def folders_in(folder: Path) -> Folders:
    return Folders(models=folder, kernels=folder / "kernels", settings_file=folder / "settings.toml")


def test_the_json_object_holds_what_a_bug_report_needs(tmp_path: Path) -> None:
    (tmp_path / "x.gguf").write_bytes(b"GGUF")
    stdout = io.StringIO()
    (tmp_path / "kernels" / "avx2-0123").mkdir(parents=True)
    (tmp_path / "kernels" / "avx2-0123" / "x.o").touch()
    assert run(folders_in(tmp_path), Console(stdout, None), as_json=True) == 0
    value = json.loads(stdout.getvalue())
    assert re.fullmatch(r"3\.\d+\.\d+.*", value["versions"]["python"])
    assert {"numpy", "numba", "llvmlite", "textual"} <= set(value["versions"])
    assert value["machine"]["allowed_cpus"] >= value["default_threads"] >= 1
    assert value["machine"]["isa"] in ("avx512", "avxvnni", "avx2", "neon", "portable")
    assert value["models"] == {
        "folder": str(tmp_path),
        "num_models": 1,
        "size_bytes": 4,
        "free_bytes": value["models"]["free_bytes"],
    }
    assert value["models"]["free_bytes"] > 0
    assert value["kernels"] == {
        "folder": str(tmp_path / "kernels"),
        "is_writable": True,
        "num_kernels": {"avx2-0123": 1},
    }
    assert value["settings_file_exists"] is False
    assert value["devices"][0].startswith("cpu: ")
    assert value["devices"][1].startswith("gpu")


def test_cards_are_told_with_their_driver_and_what_is_free() -> None:
    card = fake_card(12, free_gib=11)
    assert gpu_lines(cards_of(card, fake_card(4, index=1, capability=(8, 9)))) == [
        "gpu 0: Fake 12 GB, compute capability 8.6, 11.8 GB of 12.9 GB free, driver 580.65",
        "gpu 1: Fake 4 GB, compute capability 8.9, 4.3 GB of 4.3 GB free, driver 580.65",
        "gpu: layers are not spread over several: one is used, with most memory free, or which --device NUMBER says",
    ]
    assert gpu_lines(cards_of()) == ["gpu: NVIDIA's driver finds no GPU."]


def test_the_text_tells_the_same(tmp_path: Path) -> None:
    stdout = io.StringIO()
    run(folders_in(tmp_path / "none"), Console(stdout, None), as_json=False)
    text = stdout.getvalue()
    assert f"models: {tmp_path / 'none'} (0, 0 bytes, " in text
    assert f"settings: {tmp_path / 'none' / 'settings.toml'} (not there)" in text
    assert re.search(r"^  default_threads: \d+$", text, re.MULTILINE)
    assert re.search(r"^  memory_total_bytes: [\d.]+ GB$", text, re.MULTILINE)


def test_secrets_are_told_only_as_being_set(tmp_path: Path) -> None:
    environment = {
        "HF_TOKEN": "hf_secret",
        "PIP_INDEX_URL": "https://user:secret@host/simple",
        "HF_ENDPOINT": "http://127.0.0.1:1",
        "TANDEM_TEMP": "0.5",
        "PASSWORD": "secret",
        "NO_COLOR": "1",
    }
    shown = diagnose(folders_in(tmp_path), environment).environment
    assert shown == {
        "HF_ENDPOINT": "http://127.0.0.1:1",
        "HF_TOKEN": "(set)",
        "NO_COLOR": "1",
        "PIP_INDEX_URL": "(set)",
        "TANDEM_TEMP": "0.5",
    }
