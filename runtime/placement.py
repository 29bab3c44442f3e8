"""Where a model goes and what that costs, decided before anything is loaded.

Owns the decision: how many layers on a GPU, which context size, the bill for both.  Does not load: the engine carries
it out.
"""

from __future__ import annotations

from dataclasses import dataclass

from models.description import ModelDescription, load_description
from models.gguf_file import ModelFile
from models.transfers import size_text
from runtime.cards import Card, Cards, read_cards
from runtime.devices.binding import CardPlace, DeviceOptions
from runtime.devices.pricing import Split, split
from runtime.errors import DeviceError
from runtime.machine import Machine
from runtime.memory import MemoryBill
from runtime.options import EngineOptions
from runtime.planner import choose, experts_flag, least_cpu_experts
from runtime.survey import DraftPrice, Survey, survey

NO_CARDS = Cards(fault="No GPU was looked for.")


@dataclass(frozen=True, kw_only=True)
class Placement:
    """What a model will be bound with, and the bill for each device.

    gpu_layers: so many of the last layers, with the head, are on `card`; 0: everything is on the CPU.  cpu_experts: of
    so many of the first layers the experts are on the CPU.  notes: sentences for the user; reasons: why it came out so,
    for those who ask.
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
    def card_place(self) -> CardPlace | None:
        """Which card the layers go to, and what was free there."""
        card = self.card
        return None if card is None else CardPlace(bus_id=card.bus_id, free_bytes=card.free_bytes)

    @property
    def cpu_experts(self) -> int:
        """Layers whose experts are on the CPU in any case."""
        return self.bill.cpu_experts

    @property
    def split(self) -> Split:
        """The operations of each device."""
        return split(self.model.program, self.gpu_layers, self.cpu_experts)


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
    surveyed = survey(file, options, machine, cards, draft_price)
    placement = place_bill(surveyed, choose(surveyed.wish, surveyed.price), cards)
    if options.asks_for_gpu and options.gpu_layers == "auto" and not placement.gpu_layers:
        raise DeviceError(f"{' '.join(placement.reasons)} Leave --device out to compute on the CPU.")
    return placement


def place_bill(surveyed: Survey, bill: MemoryBill, cards: Cards) -> Placement:
    """The placement for one of the planner's bills."""
    model, site, context_size = surveyed.model, surveyed.site, bill.context_size
    if context_size != model.context_length:
        # Some models have one table of frequencies for short contexts and another for long ones.
        model = load_description(site.file, context_size=context_size)
    notes = list(surveyed.notes)
    if context_size > model.context_length:
        notes.append(
            f"The context window of {context_size} tokens is larger than the {model.context_length} that the model "
            f"was trained for: answers that far on may make no sense."
        )
    return Placement(
        model=model,
        bill=bill,
        device_options=site.device_options(surveyed.wish.setting(context_size, bill.gpu_layers)),
        notes=tuple(notes),
        card=site.card if bill.gpu_layers else None,
        reasons=tuple(_reasons(surveyed, bill, cards)),
    )


def usable_cards(options: EngineOptions) -> Cards:
    """What there is, looked for unless the options leave no use for it."""
    return NO_CARDS if options.device == "cpu" or options.gpu_layers == 0 else read_cards()


def _reasons(surveyed: Survey, bill: MemoryBill, cards: Cards) -> list[str]:
    """Sentences on the number of layers."""
    site = surveyed.site
    card = site.card
    if card is None:
        is_asked = site.options.device == "cpu" or site.options.gpu_layers == 0
        return [
            "Everything runs on the CPU, as asked for." if is_asked else f"Everything runs on the CPU. {cards.fault}"
        ]
    return [
        *_card_reasons(card, cards, site.options),
        _layers_reason(surveyed, bill, card),
        *_expert_reasons(surveyed, bill),
    ]


def _card_reasons(card: Card, cards: Cards, options: EngineOptions) -> list[str]:
    others = [other for other in cards.cards if other is not card]
    if not others:
        return []
    names = ", ".join(f"{other.name} ({other.index})" for other in others)
    why = "as asked for" if isinstance(options.device, int) else "which has most memory free"
    return [
        f"Of {len(cards.cards)} GPUs the {card.name} ({card.index}) is used, {why}; not {names}. "
        "Layers are not spread over several: --device NUMBER says which one is used."
    ]


def _expert_reasons(surveyed: Survey, bill: MemoryBill) -> list[str]:
    """Where experts are, and how more layers would fit without theirs."""
    wish, total = surveyed.wish, surveyed.wish.num_layers
    if not wish.expert_layers:
        return []
    kept = bill.cpu_experts - (total - bill.gpu_layers)
    if kept > 0 and wish.moves_experts:
        why = "so that the rest of them fits" if bill.cpu_experts > wish.cpu_experts else "which is fastest"
        return [f"The experts of {kept} of these layers stay on the CPU, {why}: --n-cpu-moe N chooses."]
    found = [f"The experts of {kept} of these layers stay on the CPU, as asked for."] if kept > 0 else []
    if wish.gpu_layers is None and bill.gpu_layers < total and (wish.most_layers is None or wish.most_layers >= total):
        fitting = least_cpu_experts(wish, bill.context_size, total, surveyed.price)
        if fitting is not None:
            experts = f"the experts of {'all' if fitting.cpu_experts == total else f'the first {fitting.cpu_experts}'}"
            found.append(f"With {experts_flag(wish, fitting)} all {total} layers fit, but for {experts}.")
    return found


def _layers_reason(surveyed: Survey, bill: MemoryBill, card: Card) -> str:
    wish = surveyed.wish
    layers, total = bill.gpu_layers, wish.num_layers
    if wish.gpu_layers is not None:
        return f"{layers} of {total} layers are on the {card.name}, as asked for."
    if layers == total:
        return f"All {total} layers fit on the {card.name}."
    if layers == wish.most_layers:
        return f"{layers or 'None'} of {total} layers are on the {card.name}, though more may fit: so many are fastest."
    try:
        more = surveyed.price(wish.setting(bill.context_size, layers + 1)).on("gpu")
    except DeviceError as error:
        return f"Nothing is on the {card.name}. {error}"
    assert more is not None, "a layer more has a part on the GPU"
    short_bytes = more.total_bytes - (more.budget_bytes or 0)
    return (
        f"{layers or 'None'} of {total} layers fit on the {card.name}: for {layers + 1}, {size_text(short_bytes)} more "
        f"would have to be free there."
    )
