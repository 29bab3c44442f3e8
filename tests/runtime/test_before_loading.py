"""What is known before a model is loaded: its fingerprint, and how many answers memory has room for."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from tiny_models import write_tiny_model

from models.gguf_file import open_model_file
from runtime.before_loading import fingerprint_of, fitting_sequences
from runtime.errors import CapacityError
from runtime.machine import read_machine
from runtime.options import EngineOptions
from runtime.placement import place


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_model(tmp_path_factory.mktemp("models") / "tiny.gguf", metadata={"llama.context_length": 32_768})


def total_bytes(path: Path, options: EngineOptions) -> int:
    machine = replace(read_machine(), memory_available_bytes=None)
    with open_model_file(path) as file:
        return place(file, options, machine).bill.memory.total_bytes


def test_the_fingerprint_is_the_loaded_models(path: Path) -> None:
    with open_model_file(path) as file:
        assert fingerprint_of(path) == file.fingerprint


@pytest.mark.parametrize("wanted", [1, 3, 11])
def test_as_many_as_memory_has_room_for(path: Path, wanted: int) -> None:
    options = EngineOptions(context_size=8192, threads=1)
    needed = total_bytes(path, replace(options, max_sequences=wanted))
    # A tenth of what is there stays free for everything else.
    machine = replace(read_machine(), memory_available_bytes=needed * 10 // 9 + 16)
    assert fitting_sequences(path, options, most=64, machine=machine) == wanted
    assert fitting_sequences(path, options, most=2, machine=machine) == min(2, wanted)


def test_each_has_the_context_that_one_alone_would_have(path: Path) -> None:
    options = EngineOptions(threads=1)
    needed = total_bytes(path, replace(options, context_size=8192, max_sequences=2))
    machine = replace(read_machine(), memory_available_bytes=needed * 10 // 9 + 16)
    assert fitting_sequences(path, options, most=64, machine=machine) == 2, "the default is a window of 8192"


def test_a_step_must_hold_a_token_of_each(path: Path) -> None:
    machine = replace(read_machine(), memory_available_bytes=None)
    assert fitting_sequences(path, EngineOptions(batch_size=5, threads=1), most=64, machine=machine) == 5


def test_not_even_one(path: Path) -> None:
    machine = replace(read_machine(), memory_available_bytes=1000)
    with pytest.raises(CapacityError):
        fitting_sequences(path, EngineOptions(context_size=8192, threads=1), most=4, machine=machine)
