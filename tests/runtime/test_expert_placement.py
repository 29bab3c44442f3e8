"""Mixtures of experts on cards of several sizes: whose memory holds the experts, and what is said about it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from faked_cards import cards_of, fake_card, fake_machine
from large_models import EIGHT_BILLION, THIRTY_BILLION, THIRTY_BILLION_EXPERTS, write_large_mixture, write_large_model

from models.gguf_file import ModelFile, open_model_file
from models.program import MixExperts
from runtime.errors import CapacityError, OptionError
from runtime.options import EngineOptions
from runtime.placement import Placement, place
from runtime.plans import plan_model


@pytest.fixture(scope="module")
def mixture(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ModelFile]:
    path = tmp_path_factory.mktemp("models") / "mixture.gguf"
    with open_model_file(write_large_mixture(path, THIRTY_BILLION, THIRTY_BILLION_EXPERTS)) as file:
        yield file


def on_card(file: ModelFile, total_gib: float, available_gib: float = 64, **options: Any) -> Placement:
    return place(file, EngineOptions(**options), fake_machine(available_gib), cards=cards_of(fake_card(total_gib)))


def weights(placement: Placement) -> tuple[int, int]:
    """On the CPU and on the GPU."""
    on_cpu, on_gpu = placement.bill.on("cpu"), placement.bill.on("gpu")
    assert on_cpu is not None and on_gpu is not None
    return on_cpu.memory.weights_bytes, on_gpu.memory.weights_bytes


def test_a_small_card_holds_all_layers_but_their_experts(mixture: ModelFile) -> None:
    assert on_card(mixture, 6, cpu_experts=0).gpu_layers < 48
    placement = on_card(mixture, 6, cpu_experts="all")
    assert (placement.gpu_layers, placement.cpu_experts) == (48, 48)
    on_cpu, on_gpu = weights(placement)
    assert on_cpu > 15e9 and on_gpu < 2e9
    kept = placement.bill.on("cpu")
    assert kept is not None and kept.memory.kv_bytes == 0
    assert placement.reasons[-1] == "The experts of 48 of these layers stay on the CPU, as asked for."


def test_every_expert_is_on_one_device(mixture: ModelFile) -> None:
    both = [weights(on_card(mixture, 24, gpu_layers=40, cpu_experts=count)) for count in (0, 8, 9, 20, 48)]
    assert both[0] == both[1]
    for (cpu, gpu), (more_cpu, less_gpu) in zip(both[1:], both[2:], strict=False):
        assert more_cpu > cpu and less_gpu < gpu
    split = on_card(mixture, 24, gpu_layers=40, cpu_experts=20).split
    assert split.cpu is not None and split.gpu is not None
    mixed = [[op.layer_idx for op in part.operations if isinstance(op, MixExperts)] for part in (split.cpu, split.gpu)]
    assert mixed == [list(range(20)), list(range(20, 48))]
    assert len(split.links) == 2 + 2 * 12


def test_what_does_not_fit_names_the_fewest_experts_that_may_stay_behind(mixture: ModelFile) -> None:
    with pytest.raises(CapacityError, match=r"What fits: -ngl \d+, or --n-cpu-moe \d+") as caught:
        on_card(mixture, 12, gpu_layers="all", context_size=8192)
    count = int(str(caught.value).split("--n-cpu-moe ")[1].split(",")[0].rstrip("."))
    assert on_card(mixture, 12, gpu_layers="all", context_size=8192, cpu_experts=count).gpu_layers == 48
    with pytest.raises(CapacityError):
        on_card(mixture, 12, gpu_layers="all", context_size=8192, cpu_experts=count - 1)
    hint = on_card(mixture, 12, context_size=8192, cpu_experts=0).reasons[-1]
    assert hint == f"With --n-cpu-moe {count} all 48 layers fit, but for the experts of the first {count}."


@pytest.mark.parametrize(("total_gib", "layers", "experts"), [(4, 48, 44), (8, 48, 32), (12, 48, 20), (24, 48, 0)])
def test_auto_keeps_attention_on_the_card_and_leaves_experts_behind(
    mixture: ModelFile, total_gib: int, layers: int, experts: int
) -> None:
    placement = on_card(mixture, total_gib, context_size=8192)
    assert (placement.gpu_layers, placement.cpu_experts) == (layers, experts)
    assert placement.bill.fits
    on_gpu = placement.bill.on("gpu")
    assert on_gpu is not None and on_gpu.memory.kv_bytes == 2 * 48 * 4 * 128 * 2 * 8192
    if not experts:
        assert placement.reasons == ("All 48 layers fit on the Fake 24 GB.",)
        return
    assert placement.reasons == (
        f"All 48 layers fit on the Fake {total_gib} GB.",
        f"The experts of {experts} of these layers stay on the CPU, so that the rest of them fits: --n-cpu-moe N "
        "chooses.",
    )
    fewer = on_card(mixture, total_gib, context_size=8192, gpu_layers="all", cpu_experts=experts)
    assert fewer.bill == placement.bill
    with pytest.raises(CapacityError):
        on_card(mixture, total_gib, context_size=8192, gpu_layers="all", cpu_experts=experts - 1)


def test_a_card_too_small_for_all_attention_takes_layers_without_experts(mixture: ModelFile) -> None:
    whole = on_card(mixture, 3, context_size=32_768, cpu_experts=0)
    placement = on_card(mixture, 3, context_size=32_768)
    assert 0 <= whole.gpu_layers < placement.gpu_layers < 48
    assert placement.cpu_experts == 48 and placement.bill.fits
    with pytest.raises(CapacityError):
        on_card(mixture, 3, context_size=32_768, gpu_layers=placement.gpu_layers + 1, cpu_experts="all")


def test_what_was_measured_as_fastest_is_the_least_that_stays_behind(mixture: ModelFile) -> None:
    placement = on_card(mixture, 24, most_gpu_layers=48, least_cpu_experts=10, context_size=8192)
    assert (placement.gpu_layers, placement.cpu_experts) == (48, 10)
    assert placement.reasons[-1] == (
        "The experts of 10 of these layers stay on the CPU, which is fastest: --n-cpu-moe N chooses."
    )
    busy = on_card(mixture, 8, most_gpu_layers=48, least_cpu_experts=10, context_size=8192)
    assert (busy.gpu_layers, busy.cpu_experts) == (48, 32)
    assert on_card(mixture, 24, least_cpu_experts=10, gpu_layers="all", context_size=8192).cpu_experts == 0
    assert on_card(mixture, 24, least_cpu_experts=10, cpu_experts=3).cpu_experts == 3


def test_a_plan_says_where_experts_go_and_what_context_fits_then(mixture: ModelFile) -> None:
    plan = plan_model(mixture.paths[0], EngineOptions(), machine=fake_machine(), cards=cards_of(fake_card(12)))
    assert plan.fits and (plan.bill.gpu_layers, plan.bill.cpu_experts, plan.expert_layers) == (48, 20, 48)
    assert plan.largest_context_size is not None and plan.largest_context_size >= plan.bill.context_size


def test_experts_that_the_machine_has_no_room_for_are_not_advised(mixture: ModelFile) -> None:
    with pytest.raises(CapacityError) as caught:
        on_card(mixture, 6, available_gib=4, gpu_layers="all", context_size=8192)
    assert "moe" not in str(caught.value)


def test_a_plan_counts_the_experts_that_a_token_uses(mixture: ModelFile) -> None:
    plan = plan_model(
        mixture.paths[0], EngineOptions(cpu_experts=24), machine=fake_machine(), cards=cards_of(fake_card(24))
    )
    assert (plan.bill.gpu_layers, plan.bill.cpu_experts) == (48, 24)
    cpu, gpu = plan.forecast.devices
    on_cpu, on_gpu = plan.bill.devices
    # Of 24 layers 8 of 128 experts; packing and the routers add a little.
    assert on_cpu.memory.weights_bytes / 16 <= cpu.moved_bytes < 1.1 * on_cpu.memory.weights_bytes / 16
    assert gpu.moved_bytes < 0.2 * on_gpu.memory.weights_bytes


def test_a_model_without_experts_says_so(tmp_path_factory: pytest.TempPathFactory) -> None:
    path = write_large_model(tmp_path_factory.mktemp("models") / "dense.gguf", EIGHT_BILLION)
    with open_model_file(path) as file:
        placement = on_card(file, 24, cpu_experts=5)
    assert (placement.gpu_layers, placement.cpu_experts) == (32, 0)
    assert placement.notes[-1] == "The model is no mixture of experts, so --cpu-moe and --n-cpu-moe change nothing."


@pytest.mark.parametrize("count", [-1, "some", True, 1.5])
def test_numbers_that_make_no_sense_are_refused(count: Any) -> None:
    with pytest.raises(OptionError, match="--n-cpu-moe.*or all"):
        EngineOptions(cpu_experts=count)
