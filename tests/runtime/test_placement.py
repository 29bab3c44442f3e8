"""Where real models' headers go on machines and cards that are not there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from faked_cards import GIB, cards_of, fake_card, fake_machine, with_free
from large_models import EIGHT_BILLION, ONE_BILLION, write_large_model
from tiny_models import write_tiny_model

from models.gguf_file import ModelFile, open_model_file
from runtime.card_memory import GUESSED_BYTES
from runtime.devices.pricing import price_cpu
from runtime.errors import CapacityError, DeviceError, OptionError
from runtime.options import DEFAULT_VRAM_MARGIN_BYTES, EngineOptions
from runtime.placement import Placement, place


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ModelFile]:
    with open_model_file(write_large_model(tmp_path_factory.mktemp("models") / "large.gguf", EIGHT_BILLION)) as file:
        yield file


@pytest.fixture(scope="module")
def medium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ModelFile]:
    path = tmp_path_factory.mktemp("models") / "medium.gguf"
    with open_model_file(write_large_model(path, ONE_BILLION, is_tied=True)) as file:
        yield file


def on_card(file: ModelFile, total_gib: float, **options: object) -> Placement:
    return place(file, EngineOptions(**options), fake_machine(), cards=cards_of(fake_card(total_gib)))  # type: ignore[arg-type]


@pytest.mark.parametrize(("total_gib", "layers"), [(4, 17), (6, 31), (8, 32), (12, 32), (24, 32)])
def test_eight_billion_parameters_on_cards_of_every_size(large: ModelFile, total_gib: int, layers: int) -> None:
    placement = on_card(large, total_gib)
    assert (placement.gpu_layers, placement.bill.context_size) == (layers, 8192)
    on_gpu = placement.bill.on("gpu")
    assert on_gpu is not None and placement.card is not None
    assert on_gpu.total_bytes <= total_gib * GIB - DEFAULT_VRAM_MARGIN_BYTES
    # 2 x layers x KV heads x values of a head x bytes of a type, for every token.
    assert on_gpu.memory.kv_bytes == 2 * layers * 8 * 128 * 2 * 8192
    assert on_gpu.graph_bytes == GUESSED_BYTES
    if layers < 32:
        more = next(iter(placement.reasons))
        assert more.startswith(f"{layers} of 32 layers fit on the Fake {total_gib} GB: for {layers + 1}, ")
        with pytest.raises(CapacityError, match=f"What fits: -ngl {layers}, or"):
            on_card(large, total_gib, gpu_layers=layers + 1, context_size=8192)
    else:
        assert placement.reasons == (f"All 32 layers fit on the Fake {total_gib} GB.",)


def test_the_best_of_all_numbers_of_layers_is_what_auto_takes(large: ModelFile) -> None:
    fitting = []
    for layers in range(33):
        try:
            fitting.append(on_card(large, 5, gpu_layers=layers, context_size=8192))
        except CapacityError:
            break
    automatic = on_card(large, 5)
    assert automatic.bill == fitting[-1].bill
    assert 0 < automatic.gpu_layers < 32


def test_weights_move_and_none_is_lost(medium: ModelFile) -> None:
    bills = [on_card(medium, 24, gpu_layers=layers).bill for layers in range(17)]
    assert [bill.gpu_layers for bill in bills] == list(range(17))
    cpu = [bill.devices[0].memory for bill in bills]
    gpu = [bill.devices[1].memory for bill in bills[1:]]
    for less, more in zip(cpu, cpu[1:], strict=False):
        assert more.weights_bytes < less.weights_bytes and more.kv_bytes < less.kv_bytes
    for less, more in zip(gpu, gpu[1:], strict=False):
        assert more.weights_bytes > less.weights_bytes and more.kv_bytes > less.kv_bytes
    assert {bill.memory.kv_bytes for bill in bills} == {cpu[0].kv_bytes}
    # The shared embedding is on both sides, unless one side has everything.
    assert cpu[-1].total_bytes == 0 and len(bills[0].devices) == 1
    shared_bytes = gpu[0].weights_bytes + cpu[1].weights_bytes - cpu[0].weights_bytes
    assert 0.9 < shared_bytes / medium.tensors["token_embd.weight"].size_bytes < 1.1


def test_numbers_beyond_the_models_mean_all(medium: ModelFile) -> None:
    assert on_card(medium, 24, gpu_layers=999) == on_card(medium, 24, gpu_layers="all")


def test_more_layers_than_are_fastest_are_not_taken(large: ModelFile) -> None:
    few = on_card(large, 24, most_gpu_layers=5)
    assert few.gpu_layers == 5
    assert few.reasons == ("5 of 32 layers are on the Fake 24 GB, though more may fit: so many are fastest.",)
    assert on_card(large, 4, most_gpu_layers=30).gpu_layers == on_card(large, 4).gpu_layers
    assert on_card(large, 24, most_gpu_layers=5, gpu_layers=9).gpu_layers == 9
    assert on_card(large, 24, most_gpu_layers=0).gpu_layers == 0


def test_margin_and_context_cost_layers(large: ModelFile) -> None:
    plain, wide, long = (
        on_card(large, 6, **more).gpu_layers  # type: ignore[arg-type]
        for more in ({}, {"vram_margin_bytes": 2 * GIB}, {"context_size": 32_768})
    )
    assert plain > wide > 0 and plain > long > 0
    assert on_card(large, 6, vram_margin_bytes=7 * GIB).gpu_layers == 0


def test_the_machine_lends_what_the_card_lacks_and_the_other_way(large: ModelFile) -> None:
    cards = cards_of(fake_card(4))
    with pytest.raises(CapacityError, match="this machine can spare"):
        place(large, EngineOptions(), fake_machine(1.5), cards=cards)
    tight = place(large, EngineOptions(), fake_machine(2.5), cards=cards)
    assert 256 <= tight.bill.context_size < 8192
    assert tight.bill.fits and tight.gpu_layers > 0
    # A machine too small for the model alone is large enough with a card.
    with pytest.raises(CapacityError):
        place(large, EngineOptions(), fake_machine(4))
    assert place(large, EngineOptions(), fake_machine(1), cards=cards_of(fake_card(12))).gpu_layers == 32


def test_of_two_cards_one_is_used_and_the_other_named(large: ModelFile) -> None:
    small, wide = fake_card(4), fake_card(12, index=1)
    placement = place(large, EngineOptions(), fake_machine(), cards=cards_of(small, wide))
    assert (placement.card, placement.gpu_layers) == (wide, 32)
    assert placement.reasons[0] == (
        "Of 2 GPUs the Fake 12 GB (1) is used, which has most memory free; not Fake 4 GB (0). Layers are not spread "
        "over several: --device NUMBER says which one is used."
    )
    asked = place(large, EngineOptions(device=0), fake_machine(), cards=cards_of(small, wide))
    assert asked.card == small and 0 < asked.gpu_layers < 32
    assert asked.reasons[0].startswith("Of 2 GPUs the Fake 4 GB (0) is used, as asked for; not Fake 12 GB (1).")
    old = cards_of(wide, fake_card(24, index=3, capability=(6, 1)))
    for number, fault in ((0, "is not there"), (3, "is older than what")):
        with pytest.raises(DeviceError, match=rf"^GPU {number}, which --device names, {fault}.*used: 1 \(Fake 12 GB\)"):
            place(large, EngineOptions(device=number), fake_machine(), cards=old)
    busy = cards_of(small, with_free(wide, 3 * GIB))
    assert place(large, EngineOptions(), fake_machine(), cards=busy).card == small


def test_without_a_card_everything_is_on_the_cpu_and_asking_for_one_is_refused(medium: ModelFile) -> None:
    placement = place(medium, EngineOptions(), fake_machine(), cards=cards_of())
    assert (placement.gpu_layers, placement.card) == (0, None)
    assert placement.reasons == ("Everything runs on the CPU. NVIDIA's driver finds no GPU.",)
    assert placement.split.gpu is None
    for options in (EngineOptions(gpu_layers=3), EngineOptions(gpu_layers="all"), EngineOptions(device="gpu")):
        with pytest.raises(DeviceError, match="finds no GPU. Leave -ngl and --device out to compute on the CPU"):
            place(medium, options, fake_machine(), cards=cards_of())


def test_a_card_may_be_left_alone(medium: ModelFile) -> None:
    for options in (EngineOptions(device="cpu"), EngineOptions(gpu_layers=0)):
        placement = place(medium, options, fake_machine(), cards=cards_of(fake_card(24)))
        assert (placement.gpu_layers, placement.card) == (0, None)
    for wrong in ({"device": "cpu", "gpu_layers": 3}, {"device": "gpu", "gpu_layers": 0}):
        with pytest.raises(OptionError, match="layers on the device that --device .pu names"):
            EngineOptions(**wrong)
    with pytest.raises(DeviceError, match="None of 16 layers fit on the Fake 1 GB: for 1, .*Leave --device out"):
        place(medium, EngineOptions(device="gpu"), fake_machine(), cards=cards_of(fake_card(1)))


def test_a_part_on_the_cpu_is_priced_as_the_program_that_will_be_bound(tmp_path: Path) -> None:
    with open_model_file(write_tiny_model(tmp_path / "tiny.gguf")) as file:
        placement = on_card(file, 24, gpu_layers=1, threads=1)
        part = placement.split.cpu
        assert part is not None and not part.has_head
        assert placement.bill.devices[0].memory == price_cpu(part, file, placement.device_options)
