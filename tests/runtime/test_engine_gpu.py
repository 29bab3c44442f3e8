"""The engine with layers on the emulated card: placement, answers at every split, and cards that fail."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Literal

import pytest
from emulated_device import EmulatedDevice
from emulated_gpu import install, install_failure
from talking_models import write_talking_model
from tiny_models import TinyShape, write_tiny_model

from app.loading import described
from kernels_gpu.device import GpuMissingError
from models.gguf_file import open_model_file
from models.transfers import size_text
from runtime.card_memory import GUESSED_BYTES, keep_own_bytes
from runtime.devices.binding import DeviceUse
from runtime.engine import Engine
from runtime.errors import CapacityError, DeviceError
from runtime.machine import read_machine
from runtime.options import EngineOptions, GenerateOptions
from runtime.placement import Placement, place, usable_cards
from runtime.sampling import SamplingOptions
from runtime.speculation.options import SpeculationOptions

PROMPT = [5 + index * 7 % 300 for index in range(70)]
OPTIONS = EngineOptions(max_sequences=2, batch_size=64, threads=2, context_size=192, vram_margin_bytes=0)
GREEDY = GenerateOptions(sampling=SamplingOptions(temperature=0.0), max_tokens=8, ignore_end=True)
NUM_LAYERS = 3


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    return write_tiny_model(
        folder / "tiny.gguf", architecture="llama", format="Q8_0", shape=TinyShape(num_layers=NUM_LAYERS)
    )


@pytest.fixture(scope="module")
def expected_ids(path: Path) -> tuple[int, ...]:
    """What the CPU answers."""
    with Engine.load(path, replace(OPTIONS, device="cpu")) as engine:
        return engine.generate(PROMPT, GREEDY).result.ids


def placed(path: Path, options: EngineOptions) -> Placement:
    with open_model_file(path) as file:
        return place(file, options, read_machine(), cards=usable_cards(options))


@pytest.mark.gpu
@pytest.mark.parametrize("gpu_layers", [1, 2, "all"])
def test_an_answer_is_the_same_on_this_machine_s_gpu(
    gpu_layers: int | Literal["all"], path: Path, expected_ids: tuple[int, ...]
) -> None:
    with Engine.load(path, replace(OPTIONS, gpu_layers=gpu_layers)) as engine:
        assert engine.generate(PROMPT, GREEDY).result.ids == expected_ids
        assert engine.generate(PROMPT, GREEDY).result.ids == expected_ids
        assert engine.times is not None and engine.times.gpu_ms > 0


@pytest.mark.parametrize("gpu_layers", [0, 1, 2, "all"])
def test_an_answer_is_the_same_at_every_split(
    gpu_layers: int | Literal["all"], path: Path, expected_ids: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    card = install(monkeypatch)
    options = replace(OPTIONS, gpu_layers=gpu_layers)
    with Engine.load(path, options) as engine:
        assert engine.memory == placed(path, options).bill.memory
        assert engine.description.gpu_layers == (NUM_LAYERS if gpu_layers == "all" else gpu_layers)
        first = engine.generate(PROMPT, GREEDY).result
        assert first.ids == expected_ids
        again = engine.generate(PROMPT, GREEDY).result
        assert again.ids == expected_ids
        assert again.timings.reused_tokens == len(PROMPT) - 1
        branch = [*PROMPT[:65], 9, 8, 7]  # shares a page, and a part of another that is copied
        warm = engine.generate(branch, GREEDY).result
        assert warm.timings.reused_tokens == 65
        assert engine.generate(branch, replace(GREEDY, reuse_prefix=False)).result.ids == warm.ids
    assert card.memory().free_bytes == card.total_bytes


def test_guessing_ahead_changes_no_token(
    path: Path, expected_ids: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    install(monkeypatch)
    prompt = [*PROMPT, *expected_ids, *PROMPT]
    with Engine.load(path, replace(OPTIONS, gpu_layers=2)) as engine:
        plain = engine.generate(prompt, GREEDY).result
    options = replace(OPTIONS, gpu_layers=2, speculation=SpeculationOptions(mode="ngram"))
    with Engine.load(path, options) as engine:
        result = engine.generate(prompt, GREEDY).result
    assert result.ids == plain.ids
    assert result.speculation is not None
    assert result.speculation.drafted > 0


@pytest.mark.parametrize("gpu_layers", [1, "all"])
def test_what_a_card_holds_is_counted_and_what_its_driver_takes_is_measured(
    gpu_layers: int | Literal["all"], path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    card = install(monkeypatch, EmulatedDevice(module_bytes=1000))
    with Engine.load(path, replace(OPTIONS, gpu_layers=gpu_layers)) as engine:
        assert engine.bill is not None
        for use in engine.uses:
            planned = engine.bill.on(use.kind)
            assert planned is not None and use.memory == planned.memory
        assert [use.kind for use in engine.uses] == (["gpu"] if gpu_layers == "all" else ["cpu", "gpu"])
        on_card = engine.uses[-1]
        taken = card.total_bytes - card.memory().free_bytes
        assert on_card.own_bytes is not None
        kernels_bytes = on_card.own_bytes - GUESSED_BYTES
        assert kernels_bytes > 0 and kernels_bytes % 1000 == 0
        assert on_card.memory.total_bytes + kernels_bytes == taken
        said = described(engine)
        assert f"GPU: {on_card.memory}, driver and recorded steps {size_text(on_card.own_bytes)} (planned: " in said
    with Engine.load(path, replace(OPTIONS, device="cpu")) as engine:
        assert engine.uses == (DeviceUse(kind="cpu", memory=engine.memory),)
        assert f"threads; {engine.memory}" in described(engine)


def test_what_a_card_took_by_itself_is_planned_with_the_next_time(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(monkeypatch, EmulatedDevice(module_bytes=1 << 20), keeps_memory=True)
    options = replace(OPTIONS, gpu_layers="all")
    monkeypatch.setattr("runtime.survey.kernel_folder_of_cards", lambda options: tmp_path)
    monkeypatch.setattr("runtime.devices.gpu.keep_own_bytes", lambda folder, *rest: keep_own_bytes(tmp_path, *rest))

    def planned() -> int:
        on_gpu = placed(path, options).bill.on("gpu")
        assert on_gpu is not None
        return on_gpu.graph_bytes

    assert planned() == GUESSED_BYTES
    with Engine.load(path, options) as engine:
        taken = engine.uses[-1].own_bytes
    assert taken is not None and taken > GUESSED_BYTES
    assert planned() == taken
    (kept,) = tmp_path.iterdir()
    kept.write_text('{"own_bytes": true}')
    assert planned() == GUESSED_BYTES
    keep_own_bytes(tmp_path, "emulated card", 1 << 40)  # another program took that
    assert planned() == GUESSED_BYTES


@pytest.mark.parametrize("gpu_layers", [1, "all"])
def test_only_candidates_leave_the_card(
    gpu_layers: int | Literal["all"], path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    card = install(monkeypatch)
    chains = [SamplingOptions(temperature=0.0), SamplingOptions(seed=5), SamplingOptions(seed=6, presence_penalty=0.5)]
    options = replace(OPTIONS, gpu_layers=gpu_layers, speculation=SpeculationOptions(mode="ngram"))
    with Engine.load(path, options) as engine:
        row_bytes = 4 * engine.vocabulary.size
        for chain in chains:
            wanted = replace(GREEDY, sampling=chain)
            before = card.downloaded_bytes
            ids = engine.generate(PROMPT, wanted).result.ids
            assert card.downloaded_bytes - before <= len(ids) * row_bytes * 3 // 4
            before = card.downloaded_bytes
            assert engine.generate(PROMPT, replace(wanted, logprobs=1)).result.ids == ids
            assert card.downloaded_bytes - before >= len(ids) * row_bytes


def test_two_answers_share_steps(path: Path, expected_ids: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch)
    with Engine.load(path, replace(OPTIONS, gpu_layers=2)) as engine:
        other = engine.generate(PROMPT[::-1], GREEDY)
        assert engine.generate(PROMPT, GREEDY).result.ids == expected_ids
        together = other.result.ids
        assert engine.generate(PROMPT[::-1], replace(GREEDY, reuse_prefix=False)).result.ids == together


@pytest.mark.parametrize("gpu_layers", [2, "all"])
@pytest.mark.parametrize("after", [3, 60, 130])
def test_a_lost_card_is_replaced_in_the_middle_of_an_answer(
    after: int,
    gpu_layers: int | Literal["all"],
    path: Path,
    expected_ids: tuple[int, ...],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    card = install(monkeypatch)
    with Engine.load(path, replace(OPTIONS, gpu_layers=gpu_layers)) as engine:
        card.launch_fails_at = card.num_launches + after
        result = engine.generate(PROMPT, GREEDY).result
        assert result.ids == expected_ids
        assert result.notes == ("The card stopped answering. The CPU goes on alone.",)
        launches = card.num_launches
        later = engine.generate(PROMPT, GREEDY).result
        assert (later.ids, later.notes) == (expected_ids, ())
        assert card.num_launches == launches


def test_a_lost_card_that_nothing_can_replace_ends_the_answer_with_a_sentence(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    card = install(monkeypatch)
    copied = tmp_path / "copied.gguf"
    copied.write_bytes(path.read_bytes())
    with Engine.load(copied, replace(OPTIONS, gpu_layers="all")) as engine:
        write_tiny_model(copied, architecture="llama", format="Q8_0", shape=TinyShape(num_layers=1))
        card.launch_fails_at = card.num_launches + 1
        with pytest.raises(DeviceError, match="stopped answering.*CPU can't take over.*another file.*load the model"):
            assert engine.generate(PROMPT, GREEDY).result


@pytest.mark.parametrize("number", [1, 2, 3])
def test_a_card_without_room_after_all_leaves_it_to_the_cpu(
    number: int, path: Path, expected_ids: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    card = install(monkeypatch, EmulatedDevice(fails_at=number))
    with Engine.load(path, OPTIONS) as engine:
        assert any("no room for the" in note and note.endswith("The CPU computes alone.") for note in engine.notes)
        assert engine.description.gpu_layers == 0
        assert engine.generate(PROMPT, GREEDY).result.ids == expected_ids
    assert card.memory().free_bytes == card.total_bytes
    install(monkeypatch, EmulatedDevice(fails_at=number))
    with pytest.raises(CapacityError, match="no room for the .*-ngl"):
        Engine.load(path, replace(OPTIONS, gpu_layers=2))


def test_auto_takes_the_layers_that_fit(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch)
    needed = [placed(path, replace(OPTIONS, gpu_layers=count)).bill.on("gpu") for count in (1, 2, 3)]
    bytes_of = [bill.memory.total_bytes for bill in needed if bill is not None]
    for room, expected in ((bytes_of[2], 3), (bytes_of[2] - 1, 2), (bytes_of[1] - 1, 1), (bytes_of[0] - 1, 0)):
        card = install(monkeypatch, EmulatedDevice(total_bytes=room))
        with Engine.load(path, OPTIONS) as engine:
            assert engine.description.gpu_layers == expected
            assert engine.description.gpu == (card.name if expected else None)
            assert room - card.memory().free_bytes == ([0, *bytes_of][expected])


@pytest.fixture(scope="module")
def mixture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_talking_model(tmp_path_factory.mktemp("models") / "mixture.gguf", "qwen3moe")


@pytest.mark.parametrize(("gpu_layers", "cpu_experts"), [("all", 0), ("all", 1), ("all", "all"), (1, "all"), (1, 0)])
def test_a_mixture_of_experts_answers_the_same_wherever_they_are(
    gpu_layers: int | Literal["all"],
    cpu_experts: int | Literal["all"],
    mixture: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with Engine.load(mixture, replace(OPTIONS, device="cpu")) as engine:
        expected = engine.generate(PROMPT, GREEDY).result.ids
        layers = engine.description.num_layers
    card = install(monkeypatch)
    options = replace(OPTIONS, gpu_layers=gpu_layers, cpu_experts=cpu_experts)
    with Engine.load(mixture, options) as engine:
        assert engine.memory == placed(mixture, options).bill.memory
        assert engine.description.gpu_layers == (layers if gpu_layers == "all" else gpu_layers)
        assert engine.generate(PROMPT, GREEDY).result.ids == expected
        together = [engine.generate(PROMPT[:count], GREEDY) for count in (70, 33)]
        assert [answer.result.ids for answer in together][0] == expected
    assert card.memory().free_bytes == card.total_bytes


def test_auto_leaves_experts_behind_where_a_card_is_too_small(mixture: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch)
    needed = placed(mixture, replace(OPTIONS, gpu_layers="all", cpu_experts=1)).bill.on("gpu")
    assert needed is not None
    install(monkeypatch, EmulatedDevice(total_bytes=needed.memory.total_bytes))
    with Engine.load(mixture, OPTIONS) as engine:
        loaded = engine.description
        assert (loaded.gpu_layers, loaded.cpu_experts) == (loaded.num_layers, 1)
        assert "the experts of the first 1 on the CPU" in described(engine)
        assert engine.generate(PROMPT, GREEDY).result.ids


def test_a_card_that_can_t_be_opened_is_one_sentence(
    path: Path, expected_ids: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    install_failure(monkeypatch, GpuMissingError("CuPy is not installed."))
    with Engine.load(path, OPTIONS) as engine:
        assert engine.notes[-1] == "CuPy is not installed. The CPU computes alone."
        assert engine.generate(PROMPT, GREEDY).result.ids == expected_ids
    for options in (replace(OPTIONS, gpu_layers=2), replace(OPTIONS, device="gpu")):
        with pytest.raises(DeviceError, match=r"^CuPy is not installed\.$"):
            Engine.load(path, options)


def test_a_missing_compiler_is_one_sentence(
    path: Path, expected_ids: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    card = install(monkeypatch)

    def fail(*_: object) -> None:
        raise GpuMissingError("NVIDIA's compiler for GPU kernels (NVRTC) was not found.")

    monkeypatch.setattr(card, "load", fail)
    with Engine.load(path, OPTIONS) as engine:
        assert engine.notes[-1] == "NVIDIA's compiler for GPU kernels (NVRTC) was not found. The CPU computes alone."
        assert engine.generate(PROMPT, GREEDY).result.ids == expected_ids
    with pytest.raises(DeviceError, match="NVRTC"):
        Engine.load(path, replace(OPTIONS, device="gpu"))
