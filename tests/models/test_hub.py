"""Downloads from the hub: resumed, checked, refused in one sentence, and never left wrong under the final name."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from fake_hub import FakeHub, serve_hub

import models.downloads
from models.catalog import CatalogEntry, HubSource
from models.downloads import fetch, fetch_reference, resolve_model
from models.errors import DownloadError
from models.hub import access_from_environment
from models.hub_names import HubReference
from models.transfers import UNFINISHED_FOLDER, DownloadCancelledError, size_text

REPOSITORY = "someone/Tiny-GGUF"
NAME = "Tiny-Q4_K_M.gguf"
CONTENT = bytes(range(256)) * 2000


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeHub]:
    with serve_hub(FakeHub()) as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.address)
        monkeypatch.setenv("HF_TOKEN", "")
        monkeypatch.setattr(
            models.downloads,
            "access_from_environment",
            lambda **offline: replace(access_from_environment(**offline), retry_wait_s=0.001),
        )
        yield hub


def pull(folder: Path, choice: str | None = None) -> Path:
    return fetch_reference(HubReference(repository=REPOSITORY, choice=choice), folder)


def entry_of(sha256: str | None) -> CatalogEntry:
    return CatalogEntry(
        name="tiny",
        title="Tiny",
        licence="MIT",
        architecture="llama",
        file_name=NAME,
        size_bytes=len(CONTENT),
        sha256=sha256,
        sources=(HubSource(repository=REPOSITORY, file_name=NAME),),
    )


def final_files(folder: Path) -> list[str]:
    """Every .gguf file under the folder, unfinished ones aside."""
    return sorted(path.name for path in folder.rglob("*.gguf"))


def test_a_file_arrives_whole_with_progress_and_leaves_nothing_else(hub: FakeHub, tmp_path: Path) -> None:
    hub.add(REPOSITORY, NAME, CONTENT)
    seen: list[tuple[int, int]] = []
    path = fetch_reference(HubReference(repository=REPOSITORY), tmp_path, lambda *pair: seen.append(pair))
    assert path == tmp_path / REPOSITORY / NAME
    assert path.read_bytes() == CONTENT
    assert seen[-1] == (len(CONTENT), len(CONTENT))
    assert seen == sorted(seen)
    assert not (tmp_path / UNFINISHED_FOLDER).exists()


def test_a_connection_that_breaks_is_resumed_from_where_it_broke(hub: FakeHub, tmp_path: Path) -> None:
    hub.add(REPOSITORY, NAME, CONTENT).break_after = [1000, 2000]
    assert pull(tmp_path).read_bytes() == CONTENT
    assert hub.ranges_asked() == [None, "bytes=1000-", "bytes=3000-"]


def test_a_later_run_goes_on_with_what_an_earlier_one_left(hub: FakeHub, tmp_path: Path) -> None:
    file = hub.add(REPOSITORY, NAME, CONTENT)
    file.break_after = [4000, 0, 0, 0, 0]
    with pytest.raises(DownloadError, match=f"broke off at 4.0 kB of {size_text(len(CONTENT))} "):
        pull(tmp_path)
    assert final_files(tmp_path) == []
    file.break_after, hub.requests = [], []
    told: list[tuple[int, int]] = []
    reference = HubReference(repository=REPOSITORY)
    path = fetch_reference(reference, tmp_path, lambda done, total: told.append((done, total)))
    assert path.read_bytes() == CONTENT and told[0] == (4000, len(CONTENT))
    assert hub.ranges_asked() == ["bytes=4000-"]


def test_a_server_that_ignores_ranges_is_read_from_the_start(hub: FakeHub, tmp_path: Path) -> None:
    file = hub.add(REPOSITORY, NAME, CONTENT)
    file.break_after, file.ignores_ranges = [5000], True
    assert pull(tmp_path).read_bytes() == CONTENT


def test_a_server_in_trouble_is_asked_again(hub: FakeHub, tmp_path: Path) -> None:
    hub.add(REPOSITORY, NAME, CONTENT).statuses = [503, 429]
    assert pull(tmp_path).read_bytes() == CONTENT


def test_wrong_bytes_are_deleted_and_refused(hub: FakeHub, tmp_path: Path) -> None:
    file = hub.add(REPOSITORY, NAME, CONTENT)
    file.content = CONTENT[:-1] + b"!"
    with pytest.raises(DownloadError, match="is wrong and was deleted"):
        pull(tmp_path)
    assert final_files(tmp_path) == []
    assert not list(tmp_path.rglob("*.part"))
    file.content = CONTENT
    assert pull(tmp_path).read_bytes() == CONTENT


def test_what_was_left_by_another_content_of_the_same_name_is_not_mixed_in(hub: FakeHub, tmp_path: Path) -> None:
    hub.add(REPOSITORY, NAME, CONTENT).break_after = [4000, 0, 0, 0, 0]
    with pytest.raises(DownloadError):
        pull(tmp_path)
    hub.add(REPOSITORY, NAME, CONTENT[::-1])
    assert pull(tmp_path).read_bytes() == CONTENT[::-1]


def test_a_file_without_a_published_hash_is_refused(hub: FakeHub, tmp_path: Path) -> None:
    hub.add(REPOSITORY, NAME, CONTENT).published_sha256 = None
    with pytest.raises(DownloadError, match="publishes no SHA-256"):
        pull(tmp_path)


@pytest.mark.parametrize(
    ("prepare", "sentence"),
    [
        (lambda hub: None, "is not on the hub, or it is private"),
        (lambda hub: hub.gated.add(REPOSITORY), "is gated: accept its licence"),
        (lambda hub: hub.add(REPOSITORY, "../../escape-Q4_K_M.gguf", b"x"), "outside its folder: refused"),
        (lambda hub: hub.add(REPOSITORY, "/etc/escape-Q4_K_M.gguf", b"x"), "outside its folder: refused"),
        (lambda hub: hub.add(REPOSITORY, "a\\b-Q4_K_M.gguf", b"x"), "outside its folder: refused"),
        (lambda hub: hub.add(REPOSITORY, "\x1b[2J-Q4_K_M.gguf", b"x"), "outside its folder: refused"),
        (lambda hub: hub.add(REPOSITORY, "model.safetensors", b"x"), "holds no GGUF model"),
        (lambda hub: hub.add(REPOSITORY, "m-Q4_K_M-00001-of-00002.gguf", b"x"), "lacks part 2 of 2"),
    ],
)
def test_refusals_are_one_sentence_and_write_nothing(
    hub: FakeHub, tmp_path: Path, prepare: Callable[[FakeHub], object], sentence: str
) -> None:
    prepare(hub)
    with pytest.raises(DownloadError, match=sentence) as caught:
        pull(tmp_path / "models")
    assert "\x1b" not in str(caught.value)
    assert not list(tmp_path.rglob("*.*"))


def test_the_token_is_sent_to_the_hub_and_not_to_where_it_redirects(
    hub: FakeHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.required_token = "secret"
    monkeypatch.setenv("HF_TOKEN", "secret")
    with serve_hub(FakeHub()) as storage:
        storage.add(REPOSITORY, NAME, CONTENT)
        hub.add(REPOSITORY, NAME, CONTENT).redirect_to = storage.address
        assert pull(tmp_path).read_bytes() == CONTENT
    assert {request.authorization for request in hub.requests} == {"Bearer secret"}
    assert [request.authorization for request in storage.requests] == [None]


def test_a_missing_token_is_said(hub: FakeHub, tmp_path: Path) -> None:
    hub.add(REPOSITORY, NAME, CONTENT)
    hub.required_token = "secret"
    with pytest.raises(DownloadError, match="set HF_TOKEN"):
        pull(tmp_path)


def test_a_hub_that_is_not_there_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(DownloadError, match="can't be reached for someone/Tiny-GGUF"):
        pull(tmp_path)


def test_split_files_come_together_and_their_progress_is_one(hub: FakeHub, tmp_path: Path) -> None:
    pieces = {f"q4/m-Q4_K_M-0000{number}-of-00003.gguf": CONTENT[:number] for number in (1, 2, 3)}
    for name, content in reversed(pieces.items()):
        hub.add(REPOSITORY, name, content)
    hub.add(REPOSITORY, "m-Q8_0.gguf", b"other")
    seen: list[tuple[int, int]] = []
    reference = HubReference(repository=REPOSITORY, choice="q4_k_m")
    path = fetch_reference(reference, tmp_path, lambda *pair: seen.append(pair))
    assert path.name == "m-Q4_K_M-00001-of-00003.gguf"
    assert {
        file.relative_to(tmp_path / REPOSITORY).as_posix(): file.read_bytes() for file in tmp_path.rglob("*.gguf")
    } == (pieces)
    assert seen[-1] == (6, 6)
    assert all(total == 6 for _, total in seen)


def test_cancelling_keeps_what_arrived(hub: FakeHub, tmp_path: Path) -> None:
    hub.add(REPOSITORY, NAME, CONTENT).break_after = [3000]
    cancel = threading.Event()
    with pytest.raises(DownloadCancelledError, match="was stopped"):
        fetch_reference(
            HubReference(repository=REPOSITORY), tmp_path, lambda done, _: cancel.set() if done else None, cancel
        )
    left = sum(path.stat().st_size for path in tmp_path.rglob("*.part"))
    assert 0 < left <= 3000
    hub.requests.clear()
    assert pull(tmp_path).read_bytes() == CONTENT
    assert hub.ranges_asked()[0] == f"bytes={left}-"


def test_a_reference_that_is_here_needs_no_network(hub: FakeHub, tmp_path: Path) -> None:
    hub.add(REPOSITORY, NAME, CONTENT)
    first = resolve_model(f"{REPOSITORY}:Q4_K_M", folder=tmp_path)
    hub.requests.clear()
    for text in (REPOSITORY, f"{REPOSITORY}:q4_k_m", f"{REPOSITORY}:{NAME}"):
        assert resolve_model(text, folder=tmp_path, offline=True) == first
    assert hub.requests == []


def test_a_catalog_entry_without_a_hash_takes_the_hubs(hub: FakeHub, tmp_path: Path) -> None:
    file = hub.add(REPOSITORY, NAME, CONTENT)
    file.content = CONTENT[::-1]
    with pytest.raises(DownloadError, match="is wrong and was deleted"):
        fetch(entry_of(None), tmp_path)
    file.content = CONTENT
    assert fetch(entry_of(None), tmp_path) == tmp_path / REPOSITORY / NAME


def test_a_catalog_hash_that_is_not_the_hubs_is_refused_before_a_byte_is_fetched(hub: FakeHub, tmp_path: Path) -> None:
    hub.add(REPOSITORY, NAME, CONTENT)
    with pytest.raises(DownloadError, match="than the one that was verified"):
        fetch(entry_of("0" * 64), tmp_path)
    assert hub.ranges_asked() == []


def test_verifying_replaces_a_file_that_has_changed(hub: FakeHub, tmp_path: Path) -> None:
    entry = entry_of(hub.add(REPOSITORY, NAME, CONTENT).published_sha256)
    path = fetch(entry, tmp_path)
    path.write_bytes(CONTENT[::-1])
    assert fetch(entry, tmp_path).read_bytes() == CONTENT[::-1]
    assert fetch(entry, tmp_path, verify=True).read_bytes() == CONTENT
    hub.requests.clear()
    assert fetch(entry, tmp_path, verify=True) == path
    assert hub.requests == []
