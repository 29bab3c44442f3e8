"""A run written down and made again: the same ids, or what is different."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from adapters import low_rank_pairs, write_adapter
from command_line import run_tandem
from tiny_models import write_tiny_model

from app.manifest import _placement_value, _read_preferences
from models.gguf_file import open_model_file
from runtime import EngineDescription

Tandem = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models 模")
    write_tiny_model(folder / "tiny.gguf")
    write_tiny_model(folder / "other.gguf", seed=5)
    (folder / "settings.toml").touch()
    return folder


@pytest.fixture
def tandem(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Tandem:
    """Run `tandem generate` in this process: (status, stdout, stderr)."""
    monkeypatch.setenv("TANDEM_CONFIG", str(folder / "settings.toml"))

    def run(*arguments: object) -> tuple[int, str, str]:
        return run_tandem("generate", *arguments)

    return run


@pytest.mark.parametrize(
    "arguments",
    [
        ("-p", "the fox", "-n", 20, "--temp", 1.5),
        ("-p", "the fox", "-n", 9, "--raw", "-b", 16, "-c", 200),
        ("--prompt-ids", "5,6,7", "-n", 5, "--temp", 0, "--repeat-penalty", 1.3),
        ("-p", "x", "--system", "dog", "-n", 12, "--logit-bias", "9-inf", "--banned-string", "a", "--stop", "qq"),
        ("-p", "x", "--json-schema", '{"enum": ["a", 2]}', "--samplers", "temperature;xtc", "--xtc-probability", 0.5),
        ("-p", "x", "-n", 30, "--mirostat", 2, "--dry-multiplier", 0.5, "--dry-sequence-breaker", "none"),
    ],
)
def test_a_run_made_again_gives_the_same_ids(
    tandem: Tandem, folder: Path, tmp_path: Path, arguments: tuple[object, ...]
) -> None:
    path = tmp_path / "run 跑.json"
    status, text, _ = tandem("-m", folder / "tiny.gguf", "-t", 1, *arguments, "--manifest", path)
    assert status == 0
    manifest = json.loads(path.read_text("utf-8"))
    assert manifest["seed"] is not None and manifest["chain"] and manifest["model"]["fingerprint"]
    assert manifest["engine"]["isa_in_force"] != "auto" and "numpy" in manifest["versions"]
    status, again, told = tandem("--replay", path)
    assert (status, again) == (0, text)
    assert f"The same {len(manifest['ids'])} ids.\n" in told and "note:" not in told


def test_a_run_with_an_adapter_is_made_again_with_it(tandem: Tandem, folder: Path, tmp_path: Path) -> None:
    with open_model_file(folder / "tiny.gguf") as file:
        pairs = low_rank_pairs(file, ["blk.0.attn_q.weight", "blk.1.ffn_up.weight"], rank=4, seed=2, size=3.0)
    adapter, path = write_adapter(tmp_path / "a.gguf", "llama", pairs), tmp_path / "run.json"
    arguments = ("-m", folder / "tiny.gguf", "-t", 1, "-p", "the fox", "-n", 20, "--temp", 0)
    plain = tandem(*arguments)[1]
    status, text, told = tandem(*arguments, "--lora", f"{adapter}:0.5", "--manifest", path)
    assert status == 0 and text != plain and "The adapter a.gguf changes 2 matrices (rank 4, scale 0.5)." in told
    assert json.loads(path.read_text("utf-8"))["engine"]["adapters"] == [f"{adapter}:0.5"]
    status, again, told = tandem("--replay", path)
    assert (status, again) == (0, text) and "was" not in told
    write_adapter(adapter, "llama", {name: (a, -b) for name, (a, b) in pairs.items()})
    status, _, told = tandem("--replay", path)
    assert status == 1 and "model fingerprint was" in told
    status, _, told = tandem(*arguments, "--lora", tmp_path / "missing.gguf")
    assert status == 1 and "missing.gguf" in told and told.count("\n") == 1


def test_a_run_with_a_template_from_a_file_is_made_again_with_it(tandem: Tandem, folder: Path, tmp_path: Path) -> None:
    template, path = tmp_path / "mine.jinja", tmp_path / "run.json"
    template.write_text("{% for m in messages %}{{ m.content }}{% endfor %}")
    arguments = ("-m", folder / "tiny.gguf", "-t", 1, "-p", "the fox", "-n", 20, "--temp", 0)
    plain = tandem(*arguments)[1]
    status, text, _ = tandem(*arguments, "--chat-template-file", template, "--manifest", path)
    assert status == 0 and text != plain
    written = json.loads(path.read_text("utf-8"))["engine"]
    assert written["chat_template_file"] == str(template)
    assert written["chat_template_sha256"] == sha256(template.read_bytes()).hexdigest()
    status, again, told = tandem("--replay", path)
    assert (status, again) == (0, text) and "was" not in told
    template.write_text("{% for m in messages %}{{ m.content }}?{% endfor %}")
    status, _, told = tandem("--replay", path)
    assert status == 1 and "engine chat_template_sha256 was" in told
    template.unlink()
    status, _, told = tandem("--replay", path)
    assert status == 1 and "mine.jinja' can't be read" in told and told.count("\n") == 1


def test_what_differs_is_said(tandem: Tandem, folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    assert tandem("-m", folder / "tiny.gguf", "-p", "fox", "-n", 10, "-s", 1, "--manifest", path)[0] == 0
    manifest = json.loads(path.read_text("utf-8"))

    status, _, told = tandem("--replay", path, "-m", folder / "other.gguf")
    assert status == 1
    assert "note: model fingerprint was" in told and "The answer's ids are not the same: id " in told

    def changed(**values: Any) -> tuple[int, str, str]:
        (tmp_path / "changed.json").write_text(json.dumps({**manifest, **values}))
        return tandem("--replay", tmp_path / "changed.json")

    status, _, told = changed(ids=[*manifest["ids"][:3], 0, *manifest["ids"][4:]])
    assert status == 1
    assert f"id 3 was 0 and is {manifest['ids'][3]}. Nothing else is different." in told
    status, _, told = changed(prompt="dog")
    assert status == 1 and "The prompt's ids are not the same" in told
    status, _, told = changed(versions={**manifest["versions"], "numpy": "1.0"})
    assert status == 0 and "note: versions numpy was 1.0 and is " in told and "The same 10 ids." in told


@pytest.mark.parametrize(
    ("name", "value", "named"),
    [
        ("activations", "wild", "'wild'"),
        ("batch_size", 0, "--batch-size"),
        ("batch_size", "many", "many"),
        ("ctx_size", "wide", "wide"),
        ("ctx_size", -3, "--ctx-size"),
        ("isa", "abacus", "abacus"),
        ("adapters", 3, "of its engine is of another kind"),
        ("placement", "moon", "manifest"),
    ],
)
def test_an_engine_that_makes_no_sense_is_told_in_a_sentence(
    tandem: Tandem, folder: Path, tmp_path: Path, name: str, value: object, named: str
) -> None:
    path = tmp_path / "run.json"
    assert tandem("-m", folder / "tiny.gguf", "-p", "fox", "-n", 1, "-s", 1, "--manifest", path)[0] == 0
    manifest = json.loads(path.read_text("utf-8"))
    path.write_text(json.dumps({**manifest, "engine": {**manifest["engine"], name: value}}))
    status, stdout, told = tandem("--replay", path)
    assert (status, stdout) == (1, "")
    assert str(path) in told and named in told and "usage:" not in told and "does not know" not in told


@pytest.mark.parametrize("name", ["none/run.json", "."])
def test_a_manifest_that_cannot_be_written_is_told_before_the_answer(
    tandem: Tandem, folder: Path, tmp_path: Path, name: str
) -> None:
    given = ("-m", folder / "tiny.gguf", "-p", "fox", "-n", 2)
    status, stdout, told = tandem(*given, "--manifest", tmp_path / name)
    assert (status, stdout) == (1, "") and "The manifest" in told and told.count("\n") == 1


def test_a_manifest_beats_settings_and_flags_beat_both(
    tandem: Tandem, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "run.json"
    status, text, _ = tandem("-m", folder / "tiny.gguf", "-p", "fox", "-n", 10, "-s", 1, "--manifest", path)
    assert status == 0
    for name, value in (("MODEL", str(folder / "other.gguf")), ("CACHE_TYPE_K", "q4_0"), ("TEMP", "0")):
        monkeypatch.setenv(f"TANDEM_{name}", value)
    status, again, told = tandem("--replay", path)
    assert (status, again) == (0, text) and "note:" not in told
    _, _, told = tandem("--replay", path, "-ctk", "q8_0")
    assert "engine cache_type_k was f16 and is q8_0" in told


@pytest.mark.parametrize(
    "arguments", [("--temp", 0), ("-n", 5), ("--stop", "x"), ("--json",), ("--out", "x"), ("--json-schema", "{}")]
)
def test_what_a_manifest_says_is_not_said_again(tandem: Tandem, tmp_path: Path, arguments: tuple[object, ...]) -> None:
    status, stdout, told = tandem("--replay", tmp_path / "run.json", *arguments)
    assert (status, stdout) == (2, "") and "means nothing beside --replay" in told


def test_where_layers_were_is_written_down_and_asked_for_again() -> None:
    loaded = dict.fromkeys(("batch_size", "cache_type_k", "cache_type_v", "activations", "isa"))
    description = EngineDescription(
        name="m",
        architecture="llama",
        num_parameters=1,
        formats=(),
        size_bytes=1,
        trained_context_size=8,
        context_size=8,
        threads=1,
        path=Path("m.gguf"),
        fingerprint="f",
        num_layers=4,
    )
    for placed, asked in (
        (description, {"device": "cpu", "gpu_layers": None}),
        (replace(description, gpu="RTX 3060", gpu_layers=3), {"device": None, "gpu_layers": "3"}),
    ):
        engine = {**loaded, "ctx_size": 8, **_placement_value(placed)}
        found = _read_preferences({"engine": engine, "model": {"path": "m.gguf"}})
        assert {name: getattr(found, name) for name in asked} == asked


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"tandem_manifest": 1}', '{"tandem_manifest": 9}'])
def test_a_file_that_is_no_manifest_is_one_sentence(tandem: Tandem, tmp_path: Path, text: str) -> None:
    (tmp_path / "run.json").write_text(text)
    status, stdout, told = tandem("--replay", tmp_path / "run.json")
    assert (status, stdout) == (1, "") and told.startswith("tandem: ") and "manifest" in told
    assert tandem("--replay", tmp_path / "none.json")[0] == 1
