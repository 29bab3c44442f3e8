"""A plan for a model, from its file's header alone: where it would go, the bill, whether that fits, how fast at most.

Owns the joining of placement and forecast.  Loads nothing; does not know how a plan is shown.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from models.vocabulary import load_vocabulary
from runtime.adapters import open_adapted
from runtime.cards import Card, Cards, read_cards
from runtime.devices.costs import StepCosts
from runtime.devices.pricing import costs_cpu, costs_gpu
from runtime.forecast import Bandwidth, Forecast, card_bandwidth, cpu_bandwidth, forecast
from runtime.machine import Machine, read_machine
from runtime.memory import DeviceKind, MemoryBill
from runtime.options import EngineOptions
from runtime.placement import Placement, place_bill
from runtime.planner import largest_context, nearest_bill, too_large
from runtime.speculation.loading import DraftFile, refusal
from runtime.survey import Survey, survey


@dataclass(frozen=True, kw_only=True)
class ModelPlan:
    """num_layers: of the model; the bill says how many are on the GPU.  expert_layers: how many of the first hold all
    experts.  largest_context_size: with these layers and
    types, up to what was trained or asked for; None where not even a page fits.

    draft: the draft model's name, if one is in the bill.  fault: what to say when it does not fit, with the nearest
    settings that do.
    """

    path: Path
    name: str
    architecture: str
    num_parameters: int
    size_bytes: int
    num_layers: int
    expert_layers: int
    trained_context_size: int
    threads: int
    batch_size: int
    cache_type_k: str
    cache_type_v: str
    card: Card | None
    bill: MemoryBill
    largest_context_size: int | None
    forecast: Forecast
    draft: str | None
    fault: str | None
    notes: tuple[str, ...]
    reasons: tuple[str, ...]

    @property
    def fits(self) -> bool:
        """Whether every device can spare its part."""
        return self.bill.fits


def plan_model(
    path: Path | str,
    options: EngineOptions,
    *,
    machine: Machine | None = None,
    cards: Cards | None = None,
    read_bytes_per_s: float | None = None,
) -> ModelPlan:
    """Plans for this machine, or another.  read_bytes_per_s: the CPU's, if it was measured.

    Raises ModelError for the file's faults, DeviceError when a GPU is asked for that is not there.
    """
    machine = machine or read_machine()
    if cards is None:
        cards = Cards() if options.device == "cpu" else read_cards()
    with ExitStack() as stack:
        file = stack.enter_context(open_adapted(path, options.adapters))
        speculation, draft, note = options.speculation, None, None
        if speculation.uses_draft_model and speculation.draft_model is not None:
            draft = stack.enter_context(DraftFile(speculation.draft_model, speculation.draft_weights))
            note = refusal(draft, load_vocabulary(file.metadata), draft.load_vocabulary())
            draft = draft if note is None else None
        surveyed = survey(file, options, machine, cards, draft.price if draft else None)
        bill = nearest_bill(surveyed.wish, surveyed.price)
        if draft is not None and not bill.fits:
            # As loading does: the model without a draft is better than none.
            alone = survey(file, options, machine, cards)
            bill_alone = nearest_bill(alone.wish, alone.price)
            if bill_alone.fits:
                note = f"There is no room for the draft model {draft.name}, so nothing is guessed by it."
                surveyed, bill, draft = alone, bill_alone, None
        placement = place_bill(surveyed, bill, cards)
        plan = _plan(surveyed, placement, draft.name if draft else None, read_bytes_per_s)
    return plan if note is None else replace(plan, notes=(*plan.notes, note))


def _plan(surveyed: Survey, placement: Placement, draft: str | None, read_bytes_per_s: float | None) -> ModelPlan:
    model, bill, wish, options = placement.model, placement.bill, surveyed.wish, placement.device_options
    most = max(model.context_length, bill.context_size)
    held = replace(wish, cpu_experts=max(wish.cpu_experts, bill.cpu_experts))
    return ModelPlan(
        path=surveyed.site.file.paths[0],
        name=model.name or surveyed.site.file.paths[0].stem,
        architecture=model.hyperparameters.architecture,
        num_parameters=model.num_parameters,
        size_bytes=model.size_bytes,
        num_layers=wish.num_layers,
        expert_layers=wish.expert_layers,
        trained_context_size=model.context_length,
        threads=options.threads,
        batch_size=options.limits.max_batch_tokens,
        cache_type_k=options.cache_type_k,
        cache_type_v=options.cache_type_v,
        card=placement.card,
        bill=bill,
        largest_context_size=largest_context(held, bill.gpu_layers, surveyed.price, most=most),
        forecast=_forecast(surveyed, placement, read_bytes_per_s),
        draft=draft,
        fault=None if bill.fits else str(too_large(bill, wish, surveyed.price)),
        notes=placement.notes,
        reasons=placement.reasons,
    )


def _forecast(surveyed: Survey, placement: Placement, read_bytes_per_s: float | None) -> Forecast:
    file, options = surveyed.site.file, placement.device_options
    parts: list[tuple[DeviceKind, StepCosts, Bandwidth]] = []
    if placement.split.cpu is not None:
        bandwidth = cpu_bandwidth(options.threads, read_bytes_per_s)
        parts.append(("cpu", costs_cpu(placement.split.cpu, file, options), bandwidth))
    if placement.split.gpu is not None:
        assert placement.card is not None, "layers on a GPU need one"
        parts.append(("gpu", costs_gpu(placement.split.gpu, file, options), card_bandwidth(placement.card)))
    return forecast(parts, placement.bill.context_size)
