"""Calls on files that take long or never come back: told of, given up, and out of the way of the next ones."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from tiny_models import write_tiny_model

from models.errors import FileError
from models.file_reader import FileReader
from models.gguf_file import open_model_file
from runtime.engine import WAITING, Engine
from runtime.patience import Patience, patient_files


class GaveUp(Exception):
    """What a caller raises when it has waited enough."""


@pytest.fixture
def stalled() -> Iterator[threading.Event]:
    """Set it, and what hangs comes back."""
    event = threading.Event()
    yield event
    event.set()


def give_up(label: str, waited_s: float) -> None:
    raise GaveUp


def test_a_call_gives_what_it_returns_and_raises() -> None:
    patience = Patience(give_up)
    assert patience("file", lambda: 7) == 7
    with pytest.raises(ZeroDivisionError):
        patience("file", lambda: 1 // 0)
    patience.close()
    assert patience("file", lambda: 8) == 8


def test_waiting_is_told_of_until_the_call_comes_back(stalled: threading.Event) -> None:
    told: list[tuple[str, float]] = []

    def tell(label: str, waited_s: float) -> None:
        told.append((label, waited_s))
        if len(told) == 3:
            stalled.set()

    assert Patience(tell)("'slow.gguf'", stalled.wait) is True
    assert {label for label, _ in told} == {"'slow.gguf'"} and told[-1][1] == 0.0
    waits = [waited_s for _, waited_s in told[:-1]]
    assert len(waits) >= 3 and waits == sorted(waits) and waits[0] > 0


def test_a_call_that_is_given_up_is_in_nobodys_way(stalled: threading.Event) -> None:
    patience = Patience(give_up)
    with pytest.raises(GaveUp):
        patience("file", stalled.wait)
    assert patience("file", lambda: 9) == 9


def test_files_opened_in_the_block_are_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stalled: threading.Event
) -> None:
    path = write_tiny_model(tmp_path / "tiny.gguf")
    with patient_files(give_up), open_model_file(path) as file:
        assert file.floats("output_norm.weight").shape == (96,)
        monkeypatch.setattr(os, "preadv", lambda *_: stalled.wait())
        with pytest.raises(GaveUp):
            file.raw("token_embd.weight")
    with patient_files(give_up), pytest.raises(FileError, match="does not exist"):
        FileReader(tmp_path / "none.gguf")


def test_opening_is_waited_for_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stalled: threading.Event) -> None:
    path = write_tiny_model(tmp_path / "tiny.gguf")
    monkeypatch.setattr("models.file_reader.os.open", lambda *_: stalled.wait())
    with patient_files(give_up), pytest.raises(GaveUp):
        FileReader(path)


def test_a_load_tells_that_it_waits_and_can_be_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stalled: threading.Event
) -> None:
    path, stages = write_tiny_model(tmp_path / "tiny.gguf"), []

    def progress(stage: str, done: int, total: int) -> None:
        stages.append(stage)
        if stage == WAITING:
            raise GaveUp

    monkeypatch.setattr(os, "preadv", lambda *_: stalled.wait())
    with pytest.raises(GaveUp):
        Engine.load(path, progress=progress)
    assert stages == [WAITING]
