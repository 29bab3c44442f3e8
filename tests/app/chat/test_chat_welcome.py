"""A first start: what the machine is, which models are offered, and what to do without a network."""

import threading
from pathlib import Path

import pytest
from chat_stage import FakeEngine, chat, says
from fake_shelf import CATALOG, DISK, MB, FakeKeeper, FakeShelf, desk_for

from app.chat.engine_port import EngineFault, LoadStep
from app.chat.first_run import offers
from app.chat.model_port import Bill, ModelLine, ModelPlace
from app.preferences import Preferences

FRESH = Preferences()


def fresh_shelf(**changes: object) -> FakeShelf:
    """Nothing on the disk; the default is the catalog's smallest."""
    tiny = ModelLine(
        name="small-100m",
        title="Small 100M, Q4_1",
        place=ModelPlace.CATALOG,
        size_bytes=98 * MB,
        quantisation="Q4_1",
        licence="MIT",
    )
    return FakeShelf(disk=(), catalog=(tiny, *CATALOG), default="small-100m", **changes)  # type: ignore[arg-type]


async def test_a_fresh_machine_is_welcomed_and_chats_with_what_was_chosen(tmp_path: Path) -> None:
    engine, keeper, loaded = FakeEngine(scripts=[says("Hello.")]), FakeKeeper(), list[Preferences]()
    engine.load_steps = (LoadStep(title="Downloading small-100m", done=49 * MB, total=98 * MB, unit="bytes"),)
    engine.load_gate = threading.Event()
    desk = desk_for(engine, FRESH, shelf=fresh_shelf(), keeper=keeper, loaded=loaded)
    async with chat(engine, tmp_path / "chat.db", size=(100, 30), models=desk) as stage:
        await stage.until_shown(
            "Welcome to Tandem",
            "Processor  Fast [CPU] 9000, 2 cores, avx512",
            "Memory     16.0 GB, 8.0 GB free",
            "Graphics   no card that Tandem can use",
            "small-100m: Small 100M, Q4_1 (small and quick)",
            "98.0 MB · Q4_1 · MIT · fits: about 122.5 MB of 8.0 GB free · download",
            "large-1b: Large 1B, Q4_K_M (the best that runs well here)",
            "It is downloaded once and kept",
        )
        assert "giant-70b" not in stage.text() and "strange-1b" not in stage.text()
        assert loaded == []
        await stage.press("enter")
        await stage.until_shown("Loading small-100m", "Downloading small-100m", "Packing weights")
        assert keeper.saved == {}
        engine.load_gate.set()
        await stage.until_idle()
        await stage.ask("Hi")
        await stage.until_shown("Hello.")
    assert keeper.saved == {"model": "small-100m"}


async def test_later_is_an_answer_too(tmp_path: Path) -> None:
    engine = FakeEngine()
    async with chat(engine, tmp_path / "chat.db", models=desk_for(engine, FRESH, shelf=fresh_shelf())) as stage:
        await stage.until_shown("Welcome to Tandem", "small-100m")
        await stage.press("escape")
        await stage.until_shown("No model was chosen yet.", "no model")
        await stage.send("Hi")
        await stage.until_shown("There is no model to answer: none was chosen yet.", "│ Hi")
        await stage.press("f2")
        await stage.until_shown("In the catalog")


async def test_offline_it_says_so_and_what_to_do(tmp_path: Path) -> None:
    engine = FakeEngine()
    shelf = fresh_shelf(offline=True)
    async with chat(engine, tmp_path / "chat.db", size=(100, 24), models=desk_for(engine, FRESH, shelf=shelf)) as stage:
        await stage.until_shown("Downloads are off", "into /models/here", "Another model…")
        assert "small-100m" not in stage.text()
    shelf = FakeShelf(offline=True, default="missing")
    async with chat(engine, tmp_path / "chat.db", size=(100, 24), models=desk_for(engine, FRESH, shelf=shelf)) as stage:
        await stage.until_shown("Downloads are off", "other-2m: Other 2M, Q4_0", "on this disk")


async def test_a_download_that_fails_leads_back_with_the_reason(tmp_path: Path) -> None:
    engine = FakeEngine(load_error=EngineFault("The hub can't be reached [/].", "Check the network."))
    desk = desk_for(engine, FRESH, shelf=fresh_shelf())
    async with chat(engine, tmp_path / "chat.db", size=(100, 30), models=desk) as stage:
        await stage.until_shown("Welcome to Tandem", "small-100m")
        await stage.press("enter")
        await stage.until_shown(
            "The hub can't be reached [/]. Check the network.", "the download goes on where it stopped"
        )
        engine.load_error = None
        await stage.until_shown("small-100m")
        await stage.press("enter")
        await stage.until_idle()
        await stage.until(lambda: "Welcome" not in stage.text())


