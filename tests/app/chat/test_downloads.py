"""A download as the chat follows it: how fast it comes, when nothing comes, and stopping it at once."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest
from fake_hub import FakeHub, serve_hub
from fake_shelf import CATALOG, MB, FakeShelf

from app.chat.downloads import Download, Downloads, DownloadState
from app.chat.engine_adapter import _unless_left
from app.chat.engine_port import LoadCancelled
from app.chat.model_port import DownloadProgress, LeaveSignal, RepositoryLine, ShelfFault
from app.chat.model_shelf import RuntimeShelf
from app.chat.model_words import model_facts
from models.transfers import unfinished_path


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


class SilentShelf(FakeShelf):
    """Has a server that takes the request and says nothing, whatever is wanted meanwhile."""

    silence: threading.Event

    def fetch(self, name: str, progress: DownloadProgress, leaving: LeaveSignal) -> None:
        progress(40 * MB, 800 * MB)
        self.silence.wait()
        raise ShelfFault("It was stopped.")


def words(download: Download) -> str:
    return model_facts(CATALOG[0], None, download)


def test_how_fast_it_comes_and_how_long_that_takes() -> None:
    clock = Clock()
    download = Download("large-1b", 40 * MB, clock=clock)
    assert words(download) == "download begins (Enter stops it)"
    for _ in range(9):
        clock.now_s += 1
        download._report(download.done_bytes + (10 * MB if download.total_bytes else 0), 800 * MB)
    assert words(download) == "downloading 15 %: 120.0 MB of 800.0 MB, 10.0 MB/s, 1 min left (Enter stops it)"
    clock.now_s += 4
    assert words(download) == "downloading 15 %: 120.0 MB of 800.0 MB, nothing has come for 4 s (Enter stops it)"


def test_what_was_there_before_counts_for_no_speed() -> None:
    clock = Clock()
    download = Download("large-1b", clock=clock)
    clock.now_s += 2
    download._report(400 * MB, 800 * MB)
    clock.now_s += 2
    download._report(402 * MB, 800 * MB)
    assert download.bytes_per_s == pytest.approx(1 * MB)


def test_stopping_waits_for_no_server_and_what_came_stays_in_sight() -> None:
    shelf = SilentShelf()
    shelf.silence = threading.Event()
    ended = threading.Event()
    downloads = Downloads(shelf, lambda _: ended.set())
    download = downloads.start("large-1b")
    while not download.total_bytes:
        time.sleep(0.001)
    download.stop()
    assert words(download) == "stopped 5 %: 40.0 MB of 800.0 MB (Enter goes on)"
    again = downloads.start("large-1b")
    assert again is not download and again.done_bytes == 40 * MB
    shelf.silence.set()
    assert ended.wait(60)
    assert download.state is DownloadState.STOPPED


def test_a_load_that_waits_for_a_server_is_left_at_once() -> None:
    silence, leaving = threading.Event(), threading.Event()
    threading.Timer(0.05, leaving.set).start()
    with pytest.raises(LoadCancelled):
        _unless_left(silence.wait, leaving)
    silence.set()
    assert _unless_left(lambda: 7, threading.Event()) == 7


def test_a_folder_that_does_not_answer_is_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    silence = threading.Event()
    monkeypatch.setattr("app.chat.model_shelf.STALLED_AFTER_S", 0.1)
    monkeypatch.setattr("models.local_models._list_local", lambda folder: silence.wait())
    shelf = RuntimeShelf(tmp_path / "far", offline=True)
    for look in (shelf.on_disk, shelf.names_on_disk):
        with pytest.raises(ShelfFault, match=r"far' has not answered for .* look whether the disk or network share"):
            look()
    silence.set()


def test_what_an_earlier_chat_left_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with serve_hub(FakeHub()) as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.address)
        monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
        file = hub.add("someone/Tiny-GGUF", "tiny-Q8_0.gguf", bytes(9000))
        shelf = RuntimeShelf(tmp_path, offline=False)
        (line,) = shelf.in_repository(RepositoryLine(name="someone/Tiny-GGUF"))
        assert (line.name, line.unfinished_bytes) == ("someone/Tiny-GGUF:Q8_0", 0)
        left = unfinished_path(tmp_path, "someone/Tiny-GGUF/tiny-Q8_0.gguf", file.published_sha256 or "")
        left.parent.mkdir()
        left.write_bytes(bytes(4000))
        (line,) = shelf.in_repository(RepositoryLine(name="someone/Tiny-GGUF"))
        assert line.unfinished_bytes == 4000
