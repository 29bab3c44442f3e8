"""Plans from headers alone: the bill, the largest context, and how fast decoding can be at most."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from faked_cards import cards_of, fake_card, fake_machine
from large_models import EIGHT_BILLION, ONE_BILLION, write_large_model
from tiny_models import write_tiny_model

from models.gguf_file import open_model_file
from runtime.forecast import card_bandwidth, cpu_bandwidth
from runtime.options import EngineOptions
from runtime.placement import place
from runtime.plans import ModelPlan, plan_model
from runtime.speculation.loading import DraftFile
from runtime.speculation.options import SpeculationOptions


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_large_model(tmp_path_factory.mktemp("models") / "large.gguf", EIGHT_BILLION)


def planned(path: Path, total_gib: float | None, **options: object) -> ModelPlan:
    cards = cards_of() if total_gib is None else cards_of(fake_card(total_gib))
    return plan_model(path, EngineOptions(**options), machine=fake_machine(), cards=cards)  # type: ignore[arg-type]


def test_a_plan_is_what_loading_would_place(large: Path) -> None:
    for size, options in (
        (6, EngineOptions()),
        (24, EngineOptions(context_size=4096)),
        (12, EngineOptions(gpu_layers=3)),
        (None, EngineOptions()),
    ):
        cards = cards_of() if size is None else cards_of(fake_card(size))
        with open_model_file(large) as file:
            placement = place(file, options, fake_machine(), cards=cards)
        plan = plan_model(large, options, machine=fake_machine(), cards=cards)
        assert (plan.bill, plan.card, plan.reasons) == (placement.bill, placement.card, placement.reasons)
        assert plan.fits and plan.fault is None


def test_what_does_not_fit_is_planned_all_the_same(large: Path) -> None:
    plan = planned(large, 6, gpu_layers="all", context_size=32_768)
    assert not plan.fits and plan.bill.gpu_layers == 32
    assert plan.fault is not None
    assert f"What fits: -ngl 19, or -c {plan.largest_context_size}, or -c " in plan.fault
    assert " with -ctk q8_0 -ctv q8_0, or -c " in plan.fault and plan.fault.endswith(" with -ctk q4_0 -ctv q4_0.")
    assert planned(large, 6, gpu_layers="all", context_size=plan.largest_context_size).fits


def test_the_largest_context_ends_with_what_was_trained_or_asked_for(large: Path) -> None:
    assert planned(large, None).largest_context_size == 131_072
    assert planned(large, None, context_size=200_000).largest_context_size == 200_000
    on_card = planned(large, 12)
    assert 8192 < (on_card.largest_context_size or 0) < 131_072


def test_decoding_is_as_fast_as_memory_gives_a_tokens_bytes(large: Path) -> None:
    on_cpu, on_gpu, both = planned(large, None), planned(large, 24), planned(large, 6)
    machine, card = cpu_bandwidth(8, None), card_bandwidth(fake_card(24))
    assert machine.source == "assumed for 8 threads" and card.source == "by its clock and width"
    (pace,) = on_cpu.forecast.devices
    # All weights but the embedding, of which one row is read; keys and values of one position are read and written.
    with open_model_file(large) as file:
        embedding = file.tensors["token_embd.weight"].size_bytes
    # Packing makes 148 bytes of 144.
    position_bytes = 2 * 32 * 8 * 128 * 2
    weights = on_cpu.bill.memory.weights_bytes - embedding * 148 / 144
    assert pace.moved_bytes == pytest.approx(weights + 2 * position_bytes, rel=1e-3)
    assert pace.full_moved_bytes == pace.moved_bytes + 8191 * position_bytes
    assert on_cpu.forecast.tokens_per_s == machine.read_bytes_per_s / pace.moved_bytes
    (pace,) = on_gpu.forecast.devices
    weights = on_gpu.bill.memory.weights_bytes - embedding * 148 / 144
    assert pace.moved_bytes == pytest.approx(weights + 2 * position_bytes, rel=1e-3)
    assert on_gpu.forecast.tokens_per_s == 360e9 / pace.moved_bytes
    # One device after the other.
    assert [pace.kind for pace in both.forecast.devices] == ["cpu", "gpu"]
    assert on_cpu.forecast.tokens_per_s < both.forecast.tokens_per_s < on_gpu.forecast.tokens_per_s
    assert both.forecast.full_tokens_per_s < both.forecast.tokens_per_s


def test_a_measured_bandwidth_takes_the_place_of_an_assumed_one(large: Path) -> None:
    plan = plan_model(large, EngineOptions(threads=4), machine=fake_machine(), cards=cards_of(), read_bytes_per_s=100e9)
    (pace,) = plan.forecast.devices
    assert (pace.bandwidth.read_bytes_per_s, pace.bandwidth.source) == (100e9, "measured")
    assert cpu_bandwidth(64, None).read_bytes_per_s == cpu_bandwidth(3, None).read_bytes_per_s
    unknown = card_bandwidth(replace(fake_card(8), bandwidth_bytes_per_s=None))
    assert unknown.source == "assumed" and unknown.read_bytes_per_s > 0


def test_a_draft_model_is_in_the_bill_of_the_cpu(tmp_path: Path, large: Path) -> None:
    draft = write_tiny_model(tmp_path / "draft.gguf", metadata={"general.name": "Guesser"})
    speculation = SpeculationOptions(draft_model=draft)
    plain, guessing = planned(large, 6), planned(large, 6, speculation=speculation)
    assert (plain.draft, guessing.draft) == (None, "Guesser")
    with DraftFile(draft, "q4_0") as file, open_model_file(large) as model:
        placement = place(model, EngineOptions(speculation=speculation), fake_machine(), cards=cards_of(fake_card(6)))
        price = file.price(placement.device_options)
    assert guessing.bill.draft == price
    # Beside a draft more tokens are checked at once, so the model itself needs a little more.
    on_cpu = guessing.bill.devices[0]
    assert on_cpu.total_bytes == on_cpu.memory.total_bytes + price.total_bytes
    assert guessing.bill.devices[1].draft is None


def test_a_draft_model_of_another_vocabulary_is_left_out_as_loading_does(tmp_path: Path, large: Path) -> None:
    name = {"general.name": "Stranger"}
    draft = write_tiny_model(tmp_path / "draft.gguf", vocabulary="sentence_pieces", metadata=name)
    plan = planned(large, 6, speculation=SpeculationOptions(draft_model=draft))
    assert plan.draft is None and plan.bill.draft is None
    assert plan.notes[-1].startswith("The draft model Stranger can't guess for this model, which goes on without it: ")


def test_a_draft_model_without_room_is_left_out_as_loading_does(tmp_path: Path, large: Path) -> None:
    draft = write_large_model(tmp_path / "draft.gguf", ONE_BILLION)
    options = EngineOptions(context_size=4096, speculation=SpeculationOptions(draft_model=draft))
    plan = plan_model(large, options, machine=fake_machine(6), cards=cards_of())
    assert plan.fits and plan.draft is None
    assert plan.notes[-1] == "There is no room for the draft model Tiny llama, so nothing is guessed by it."
    assert plan_model(large, options, machine=fake_machine(3), cards=cards_of()).draft == "Tiny llama", "neither fits"
