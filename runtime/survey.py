"""What was asked for on one machine, and what any setting would cost there.

Owns the joining of a model's file, the options and the devices into a question for the planner.  Does not decide, and
does not load.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from models.description import ModelDescription, load_description
from models.gguf_file import ModelFile
from runtime.card_memory import own_bytes
from runtime.cards import Card, Cards
from runtime.devices.binding import DeviceMemory, DeviceOptions, Limits, pages_for
from runtime.devices.pricing import expert_layers, price_cpu, price_gpu, split
from runtime.errors import DeviceError
from runtime.machine import Machine, choose_threads
from runtime.memory import NOTHING, DeviceBill, MemoryBill, machine_margin_bytes
from runtime.options import EngineOptions
from runtime.planner import Price, Setting, Wish

SPARE_STATES = 4
"""Beside two for each sequence, in models that keep states: texts that can be gone on from."""

DraftPrice = Callable[[DeviceOptions], DeviceMemory]


@dataclass(frozen=True, kw_only=True)
class Site:
    """What a model is priced for.  card: the one that may be used, card_own_bytes: what CUDA keeps there;
    draft_price: what a draft beside it reserves.
    """

    file: ModelFile
    options: EngineOptions
    machine: Machine
    threads: int
    card: Card | None
    card_own_bytes: int = 0
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


@dataclass(frozen=True, kw_only=True)
class Survey:
    """A question for the planner.  model: as it is with all of its trained context.  notes: sentences for the user."""

    model: ModelDescription
    site: Site
    wish: Wish
    price: Price
    notes: tuple[str, ...]


def survey(
    file: ModelFile, options: EngineOptions, machine: Machine, cards: Cards, draft_price: DraftPrice | None = None
) -> Survey:
    """Looks at everything.  Raises ModelError for what can't be run, DeviceError and OptionError for devices.

    draft_price: what a draft model beside it reserves, if there is to be one.
    """
    model = load_description(file)
    threads, note = choose_threads(options.threads, machine)
    card = _card(options, cards)
    site = Site(
        file=file,
        options=options,
        machine=machine,
        threads=threads,
        card=card,
        card_own_bytes=own_bytes(kernel_folder_of_cards(options), card.name) if card else 0,
        draft_price=draft_price,
    )
    return Survey(
        model=model,
        site=site,
        wish=_wish(options, model, card),
        price=_price(model, site),
        notes=(*model.notes, *([note] if note else []), *_expert_notes(options, model)),
    )


def kernel_folder_of_cards(options: EngineOptions) -> Path:
    """Where a card's compiled kernels are kept, and what is known of it."""
    return options.kernel_folder.expanduser() / "gpu"


def _expert_notes(options: EngineOptions, model: ModelDescription) -> list[str]:
    if options.cpu_experts in ("auto", 0) or expert_layers(model.program):
        return []
    return ["The model is no mixture of experts, so --cpu-moe and --n-cpu-moe change nothing."]


def _wish(options: EngineOptions, model: ModelDescription, card: Card | None) -> Wish:
    """What these options ask of the planner."""
    num_layers, with_experts = len(model.program.layers), expert_layers(model.program)
    layers, experts = options.gpu_layers, options.cpu_experts
    moves_experts = experts == "auto" and layers == "auto"
    count = options.least_cpu_experts if moves_experts else 0 if experts == "auto" else experts
    return Wish(
        trained_context_size=model.context_length,
        num_layers=num_layers,
        context_size=options.context_size,
        gpu_layers=None if layers == "auto" else min(num_layers, num_layers if layers == "all" else layers),
        most_layers=options.most_gpu_layers,
        can_use_gpu=card is not None,
        cache_type_k=options.cache_type_k,
        cache_type_v=options.cache_type_v,
        expert_layers=with_experts,
        cpu_experts=with_experts if count == "all" else min(count, with_experts),
        moves_experts=moves_experts and with_experts > 0,
    )


def _price(model: ModelDescription, site: Site) -> Price:
    """What a setting of that model costs there."""

    @cache
    def price(setting: Setting) -> MemoryBill:
        parts = split(model.program, setting.gpu_layers, setting.cpu_experts)
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
                    graph_bytes=site.card_own_bytes,
                    free_bytes=site.card.free_bytes,
                    margin_bytes=site.options.vram_margin_bytes,
                )
            )
        return MemoryBill(
            context_size=setting.context_size,
            gpu_layers=setting.gpu_layers,
            devices=tuple(devices),
            cpu_experts=setting.cpu_experts if setting.gpu_layers else 0,
        )

    return price


def _card(options: EngineOptions, cards: Cards) -> Card | None:
    """The card to use, if any.  Raises DeviceError when there must be one."""
    if options.device == "cpu" or options.gpu_layers == 0:
        return None
    if cards.best is None:
        if options.asks_for_gpu:
            fault = cards.fault or "No GPU was found."
            raise DeviceError(f"{fault} Leave -ngl and --device out to compute on the CPU.")
        return None
    if not isinstance(options.device, int):
        return cards.best
    named = next((card for card in cards.cards if card.index == options.device), None)
    if named is None or not named.is_usable:
        usable = ", ".join(f"{card.index} ({card.name})" for card in cards.cards if card.is_usable)
        fault = "is not there" if named is None else "is older than what the GPU kernels are made for"
        raise DeviceError(f"GPU {options.device}, which --device names, {fault}. What can be used: {usable}.")
    return named


def _limits(context_size: int, options: EngineOptions) -> Limits:
    return Limits(
        max_batch_tokens=min(options.batch_size, max(context_size, 1) * options.max_sequences),
        max_outputs=_max_outputs(options),
        max_sequences=options.max_sequences,
        context_size=context_size,
        num_pages=options.max_sequences * pages_for(context_size),
        num_states=2 * options.max_sequences + SPARE_STATES,
    )


def _max_outputs(options: EngineOptions) -> int:
    """Rows for what was asked for, and for the longest draft with the token before it."""
    speculation = options.speculation
    return options.max_outputs if speculation.is_off else max(options.max_outputs, speculation.draft_max + 1)
