"""The choice of context size and GPU layers, against prices and devices that are made up."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.devices.binding import PAGE_SIZE, DeviceMemory, pages_for
from runtime.errors import CapacityError, DeviceError
from runtime.memory import NOTHING, DeviceBill, MemoryBill, machine_margin_bytes
from runtime.planner import (
    DEFAULT_CONTEXT_SIZE,
    MIN_DEFAULT_CONTEXT_SIZE,
    Price,
    Setting,
    Wish,
    choose,
    largest_context,
)

TYPE_BITS = {"f16": 16, "q8_0": 8, "q4_0": 4}


@dataclass(frozen=True, kw_only=True)
class FakeModel:
    """Sizes in bytes.  layers: weights of each; page: K and V of a page and a layer at 16 bits."""

    layers: tuple[int, ...]
    embedding: int = 50_000_000
    page: int = 100_000
    workspace: int = 5_000_000
    graph: int = 20_000_000

    def part(self, layers: tuple[int, ...], setting: Setting, embeddings: int) -> DeviceMemory:
        bits = TYPE_BITS[setting.cache_type_k] + TYPE_BITS[setting.cache_type_v]
        return DeviceMemory(
            weights_bytes=sum(layers) + embeddings * self.embedding,
            kv_bytes=pages_for(setting.context_size) * len(layers) * self.page * bits // 32,
            workspace_bytes=self.workspace,
        )

    def price(self, cpu_free: int | None, gpu_free: int, margin: int = 0) -> Price:
        def price(setting: Setting) -> MemoryBill:
            count = setting.gpu_layers
            first, last = self.layers[: len(self.layers) - count], self.layers[len(self.layers) - count :]
            on_cpu = DeviceBill(
                kind="cpu",
                name="CPU",
                memory=self.part(first, setting, 1) if first else NOTHING,
                free_bytes=cpu_free,
                margin_bytes=0 if cpu_free is None else machine_margin_bytes(cpu_free),
            )
            on_gpu = DeviceBill(
                kind="gpu",
                name="GPU",
                memory=self.part(last, setting, 1 if first else 2),
                graph_bytes=self.graph,
                free_bytes=gpu_free,
                margin_bytes=margin,
            )
            devices = (on_cpu, on_gpu) if count else (on_cpu,)
            return MemoryBill(context_size=setting.context_size, gpu_layers=count, devices=devices)

        return price


PLAIN = FakeModel(layers=(10_000_000,) * 10)


def wish(trained: int, num_layers: int, **more: object) -> Wish:
    return replace(Wish(trained_context_size=trained, num_layers=num_layers), **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(("trained", "chosen"), [(512, 512), (8192, 8192), (131_072, DEFAULT_CONTEXT_SIZE)])
def test_with_memory_to_spare_the_context_is_what_was_trained_up_to_a_limit(trained: int, chosen: int) -> None:
    for free in (10**12, None):
        price = PLAIN.price(free, 0)
        bill = choose(wish(trained, 10), price)
        assert bill == price(wish(trained, 10).setting(chosen, 0))


@given(st.integers(0, 500_000_000))
def test_the_default_context_is_the_largest_that_fits(free: int) -> None:
    price, asked = PLAIN.price(free, 0), wish(10_000, 10)
    try:
        bill = choose(asked, price)
    except CapacityError as error:
        smallest = price(asked.setting(MIN_DEFAULT_CONTEXT_SIZE, 0))
        assert not smallest.fits
        assert (error.needed_bytes, error.available_bytes) == (smallest.total_bytes, free - free // 10)
    else:
        assert bill.fits
        larger = price(asked.setting(bill.context_size + PAGE_SIZE, 0))
        assert bill.context_size == DEFAULT_CONTEXT_SIZE or not larger.fits


def test_a_context_that_was_asked_for_is_never_made_smaller() -> None:
    assert choose(wish(512, 10, context_size=20_000), PLAIN.price(10**10, 0)).context_size == 20_000
    with pytest.raises(
        CapacityError, match=r"context of 20000 tokens, the model takes 468.0 MB \(weights 150.0 MB, KV"
    ):
        choose(wish(512, 10, context_size=20_000), PLAIN.price(300_000_000, 0))


def test_nothing_that_fits_leaves_the_plain_advice() -> None:
    with pytest.raises(CapacityError, match="Choose a smaller context size or a smaller model, or close other"):
        choose(wish(512, 10), PLAIN.price(100_000_000, 0))


LAYERS = st.lists(st.integers(1, 50_000_000), min_size=1, max_size=12).map(tuple)
MODELS = st.builds(
    FakeModel,
    layers=LAYERS,
    embedding=st.integers(0, 100_000_000),
    page=st.integers(1, 1_000_000),
    workspace=st.integers(0, 50_000_000),
    graph=st.integers(0, 50_000_000),
)
FREE = st.integers(0, 1_500_000_000)


def chosen(asked: Wish, price: Price) -> MemoryBill | None:
    try:
        return choose(asked, price)
    except CapacityError:
        return None


@given(MODELS, FREE, FREE, st.integers(0, 100_000_000), st.one_of(st.none(), st.integers(1, 20_000)))
def test_a_plan_never_exceeds_what_is_free_less_the_margin(
    model: FakeModel, cpu_free: int, gpu_free: int, margin: int, context_size: int | None
) -> None:
    asked = wish(8192, len(model.layers), gpu_layers=None, can_use_gpu=True, context_size=context_size)
    bill = chosen(asked, model.price(cpu_free, gpu_free, margin))
    if bill is None:
        return
    on_gpu = bill.on("gpu")
    assert on_gpu is None or on_gpu.total_bytes <= gpu_free - margin
    on_cpu = bill.on("cpu")
    assert on_cpu is not None and on_cpu.total_bytes <= cpu_free - cpu_free // 10


@given(MODELS, FREE, FREE, FREE, st.integers(1, 20_000))
def test_more_memory_on_the_card_never_gives_fewer_layers(
    model: FakeModel, cpu_free: int, one: int, other: int, context_size: int
) -> None:
    asked = wish(8192, len(model.layers), gpu_layers=None, can_use_gpu=True, context_size=context_size)
    less, more = (chosen(asked, model.price(cpu_free, free)) for free in sorted((one, other)))
    if less is not None:
        assert more is not None and more.gpu_layers >= less.gpu_layers


@given(MODELS, FREE, FREE, st.integers(1, 20_000))
def test_auto_equals_the_best_of_all_numbers_that_fit(
    model: FakeModel, cpu_free: int, gpu_free: int, context_size: int
) -> None:
    price, count = model.price(cpu_free, gpu_free), len(model.layers)
    asked = wish(8192, count, can_use_gpu=True, context_size=context_size)
    explicit = [chosen(replace(asked, gpu_layers=layers), price) for layers in range(count + 1)]
    fitting = [bill for bill in explicit if bill is not None]
    assert chosen(replace(asked, gpu_layers=None), price) == (fitting[-1] if fitting else None)


@given(MODELS, FREE, FREE, st.integers(0, 12), st.integers(1, 100_000))
def test_the_largest_context_is_one_page_short_of_too_much(
    model: FakeModel, cpu_free: int, gpu_free: int, layers: int, most: int
) -> None:
    price, asked = model.price(cpu_free, gpu_free), wish(8192, len(model.layers))
    layers = min(layers, len(model.layers))
    size = largest_context(asked, layers, price, most=most)
    if size is None:
        assert not price(asked.setting(min(PAGE_SIZE, most), layers)).fits
        return
    assert size <= most and price(asked.setting(size, layers)).fits
    assert size == most or not price(asked.setting(min(most, size + PAGE_SIZE), layers)).fits


def settings_in(text: str) -> list[dict[str, str]]:
    """The flags of a message's advice."""
    advice = text.split("What fits: ")[1].rstrip(".")
    found = []
    for words in advice.split(", or "):
        parts = words.replace(" with", "").split()
        found.append(dict(zip(parts[::2], parts[1::2], strict=True)))
    return found