async def test_what_is_chosen_is_seen_also_below_the_first_page(tmp_path: Path) -> None:
    engine = FakeEngine(load_error=EngineFault("No network. " * 20, "Check it."))
    desk = desk_for(engine, FRESH, shelf=fresh_shelf())
    async with chat(engine, tmp_path / "chat.db", size=(60, 20), models=desk) as stage:
        await stage.until_shown("Welcome to Tandem", "small-100m")
        await stage.press("enter")
        await stage.until_shown("Welcome to Tandem", "No network.", "small-100m")
        assert "Another model…" not in stage.text()
        await stage.press("down", "down")
        await stage.until_shown("Another model…")
        await stage.press("up", "up")
        await stage.until_shown("small-100m: Small 100M")


async def test_enter_before_anything_is_offered_chooses_nothing(tmp_path: Path) -> None:
    engine, gate = FakeEngine(), threading.Event()
    shelf = fresh_shelf()
    facts = shelf.machine()
    shelf.machine = lambda: (gate.wait(), facts)[1]  # type: ignore[method-assign]
    async with chat(engine, tmp_path / "chat.db", models=desk_for(engine, FRESH, shelf=shelf)) as stage:
        await stage.until_shown("Looking for models that suit it…")
        assert "Enter begins" not in stage.text()
        await stage.press("enter")
        gate.set()
        await stage.until_shown("small-100m", "Enter begins")
        assert engine.asked == [] and "Loading" not in stage.text()


async def test_a_folder_that_does_not_answer_leaves_the_way_to_all_models(tmp_path: Path) -> None:
    engine, shelf = FakeEngine(), fresh_shelf(disk_fault="/far has not answered for 20 s [/].")
    async with chat(engine, tmp_path / "chat.db", models=desk_for(engine, FRESH, shelf=shelf)) as stage:
        await stage.until_shown("/far has not answered for 20 s [/].", "Another model…")
        await stage.press("enter")
        await stage.until_shown("Name, or words", "/far has not answered for 20 s [/].")


@pytest.mark.parametrize("width", [40, 80, 140])
async def test_the_welcome_stands_at_every_width(tmp_path: Path, width: int) -> None:
    engine = FakeEngine()
    desk = desk_for(engine, FRESH, shelf=fresh_shelf())
    async with chat(engine, tmp_path / "chat.db", size=(width, 40), models=desk) as stage:
        await stage.until_shown("Welcome to Tandem", "Processor", "small-100m", "Another model…")
        await stage.press("down", "down", "enter")
        await stage.until_shown("In the catalog")


def line_of(name: str, size_mb: int, free_mb: int = 8000, **changes: object) -> tuple[ModelLine, Bill]:
    line = ModelLine(name=name, title="", place=ModelPlace.CATALOG, size_bytes=size_mb * MB, **changes)  # type: ignore[arg-type]
    needed = line.size_bytes * 5 // 4
    return line, Bill(needed_bytes=needed, available_bytes=free_mb * MB, fits=needed <= free_mb * MB)


def test_the_offers_grow_with_the_machine() -> None:
    sizes = (100, 250, 500, 1000, 1100, 2000, 4000, 7000, 40_000)
    priced = [line_of(f"m{size}", size) for size in sizes]
    assert [offer.line.name for offer in offers(priced, "m100", has_card=False)] == ["m100", "m1100", "m2000"]
    roomy = [line_of(f"m{size}", size, 32_000) for size in sizes]
    assert [offer.line.name for offer in offers(roomy, "m100", has_card=False)] == ["m100", "m1100", "m2000"]
    assert [offer.line.name for offer in offers(roomy, "m100", has_card=True)] == ["m100", "m4000", "m7000"]
    assert offers([], "m100", has_card=False) == []
    base = line_of("base", 1500, refusal="")
    refused = line_of("refused", 1500, refusal="no")
    assert [offer.line.name for offer in offers([priced[0], refused], "m100", has_card=False)] == ["m100"]
    assert [offer.line.name for offer in offers([priced[0], base], "m100", has_card=False)] == ["m100", "base"]
    assert [offer.line.name for offer in offers([(DISK[1], priced[0][1])], "m100", has_card=False)] == ["other-2m"]
