"""`tandem models`: what is shown, fetched and deleted."""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from fake_hub import FakeHub, serve_hub
from tiny_models import write_tiny_model

import app.models_command
from app.errors import AppError
from app.models_command import list_models, pull_model, remove_model, show_model
from app.output import Console
from runtime.catalog import CATALOG, DownloadError, HubSource, ModelError

REPOSITORY = "someone/Tiny-GGUF"


class Streams:
    def __init__(self) -> None:
        self._out, self._err = io.StringIO(), io.StringIO()
        self.console = Console(self._out, self._err)

    @property
    def stdout(self) -> str:
        return self._out.getvalue()

    @property
    def stderr(self) -> str:
        return self._err.getvalue()


@pytest.fixture
def streams() -> Streams:
    return Streams()


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeHub]:
    with serve_hub(FakeHub()) as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.address)
        yield hub


def test_the_list_tells_what_is_here_what_is_left_and_what_could_be_fetched(streams: Streams, tmp_path: Path) -> None:
    (tmp_path / CATALOG["smollm2-135m"].file_name).write_bytes(bytes(2000))
    (tmp_path / "mine \x1b[31m.gguf").write_bytes(bytes(10))
    (tmp_path / ".unfinished").mkdir()
    (tmp_path / ".unfinished" / "tiny.gguf.0123456789ab.part").write_bytes(bytes(5))
    assert list_models(tmp_path, streams.console) == 0
    here, unfinished, catalog = streams.stdout.split("\n\n")
    assert here.startswith(f"On this disk ({tmp_path})\n  smollm2-135m")
    assert "2.0 kB  SmolLM2 135M Instruct, Q4_1 (Apache-2.0)" in here
    assert "mine ␛[31m.gguf  10 bytes" in here
    assert "tiny.gguf  5 bytes" in unfinished
    assert "smollm2-135m " not in catalog
    assert all(name in catalog for name in CATALOG if name != "smollm2-135m")
    assert "\x1b" not in streams.stdout and streams.stderr == ""


def test_the_list_as_json_has_what_the_other_shows(streams: Streams, tmp_path: Path) -> None:
    (tmp_path / CATALOG["smollm2-135m"].file_name).write_bytes(bytes(2000))
    (tmp_path / "mine.gguf").write_bytes(bytes(10))
    (tmp_path / ".unfinished").mkdir()
    (tmp_path / ".unfinished" / "tiny.gguf.0123456789ab.part").write_bytes(bytes(5))
    assert list_models(tmp_path, streams.console, as_json=True) == 0
    value = json.loads(streams.stdout)
    here = {model["name"]: model for model in value["models"]}
    assert here["smollm2-135m"]["size_bytes"] == 2000 and here["smollm2-135m"]["licence"] == "Apache-2.0"
    assert here["smollm2-135m"]["can_run"] is True
    assert here["mine.gguf"] == {"name": "mine.gguf", "size_bytes": 10}
    assert (value["folder"], value["unfinished"]) == (str(tmp_path), [{"file": "tiny.gguf", "size_bytes": 5}])
    assert {entry["name"] for entry in value["catalog"]} == set(CATALOG) - {"smollm2-135m"}


def test_an_empty_folder_is_said(streams: Streams, tmp_path: Path) -> None:
    assert list_models(tmp_path / "none", streams.console) == 0
    assert streams.stdout.startswith(f"On this disk ({tmp_path / 'none'})\n  nothing\n")


def test_pulling_a_repository_prints_the_path(hub: FakeHub, streams: Streams, tmp_path: Path) -> None:
    hub.add(REPOSITORY, "Tiny-Q4_0.gguf", b"GGUF")
    hub.add(REPOSITORY, "Tiny-Q8_0.gguf", b"GGUF8")
    assert pull_model(f"{REPOSITORY}:Q8_0", tmp_path, streams.console) == 0
    assert Path(streams.stdout.removesuffix("\n")).read_bytes() == b"GGUF8"


