"""What a model would cost, asked before it is loaded."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from tiny_models import write_tiny_model

from runtime.bills import bill_of, estimate, largest_context
from runtime.errors import CapacityError
from runtime.machine import Machine, read_machine
from runtime.options import EngineOptions
from runtime.speculation.options import SpeculationOptions

OPTIONS = EngineOptions(threads=1)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_model(tmp_path_factory.mktemp("models") / "tiny.gguf", metadata={"llama.context_length": 32_768})


def machine_with(available_bytes: int | None) -> Machine:
    return replace(read_machine(), memory_available_bytes=available_bytes)


def test_the_largest_window_is_one_that_fits_and_the_next_does_not(path: Path) -> None:
    wanted = bill_of(path, replace(OPTIONS, context_size=4096), machine=machine_with(None))
    machine = machine_with(wanted.total_bytes * 10 // 9 + 16)
    largest = largest_context(path, OPTIONS, most=32_768, machine=machine)
    assert largest is not None and 4096 <= largest < 8192
    assert bill_of(path, replace(OPTIONS, context_size=largest), machine=machine).context_size == largest
    with pytest.raises(CapacityError):
        bill_of(path, replace(OPTIONS, context_size=largest + 64), machine=machine)
    assert largest_context(path, OPTIONS, most=1024, machine=machine) == 1024
    assert largest_context(path, OPTIONS, most=1024, machine=machine_with(1000)) is None


def test_what_the_loaded_model_gives_back_counts(path: Path) -> None:
    options = replace(OPTIONS, context_size=8192)
    needed = bill_of(path, options, machine=machine_with(None)).total_bytes
    with pytest.raises(CapacityError):
        bill_of(path, options, machine=machine_with(needed // 2))
    assert bill_of(path, options, machine=machine_with(needed // 2), freed_bytes=needed).context_size == 8192


def test_a_draft_model_is_on_the_bill(path: Path) -> None:
    alone = bill_of(path, OPTIONS, machine=machine_with(None))
    both = bill_of(path, replace(OPTIONS, speculation=SpeculationOptions(draft_model=path)), machine=machine_with(None))
    assert alone.draft is None and both.draft is not None
    assert both.total_bytes > alone.total_bytes


def test_a_file_that_is_not_here_is_estimated() -> None:
    small, large = estimate(10**8, machine=machine_with(10**9)), estimate(10**9, machine=machine_with(10**9))
    assert (small.fits, large.fits) == (True, False)
    assert 10**9 < large.needed_bytes < 2 * 10**9
    assert estimate(10**8, machine=machine_with(None)).fits is None
