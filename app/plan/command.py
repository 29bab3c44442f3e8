"""`tandem plan`: plan, print.

Owns what reaches which stream.  Does not know how a plan is made (runtime.plans) or written (tables.py).
"""

from __future__ import annotations

from pathlib import Path

from app.drafts import add_draft
from app.errors import EXIT_FAILURE, EXIT_SUCCESS, AppError
from app.loading import model_name
from app.output import Console
from app.plan.arguments import PlanRequest
from app.plan.tables import plan_text, plan_value
from app.profiles import measured_bandwidth, with_profile
from app.runtime_options import engine_options, models_folder_of
from runtime.cards import LEAST_CAPABILITY, Card, Cards
from runtime.catalog import CATALOG, DownloadError, parse_reference, resolve_model
from runtime.errors import DeviceError
from runtime.options import EngineOptions
from runtime.placement import usable_cards
from runtime.plans import plan_model


def run(request: PlanRequest, console: Console) -> int:
    """Plans without fetching or loading anything; returns the exit status: a failure when it does not fit."""
    preferences = request.preferences
    folder = models_folder_of(preferences)

    def find(name: str) -> Path:
        try:
            return resolve_model(name, folder=folder, offline=True)
        except DownloadError as error:
            if name.lower() not in CATALOG and parse_reference(name) is None:
                raise
            raise AppError(
                f"{name} is not on this disk, and a plan fetches nothing.", hint=f"`tandem models pull {name}` does."
            ) from error

    engine_options(preferences)  # says what is out of range before anything is looked for
    path = find(model_name(preferences))
    preferences = with_profile(preferences, path, console.note, verbose=True)
    options = add_draft(engine_options(preferences), preferences.draft_model, path, folder, find)
    cards = usable_cards(options) if request.vram_bytes is None else _imagined(request.vram_bytes)
    try:
        plan = plan_model(path, options, cards=cards, read_bytes_per_s=measured_bandwidth(preferences, path))
    except DeviceError as error:
        if cards.best is not None or not _asks_for_card(options):
            raise
        raise AppError(str(error), hint="--vram 8 plans for a GPU of 8 GB that is not here.") from error
    if request.as_json:
        console.json(plan_value(plan))
    else:
        console.text(plan_text(plan, console.columns() if console.is_terminal else None))
    if plan.fault is not None:
        console.note(f"tandem: {plan.fault}")
        return EXIT_FAILURE
    return EXIT_SUCCESS


def _asks_for_card(options: EngineOptions) -> bool:
    return options.device == "gpu" or options.gpu_layers not in ("auto", 0)


def _imagined(vram_bytes: int) -> Cards:
    """A card that is not here, with nothing else on it."""
    card = Card(
        index=0,
        name=f"imagined GPU of {vram_bytes / 2**30:g} GB",
        bus_id="",
        compute_capability=LEAST_CAPABILITY,
        total_bytes=vram_bytes,
        free_bytes=vram_bytes,
    )
    return Cards(cards=(card,))