@given(MODELS, FREE, FREE, st.integers(1, 12), st.integers(1, 100_000))
def test_what_is_said_to_fit_does_and_a_little_more_does_not(
    model: FakeModel, cpu_free: int, gpu_free: int, layers: int, context_size: int
) -> None:
    price, count = model.price(cpu_free, gpu_free), len(model.layers)
    asked = wish(8192, count, can_use_gpu=True, gpu_layers=min(layers, count), context_size=context_size)
    try:
        choose(asked, price)
        return
    except CapacityError as error:
        text = str(error)
    if "What fits" not in text:
        return
    for flags in settings_in(text):
        changed = replace(
            asked,
            gpu_layers=int(flags.get("-ngl", asked.gpu_layers or 0)),
            context_size=int(flags.get("-c", context_size)),
            cache_type_k=flags.get("-ctk", "f16"),  # type: ignore[arg-type]
            cache_type_v=flags.get("-ctv", "f16"),  # type: ignore[arg-type]
        )
        assert chosen(changed, price) is not None
        if "-ngl" in flags:
            assert flags.keys() == {"-ngl"}
        else:
            assert changed.context_size is not None
            larger = replace(changed, context_size=changed.context_size + PAGE_SIZE)
            assert changed.context_size == context_size or chosen(larger, price) is None


def refusing(price: Price, refuses: Callable[[Setting], bool]) -> Price:
    """A price of devices that can't run some settings."""

    def refused(setting: Setting) -> MemoryBill:
        if refuses(setting):
            raise DeviceError("These kernels can't.")
        return price(setting)

    return refused


def test_what_a_gpu_cant_run_stays_on_the_cpu_unless_it_was_asked_for() -> None:
    price = refusing(PLAIN.price(None, 10**10), lambda setting: setting.gpu_layers > 0)
    asked = wish(8192, 10, can_use_gpu=True, gpu_layers=None)
    assert choose(asked, price).gpu_layers == 0
    with pytest.raises(DeviceError, match="These kernels can't"):
        choose(replace(asked, gpu_layers=3), price)


def test_types_that_a_device_cant_keep_are_not_advised() -> None:
    asked = wish(8192, 10, context_size=30_000)
    with pytest.raises(
        CapacityError, match=r"What fits: -c 11392, or -c 22784 with -ctk q8_0 -ctv q8_0, or -ctk q4_0 -ctv q4_0\.$"
    ):
        choose(asked, PLAIN.price(370_000_000, 0))
    price = refusing(PLAIN.price(370_000_000, 0), lambda setting: setting.cache_type_k != "f16")
    with pytest.raises(CapacityError, match=r"What fits: -c 11392\.$"):
        choose(asked, price)
