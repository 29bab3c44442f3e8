"""Profiles: what they change, what wins over them, and when they don't hold."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from faked_cards import fake_machine

from app.errors import AppError
from app.preferences import Preferences
from app.profiles import Profile, load_profile, measured_bandwidth, profile_path, save_profile, with_profile
from app.runtime_options import engine_options
from runtime.machine import read_machine

MACHINE = fake_machine()
PROFILE = Profile(
    model_file="a.gguf",
    size_bytes=4,
    cpu_name=MACHINE.cpu_name,
    num_cores=MACHINE.num_cores,
    allowed_cpus=MACHINE.allowed_cpus,
    gpu="Fake 8 GB",
    context_size=8192,
    threads=3,
    batch_size=256,
    cache_type_k="q8_0",
    cache_type_v="q8_0",
    most_gpu_layers=7,
    tokens_per_s=50.0,
    prompt_tokens_per_s=500.0,
    answer_tokens_per_s=40.0,
    read_bytes_per_s=3e10,
    date="2026-01-02T03:04:05+00:00",
    cpu_experts=12,
)


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TANDEM_CONFIG", str(tmp_path / "settings.toml"))
    path = tmp_path / "a.gguf"
    path.write_bytes(b"GGUF")
    return path


def tuned(model: Path, *, verbose: bool = False, **chosen: Any) -> tuple[Preferences, str]:
    """The preferences after the profile, and what stderr says."""
    said: list[str] = []
    preferences = with_profile(Preferences(**chosen), model, said.append, verbose=verbose, machine=MACHINE)
    return preferences, "\n".join(said)


def test_what_was_written_is_read(model: Path) -> None:
    assert load_profile(profile_path(model)) is None
    save_profile(PROFILE, profile_path(model))
    assert load_profile(profile_path(model)) == PROFILE
    assert [path.name for path in profile_path(model).parent.iterdir()] == ["a-4.json"]


def test_a_profile_fills_what_was_not_chosen(model: Path) -> None:
    save_profile(PROFILE, profile_path(model))
    preferences, said = tuned(model)
    options = engine_options(preferences)
    assert (options.threads, options.batch_size, options.cache_type_k, options.most_gpu_layers) == (3, 256, "q8_0", 7)
    assert (options.gpu_layers, said) == ("auto", "")
    _, said = tuned(model, verbose=True)
    assert said == (
        f"profile: 3 threads, batch 256, KV cache q8_0, 7 GPU layers at most, the experts of 12 layers on the "
        f"CPU (tuned 2026-01-02, {profile_path(model)}; --no-profile leaves it out)"
    )


def test_what_was_chosen_wins(model: Path) -> None:
    save_profile(PROFILE, profile_path(model))
    options = engine_options(tuned(model, threads=1, batch_size=64, cache_type_k="f16")[0])
    assert (options.threads, options.batch_size) == (1, 64)
    assert (options.cache_type_k, options.cache_type_v) == ("f16", "f16"), "no half of a choice"
    untouched = Preferences(no_profile=True)
    assert with_profile(untouched, model, [].append, machine=MACHINE) is untouched
    assert tuned(model, isa="portable")[0].threads is None


def test_layers_hold_for_no_larger_context(model: Path) -> None:
    save_profile(PROFILE, profile_path(model))
    assert (tuned(model, ctx_size=4096)[0].most_gpu_layers, tuned(model, ctx_size=4096)[0].least_cpu_experts) == (7, 12)
    longer = tuned(model, ctx_size=16_384)[0]
    assert longer.most_gpu_layers is None and longer.least_cpu_experts is None


@pytest.mark.parametrize(
    ("change", "reason"),
    [({"cpu_name": "Other CPU"}, "it was measured on Other CPU"), ({"allowed_cpus": 4}, "with 8 cores and 4 proc")],
)
def test_another_machines_profile_is_left_out(model: Path, change: dict[str, Any], reason: str) -> None:
    save_profile(replace(PROFILE, **change), profile_path(model))
    assert tuned(model) == (Preferences(), "")
    preferences, said = tuned(model, verbose=True)
    assert preferences == Preferences() and reason in said


def test_another_file_of_that_name_has_no_profile(model: Path) -> None:
    save_profile(PROFILE, profile_path(model))
    model.write_bytes(b"GGUF, and more")
    assert tuned(model)[0] == Preferences()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        "[]",
        "\udcff",
        json.dumps({"tandem_profile": 2}),
        json.dumps({"tandem_profile": 1, **vars(PROFILE), "threads": "3"}),
        json.dumps({"tandem_profile": 1, **vars(PROFILE), "extra": 1}),
        json.dumps({"tandem_profile": 1, **{**vars(PROFILE), "threads": None}}),
    ],
)
def test_a_damaged_profile_is_told_of_and_ignored(model: Path, text: str) -> None:
    path = profile_path(model)
    path.parent.mkdir()
    path.write_text(text, "utf-8", errors="surrogateescape")
    with pytest.raises(AppError, match="no profile that this version can read"):
        load_profile(path)
    preferences, said = tuned(model)
    assert preferences == Preferences()
    assert said.startswith(f"warning: {path} is no profile") and said.endswith("It is ignored.")


def test_a_folder_that_cant_be_written_is_one_sentence(model: Path) -> None:
    profile_path(model).parent.write_text("in the way")
    with pytest.raises(AppError, match="The profile .* can't be written: "):
        save_profile(PROFILE, profile_path(model))
    assert load_profile(profile_path(model)) is None


def test_a_plan_knows_what_memory_was_measured_to_give(model: Path) -> None:
    assert measured_bandwidth(Preferences(), model) is None
    here = read_machine()
    mine = replace(PROFILE, cpu_name=here.cpu_name, num_cores=here.num_cores, allowed_cpus=here.allowed_cpus)
    save_profile(mine, profile_path(model))
    assert measured_bandwidth(Preferences(), model) == 3e10
    assert measured_bandwidth(Preferences(threads=3), model) == 3e10
    assert measured_bandwidth(Preferences(threads=1), model) is None
    assert measured_bandwidth(Preferences(no_profile=True), model) is None
    save_profile(PROFILE, profile_path(model))
    assert measured_bandwidth(Preferences(), model) is None