def test_pulling_what_is_here_checks_it(
    hub: FakeHub, streams: Streams, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = b"GGUF" * 100
    hub.add(REPOSITORY, "Tiny-Q4_0.gguf", content)
    entry = replace(
        CATALOG["smollm2-135m"],
        size_bytes=len(content),
        sha256=hashlib.sha256(content).hexdigest(),
        sources=(HubSource(repository=REPOSITORY, file_name="Tiny-Q4_0.gguf"),),
    )
    monkeypatch.setattr(app.models_command, "CATALOG", {"smollm2-135m": entry})
    path = tmp_path / entry.local_name
    path.parent.mkdir(parents=True)
    path.write_bytes(b"BAD!" * 100)
    pull_model("smollm2-135m", tmp_path, streams.console)
    assert path.read_bytes() == content
    hub.requests.clear()
    pull_model("smollm2-135m", tmp_path, streams.console)
    assert hub.requests == []
    assert "smollm2-135m is here, its SHA-256 is right." in streams.stderr


def test_pulling_a_file_or_nonsense_is_refused(streams: Streams, tmp_path: Path) -> None:
    (tmp_path / "x.gguf").write_bytes(b"GGUF")
    with pytest.raises(AppError, match="is a file on this disk already"):
        pull_model(str(tmp_path / "x.gguf"), tmp_path, streams.console)
    with pytest.raises(DownloadError, match="did you mean smollm2-135m"):
        pull_model("smollm-135m", tmp_path, streams.console)


def test_info_tells_what_the_file_holds(streams: Streams, tmp_path: Path) -> None:
    path = write_tiny_model(tmp_path / "маленькая 小.gguf", architecture="qwen2")
    assert show_model(str(path), tmp_path, streams.console) == 0
    rows = dict(line.split("  ", 1) for line in streams.stdout.splitlines() if "  " in line)
    told = {label: value.strip() for label, value in rows.items()}
    assert told["file"] == str(path)
    assert told["architecture"] == "qwen2"
    assert told["layers"] == "2" and told["trained context"] == "512 tokens"
    assert told["formats"].startswith("Q4_0 ")
    assert "can't be run" not in told


def test_info_of_a_family_that_cannot_be_run_says_so(streams: Streams, tmp_path: Path) -> None:
    path = write_tiny_model(tmp_path / "x.gguf", metadata={"general.architecture": "mamba\x1b[2J"})
    assert show_model(str(path), tmp_path, streams.console) == 0
    assert "architecture   mamba␛[2J\n" in streams.stdout
    assert "can't be run" in streams.stdout and "\x1b" not in streams.stdout


def test_info_of_a_catalog_model_that_is_not_here_fetches_nothing(streams: Streams, tmp_path: Path) -> None:
    assert show_model("Llama3.2-1B", tmp_path, streams.console) == 0
    assert "on this disk  no (tandem models pull llama3.2-1b)" in streams.stdout
    assert "bartowski/Llama-3.2-1B-Instruct-GGUF" in streams.stdout


def test_info_of_a_repository_that_is_not_here_says_how_to_fetch_it(streams: Streams, tmp_path: Path) -> None:
    with pytest.raises(AppError, match=r"`tandem models pull some/repo:Q4_0` fetches it"):
        show_model("some/repo:Q4_0", tmp_path, streams.console)
    with pytest.raises(ModelError, match="There is no file some/file.gguf"):
        show_model("some/file.gguf", tmp_path, streams.console)


def test_info_of_a_damaged_file_is_one_sentence(streams: Streams, tmp_path: Path) -> None:
    (tmp_path / "x.gguf").write_bytes(b"GGUF\x03")
    with pytest.raises(ModelError, match="x.gguf"):
        show_model("x.gguf", tmp_path, streams.console)
    assert streams.stdout == ""


def test_removing_prints_what_was_deleted(streams: Streams, tmp_path: Path) -> None:
    path = tmp_path / "mine.gguf"
    path.write_bytes(b"GGUF")
    assert remove_model("mine.gguf", tmp_path, streams.console) == 0
    assert streams.stdout == f"{path}\n" and not path.exists()
    with pytest.raises(DownloadError, match="is not in the models folder"):
        remove_model("mine.gguf", tmp_path, streams.console)
