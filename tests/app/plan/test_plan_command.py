"""`tandem plan`: a narrow, aligned table on stdout, or one JSON object; an exit status that scripts can use."""

from __future__ import annotations

import io
import json
import platform
from pathlib import Path

import pytest
from faked_cards import cards_of, fake_card, fake_machine
from large_models import EIGHT_BILLION, write_large_model
from tiny_models import write_tiny_model

from app.cli import main
from app.errors import AppError
from app.output import Console
from app.plan.arguments import PlanRequest
from app.plan.command import run
from app.plan.tables import plan_text, plan_value
from app.preferences import Preferences
from runtime.errors import DeviceError
from runtime.options import EngineOptions
from runtime.plans import plan_model


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_large_model(tmp_path_factory.mktemp("models") / "large.gguf", EIGHT_BILLION)


def test_the_table_names_every_part_of_the_bill(large: Path) -> None:
    plan = plan_model(large, EngineOptions(threads=2), machine=fake_machine(), cards=cards_of(fake_card(6)))
    assert plan_text(plan, None).splitlines()[:16] == [
        "Tiny llama: llama, 32 layers, 8.0 billion parameters",
        "",
        "                      CPU       GPU",
        "weights          429.8 MB    4.2 GB",
        "KV cache f16      33.6 MB    1.0 GB",
        "workspace        105.4 MB  185.2 MB",
        "driver, graphs          -  402.7 MB",
        "total            568.8 MB    5.8 GB",
        "free              68.7 GB    6.4 GB",
        "to be left free  536.9 MB  536.9 MB",
        "                     fits      fits",
        "",
        "layers   the last 31 of 32 on the Fake 6 GB",
        "context  8192 tokens; 8640 would fit, of 131072 that it was trained for",
        "batch    512 tokens",
        "threads  2",
    ]


@pytest.mark.parametrize("columns", [40, 60])
@pytest.mark.parametrize("total_gib", [None, 2, 6, 24])
def test_no_line_is_wider_than_a_narrow_terminal(large: Path, total_gib: float | None, columns: int) -> None:
    cards = cards_of() if total_gib is None else cards_of(fake_card(total_gib))
    options = EngineOptions(cache_type_k="f16", cache_type_v="f16")
    text = plan_text(plan_model(large, options, machine=fake_machine(), cards=cards), columns)
    assert max(map(len, text.splitlines())) <= columns


def test_the_json_object_has_the_same_numbers(large: Path) -> None:
    plan = plan_model(large, EngineOptions(), machine=fake_machine(), cards=cards_of(fake_card(6)))
    value = json.loads(json.dumps(plan_value(plan)))
    assert (value["gpu_layers"], value["context_size"], value["fits"], value["fault"]) == (31, 8192, True, None)
    on_cpu, on_gpu = value["devices"]
    assert (on_cpu["device"], on_gpu["device"]) == ("cpu", "gpu")
    parts = ("weights_bytes", "kv_bytes", "workspace_bytes", "draft_bytes", "graph_bytes")
    for device in value["devices"]:
        assert sum(device[part] for part in parts) == device["total_bytes"]
        assert device["total_bytes"] <= device["free_bytes"] - device["margin_bytes"]
    assert value["forecast"]["tokens_per_s"] > value["forecast"]["full_tokens_per_s"] > 0


def run_plan(path: Path | str, folder: Path, **more: object) -> tuple[int, str, str]:
    stdout, stderr = io.StringIO(), io.StringIO()
    preferences = Preferences(model=str(path), models_dir=str(folder), spec="off", **more.pop("preferences", {}))  # type: ignore[arg-type]
    status = run(PlanRequest(preferences=preferences, **more), Console(stdout, stderr))  # type: ignore[arg-type]
    return status, stdout.getvalue(), stderr.getvalue()


def test_a_plan_that_does_not_fit_is_shown_and_fails(large: Path, tmp_path: Path) -> None:
    status, stdout, stderr = run_plan(
        large, tmp_path, vram_bytes=6 * 2**30, preferences={"gpu_layers": "all", "ctx_size": 32_768}
    )
    assert status == 1
    assert "too much" in stdout and "layers   all 32 on the imagined GPU of 6 GB" in stdout
    assert stderr.startswith("tandem: With a context of 32768 tokens, 32 layers and the head take 9.5 GB (")
    assert stderr.endswith(
        "What fits: -ngl 19, or -c 5120, or -c 9664 with -ctk q8_0 -ctv q8_0, or -c 18176 with -ctk q4_0 -ctv q4_0.\n"
    )


def test_a_tiny_model_fits_and_says_so_as_json_too(tmp_path: Path) -> None:
    path = write_tiny_model(tmp_path / "tiny.gguf")
    status, stdout, stderr = run_plan(path, tmp_path, as_json=True, preferences={"device": "cpu"})
    value = json.loads(stdout)
    assert (status, stderr, value["model"]["path"]) == (0, "", str(path))
    assert value["reasons"] == ["Everything runs on the CPU, as asked for."]


def test_without_a_gpu_layers_can_be_planned_for_one_that_is_not_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.plan.command.usable_cards", lambda options: cards_of())
    path = write_tiny_model(tmp_path / "tiny.gguf")
    with pytest.raises(AppError, match="finds no GPU") as caught:
        run_plan(path, tmp_path, preferences={"gpu_layers": "1"})
    assert caught.value.hint == "--vram 8 plans for a GPU of 8 GB that is not here."


def test_a_fault_that_is_no_cards_has_no_advice_about_cards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.plan.command.usable_cards", lambda options: cards_of())
    missing = "neon" if platform.machine() == "x86_64" else "avx2"
    with pytest.raises(DeviceError, match="is not available on this machine"):
        run_plan(write_tiny_model(tmp_path / "tiny.gguf"), tmp_path, preferences={"isa": missing})


def test_a_model_that_is_not_here_is_not_fetched(tmp_path: Path) -> None:
    for name in ("smollm2-135m", "owner/repository"):
        with pytest.raises(AppError, match=f"{name} is not on this disk, and a plan fetches nothing") as caught:
            run_plan(name, tmp_path)
        assert caught.value.hint == f"`tandem models pull {name}` does."


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--vram", "0"], "no size of a GPU's memory"),
        (["--vram", "much"], "is no number"),
        (["-ngl", "some"], "gpu_layers (--gpu-layers) is 'some'; expected a whole number from 0 to 65536, auto or all"),
        (["-ctk", "q5_0"], "expected one of f16, q8_0, q4_0"),
        (["--device", "cpu", "-ngl", "3"], "layers on the device that --device cpu names"),
    ],
)
def test_values_that_make_no_sense_are_refused(words: list[str], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", *words]) == 2
    captured = capsys.readouterr()
    assert captured.out == "" and told in captured.err


@pytest.mark.parametrize("text", ["6", "6G", "6gb", "6GiB", "6 GB"])
def test_a_cards_memory_may_be_written_in_many_ways(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write_tiny_model(tmp_path / "tiny.gguf", vocabulary="none")
    assert main(["plan", str(path), "--vram", text, "--json", "-ngl", "all", "--spec", "off"]) == 0
    device = json.loads(capsys.readouterr().out)["devices"][1]
    assert (device["device"], device["free_bytes"]) == ("gpu", 6 * 2**30)
