"""Binding a program: the bill is what is taken, runs can be stopped, and nothing is left behind."""

from __future__ import annotations

import os
import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from cpu_models import KINDS, Kind, Piece, bound, limits_of
from kernels import KERNEL_FOLDER, LEVELS, same_bits
from tiny_models import SMALL_BLOCKS, TinyShape, write_tiny_model

from kernels_cpu import reading
from kernels_cpu.activations import PRECISIONS, Precision
from kernels_cpu.binding import CpuOptions, bill, bind
from kernels_cpu.plan import CpuLimits
from kernels_cpu.shape_checks import UnsupportedError
from models.description import load_description
from models.errors import FileError
from models.gguf_file import ModelFile, open_model_file
from models.segments import whole

IDS = [5 + index * 7 % 300 for index in range(60)]
LIMITS = (
    limits_of(),
    limits_of(tokens=1, outputs=1, sequences=1, context=64),
    limits_of(tokens=130, outputs=3, sequences=5, context=100),
)
OPTIONS = CpuOptions(threads=2, activations="balanced", isa="auto", kernel_folder=KERNEL_FOLDER)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return KINDS[0].write(tmp_path_factory.mktemp("models"))


def team_threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("tandem-cpu-")]


def priced(
    path: Path, limits: CpuLimits, precision: Precision, isa: str, *, requantize: bool = False
) -> tuple[int, int, int]:
    options = replace(OPTIONS, activations=precision, isa=isa, requantize=requantize)
    with open_model_file(path) as file:
        found = bill(whole(load_description(file).program), file, limits, options)
    return found.weights_bytes, found.kv_bytes, found.workspace_bytes


@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("level", LEVELS)
def test_the_bill_is_what_is_taken_to_the_byte(level: str, kind: Kind, tmp_path: Path) -> None:
    path = kind.write(tmp_path)
    for limits, precision in zip(LIMITS, PRECISIONS, strict=True):
        promised = priced(path, limits, precision, level)
        with bound(path, isa=level, activations=precision, limits=limits) as model:
            arenas = model.model._arenas
            assert tuple(arena.used_bytes for arena in arenas) == promised
            assert tuple(arena.size_bytes for arena in arenas) == promised


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_the_bill_of_requantised_weights(kind: Kind, tmp_path: Path) -> None:
    path = kind.write(tmp_path)
    promised = priced(path, LIMITS[0], "fast", "auto", requantize=True)
    with bound(path, activations="fast", limits=LIMITS[0], requantize=True) as model:
        assert tuple(arena.used_bytes for arena in model.model._arenas) == promised
    assert promised[0] <= priced(path, LIMITS[0], "fast", "auto")[0]


