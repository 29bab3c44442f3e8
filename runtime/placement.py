"""Where a model goes and what that costs, decided before anything is loaded.

Owns the decision: how many layers on a GPU, which context size, the bill for both.  Does not load: the engine carries
it out.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

from models.description import ModelDescription, load_description
from models.gguf_file import ModelFile
from models.transfers import size_text
from runtime.cards import Card, Cards
from runtime.devices.binding import DeviceMemory, DeviceOptions, Limits, pages_for
from runtime.devices.pricing import Split, price_cpu, price_gpu, split
from runtime.errors import DeviceError, OptionError
from runtime.machine import Machine, choose_threads
from runtime.memory import NOTHING, DeviceBill, MemoryBill, machine_margin_bytes
from runtime.options import EngineOptions
from runtime.planner import Price, Setting, Wish, choose

CARD_OWN_BYTES = 384 * 2**20
"""About what CUDA keeps on a card for a program: its context, the loaded kernels, the recorded steps."""

NO_CARDS = Cards(fault="No GPU was looked for.")

DraftPrice = Callable[[DeviceOptions], DeviceMemory]


@dataclass(frozen=True, kw_only=True)
class Placement:
    """What a model will be bound with, and the bill for each device.

    gpu_layers: so many of the last layers, with the head, are on `card`; 0: everything is on the CPU.  The parts
    themselves are runtime.devices.pricing.split(model.program, gpu_layers).  notes: sentences for the user; reasons:
    why it came out so, for those who ask.
    """

    model: ModelDescription
    bill: MemoryBill
    device_options: DeviceOptions
    notes: tuple[str, ...]
    card: Card | None = None
    reasons: tuple[str, ...] = ()

    @property
    def gpu_layers(self) -> int:
        """Layers on the GPU."""
        return self.bill.gpu_layers

    @property
    def split(self) -> Split:
        """The operations of each device."""
        return split(self.model.program, self.gpu_layers)


@dataclass(frozen=True, kw_only=True)
class Site:
    """What a model is priced for.  card: the one that may be used; draft_price: what a draft beside it reserves."""

    file: ModelFile
    options: EngineOptions
    machine: Machine
    threads: int
    card: Card | None
    draft_price: DraftPrice | None = None

    def device_options(self, setting: Setting) -> DeviceOptions:
        """How the parts will be bound."""
        options = self.options
        return DeviceOptions(
            limits=_limits(setting.context_size, options),
            threads=self.threads,
            cache_type_k=setting.cache_type_k,
            cache_type_v=setting.cache_type_v,
            activations=options.activations,
            isa=options.isa,
            kernel_folder=options.kernel_folder.expanduser(),
        )


def place(
    file: ModelFile,
    options: EngineOptions,
    machine: Machine,
    *,
    cards: Cards = NO_CARDS,
    draft_price: DraftPrice | None = None,
) -> Placement:
    """Decides for an open file.  Raises CapacityError when it does not fit, ModelError for what can't be run.

    cards: what was found; without any, everything is on the CPU.  Raises DeviceError when a GPU is asked for and there
    is none.  draft_price: what a draft model beside it reserves, if there is to be one.
    """
    model = load_description(file)
    threads, thread_note = choose_threads(options.threads, machine)
    card = _card(options, cards)
    site = Site(file=file, options=options, machine=machine, threads=threads, card=card, draft_price=draft_price)
    wish = wish_of(options, model, card)
    price = price_of(model, site)
    bill = choose(wish, price)
    context_size = bill.context_size
    if context_size != model.context_length:
        # Some models have one table of frequencies for short contexts and another for long ones.
        model = load_description(file, context_size=context_size)
    notes = [*model.notes, *([thread_note] if thread_note else [])]
    if context_size > model.context_length:
        notes.append(
            f"The context window of {context_size} tokens is larger than the {model.context_length} that the model "
            f"was trained for: answers that far on may make no sense."
        )
    return Placement(
        model=model,
        bill=bill,
        device_options=site.device_options(wish.setting(context_size, bill.gpu_layers)),
        notes=tuple(notes),
        card=card if bill.gpu_layers else None,
        reasons=tuple(_reasons(wish, bill, price, site, cards)),
    )


def wish_of(options: EngineOptions, model: ModelDescription, card: Card | None) -> Wish:
    """What these options ask of the planner."""
    num_layers = len(model.program.layers)
    layers = options.gpu_layers
    return Wish(
        trained_context_size=model.context_length,
        num_layers=num_layers,
        context_size=options.context_size,
        gpu_layers=None if layers == "auto" else min(num_layers, num_layers if layers == "all" else layers),
        can_use_gpu=card is not None,
        cache_type_k=options.cache_type_k,
        cache_type_v=options.cache_type_v,
    )


def price_of(model: ModelDescription, site: Site) -> Price:
    """What a setting of that model costs there."""

    @cache
    def price(setting: Setting) -> MemoryBill:
        parts = split(model.program, setting.gpu_layers)
        options = site.device_options(setting)
        available = site.machine.memory_available_bytes
        on_cpu = DeviceBill(
            kind="cpu",
            name=site.machine.cpu_name,
            memory=price_cpu(parts.cpu, site.file, options) if parts.cpu is not None else NOTHING,
            draft=site.draft_price(options) if site.draft_price is not None else None,
            free_bytes=available,
            margin_bytes=machine_margin_bytes(available) if available is not None else 0,
        )
        devices = [on_cpu]
        if parts.gpu is not None:
            assert site.card is not None, "layers on a GPU need one"
            devices.append(
                DeviceBill(
                    kind="gpu",
                    name=site.card.name,
                    memory=price_gpu(parts.gpu, site.file, options),
                    graph_bytes=CARD_OWN_BYTES,
                    free_bytes=site.card.free_bytes,
                    margin_bytes=site.options.vram_margin_bytes,
                )
            )
        return MemoryBill(context_size=setting.context_size, gpu_layers=setting.gpu_layers, devices=tuple(devices))

    return price


def _card(options: EngineOptions, cards: Cards) -> Card | None:
    """The card to use, if any.  Raises DeviceError when there must be one."""
    layers = options.gpu_layers
    if options.device == "cpu":
        if layers not in ("auto", 0):
            raise OptionError(
                option="gpu_layers", flag="-ngl", value=layers, expected="0 beside --device cpu, or no such flag"
            )
        return None
    is_needed = options.device == "gpu" or layers not in ("auto", 0)
    if cards.best is None and is_needed:
        raise DeviceError(f"{cards.fault or 'No GPU was found.'} Leave -ngl and --device out to compute on the CPU.")
    return None if layers == 0 else cards.best


def _reasons(wish: Wish, bill: MemoryBill, price: Price, site: Site, cards: Cards) -> list[str]:
    """Sentences on the number of layers."""
    card = site.card
    if card is None:
        why = cards.fault if site.options.device != "cpu" and cards.best is None else None
        return [f"Everything runs on the CPU. {why}" if why else "Everything runs on the CPU, as asked for."]
    return [*_card_reasons(card, cards), _layers_reason(wish, bill, price, card)]


def _card_reasons(card: Card, cards: Cards) -> list[str]:
    others = [other for other in cards.cards if other is not card]
    if not others:
        return []
    names = ", ".join(f"{other.name} ({other.index})" for other in others)
    return [
        f"Of {len(cards.cards)} GPUs the {card.name} ({card.index}) is used, which has most memory free; not {names}."
    ]


def _layers_reason(wish: Wish, bill: MemoryBill, price: Price, card: Card) -> str:
    layers, total = bill.gpu_layers, wish.num_layers
    if wish.gpu_layers is not None:
        return f"{layers} of {total} layers are on the {card.name}, as asked for."
    if layers == total:
        return f"All {total} layers fit on the {card.name}."
    try:
        more = price(wish.setting(bill.context_size, layers + 1)).on("gpu")
    except DeviceError as error:
        return f"Nothing is on the {card.name}. {error}"
    assert more is not None, "a layer more has a part on the GPU"
    short_bytes = more.total_bytes - (more.budget_bytes or 0)
    return (
        f"{layers or 'None'} of {total} layers fit on the {card.name}: for {layers + 1}, {size_text(short_bytes)} more "
        f"would have to be free there."
    )


def _limits(context_size: int, options: EngineOptions) -> Limits:
    return Limits(
        max_batch_tokens=min(options.batch_size, max(context_size, 1) * options.max_sequences),
        max_outputs=_max_outputs(options),
        max_sequences=options.max_sequences,
        context_size=context_size,
        num_pages=options.max_sequences * pages_for(context_size),
    )


def _max_outputs(options: EngineOptions) -> int:
    """Rows for what was asked for, and for the longest draft with the token before it."""
    speculation = options.speculation
    return options.max_outputs if speculation.is_off else max(options.max_outputs, speculation.draft_max + 1)