def test_the_bill_of_a_smaller_cache(path: Path) -> None:
    bills = {}
    for k in ("f16", "q8_0", "q4_0"):
        for v in ("f16", "q8_0", "q4_0"):
            bills[k, v] = priced(path, limits_of(cache_types=(k, v)), "exact", "auto")[1]
    sizes = {"f16": 64, "q8_0": 34, "q4_0": 18}  # bytes of 32 values
    assert bills == {(k, v): bills["f16", "f16"] * (sizes[k] + sizes[v]) // 128 for k, v in bills}
    for kinds in (("q8_0", "q4_0"), ("q4_0", "q8_0")):
        with bound(path, cache_types=kinds) as model:
            assert model.model._arenas[1].used_bytes == bills[kinds]


def test_progress_counts_packed_bytes(path: Path) -> None:
    told: list[tuple[str, int, int]] = []
    with open_model_file(path) as file:
        program = load_description(file).program
        bind(whole(program), file, limits_of(), OPTIONS, lambda *values: told.append(values)).close()
        sizes = sum(file.tensors[name].size_bytes for name in program.weights() if len(file.tensors[name].shape) == 2)
    weights = [(done, total) for what, done, total in told if what == "weights"]
    assert weights == sorted(weights) and weights[-1] == (sizes, sizes)


@pytest.mark.parametrize("stage", ["weights", "kernels"])
def test_an_interrupted_binding_leaves_no_thread(stage: str, path: Path, tmp_path: Path) -> None:
    def interrupt(what: str, done: int, total: int) -> None:
        if what == stage:
            raise KeyboardInterrupt

    folder = KERNEL_FOLDER if stage == "weights" else tmp_path / "kernels"
    options = CpuOptions(threads=3, activations="fast", isa="auto", kernel_folder=folder)
    with open_model_file(path) as file, pytest.raises(KeyboardInterrupt):
        bind(whole(load_description(file).program), file, limits_of(), options, interrupt)
    assert not team_threads()


def test_weights_are_the_same_however_little_is_read_at_once(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with bound(path, threads=2) as whole, monkeypatch.context() as patch:
        patch.setattr(reading, "READ_BYTES", 1)  # one group of rows
        with bound(path, threads=2) as pieces:
            assert same_bits(pieces.logits(IDS), whole.logits(IDS))


def test_a_file_that_is_cut_while_it_is_packed_is_an_error(path: Path, tmp_path: Path) -> None:
    copy = tmp_path / "cut.gguf"
    copy.write_bytes(path.read_bytes())
    with open_model_file(copy) as file, pytest.raises(FileError, match="changed while it was being read"):
        bind(whole(load_description(file).program), file, limits_of(), OPTIONS, lambda *_: os.truncate(copy, 4096))
    assert team_threads() == []


def test_the_file_may_be_closed_once_it_is_packed(path: Path, tmp_path: Path) -> None:
    """And taken away: the weights are a copy."""
    own = tmp_path / "model.gguf"
    own.write_bytes(path.read_bytes())
    with bound(path) as model:
        expected = model.logits(IDS)
    with bound(own) as model:
        own.write_bytes(b"")
        assert same_bits(model.logits(IDS), expected)


def test_a_cancelled_run_gives_nothing_and_the_next_is_clean(path: Path) -> None:
    with bound(path, threads=2) as model:
        expected = model.logits(IDS)
        model.model.cancel()
        assert model.run(Piece(ids=IDS)) is None
        assert same_bits(model.logits(IDS), expected)
        model.model.cancel()
        model.model.clear_cancel()
        assert same_bits(model.logits(IDS), expected)


def test_runs_are_cancelled_at_any_moment(path: Path) -> None:
    """By another thread, again and again: a run is whole and right, or it is nothing."""
    pauses = np.random.default_rng(0).uniform(0.0, 0.004, 2000)
    with bound(path, threads=2, limits=limits_of(tokens=512, outputs=512)) as model:
        ids = [*IDS] * 8
        expected = model.logits(ids, size=480)
        cancelled = 0
        for pause in pauses:
            timer = threading.Timer(pause, model.model.cancel)
            timer.start()
            found = model.run(Piece(ids=ids))
            timer.join()
            model.model.clear_cancel()
            cancelled += found is None
            assert found is None or same_bits(found, expected)
            if cancelled == 5:
                break
        assert cancelled == 5
        assert same_bits(model.logits(ids, size=480), expected)


def test_closing_twice_ends_the_threads_once(path: Path) -> None:
    assert not team_threads()
    with open_model_file(path) as file:
        model = bind(whole(load_description(file).program), file, limits_of(), OPTIONS)
    assert team_threads() == ["tandem-cpu-1"]
    model.close()
    model.close()
    assert not team_threads()
    model.cancel()


def refusal(path: Path, limits: CpuLimits | None = None) -> str:
    with open_model_file(path) as file, pytest.raises(UnsupportedError) as caught:
        bind(whole(load_description(file).program), file, limits or limits_of(), OPTIONS)
    assert not team_threads()
    return str(caught.value)


def test_heads_that_the_kernels_cannot_take_are_one_sentence(tmp_path: Path) -> None:
    odd = write_tiny_model(tmp_path / "odd.gguf", format="F32", shape=TinyShape(head_dim=24))
    assert refusal(odd) == "layer 0 has heads of 24 values; the CPU kernels take multiples of 16 up to 512"
    half = write_tiny_model(tmp_path / "half.gguf", format="F32", shape=TinyShape(head_dim=48))
    text = refusal(half, limits_of(cache_types=("q8_0", "f16")))
    assert text.startswith("layer 0 has heads of 48 values") and text.endswith("(-ctk f16 -ctv f16)")
    many = TinyShape(num_heads=65, head_dim=16, width=32)
    crowd = write_tiny_model(tmp_path / "crowd.gguf", format="F16", shape=many)
    assert refusal(crowd) == "layer 0 has 65 query heads for each KV head; the CPU kernels take 64 at most"


def test_as_many_heads_as_a_tile_has_rows(tmp_path: Path) -> None:
    shape = TinyShape(num_heads=64, head_dim=16, width=32, num_layers=1)
    path = write_tiny_model(tmp_path / "wide.gguf", format="F16", shape=shape)
    with bound(path) as model:
        whole = model.logits(IDS)
        assert same_bits(model.logits(IDS, size=1, slot=1), whole) and np.isfinite(whole).all()


def test_widths_that_fill_no_block(tmp_path: Path) -> None:
    """Float formats take any width; what stands past the last column never counts."""
    shape = TinyShape(width=72, feed_forward_width=100, head_dim=16, num_heads=SMALL_BLOCKS.num_heads)
    path = write_tiny_model(tmp_path / "narrow.gguf", format="BF16", shape=shape)
    with bound(path, threads=2) as model:
        whole = model.logits(IDS)
        assert same_bits(model.logits(IDS, size=5, slot=2), whole) and np.isfinite(whole).all()


def expect_room(file: ModelFile, limits: CpuLimits) -> None:
    bind(whole(load_description(file).program), file, limits, OPTIONS).close()


def test_more_memory_than_there_is_is_one_sentence(path: Path) -> None:
    huge = CpuLimits(max_batch_tokens=1, max_outputs=1, max_sequences=1, context_size=64, num_pages=1 << 44)
    with open_model_file(path) as file, pytest.raises(MemoryError, match="the KV cache need .* MB, which the system"):
        expect_room(file, huge)
    assert not team_threads()
