"""The chat for people who hear the screen, and its themes."""

from dataclasses import replace
from pathlib import Path

import pytest
from chat_stage import FakeEngine, chat, says
from fake_shelf import FakeKeeper, FakeShelf, desk_for

from app.chat.engine_port import LoadStep
from app.chat.load_lines import LoadLines
from app.preferences import Preferences

SPOKEN = Preferences(model="tiny-1m", screen_reader=True)
FRAMES = "╭╮╰╯│─▌░"


@pytest.mark.parametrize("width", [40, 80, 140])
async def test_a_screen_in_words_has_no_frames_and_says_who_speaks(tmp_path: Path, width: int) -> None:
    engine = FakeEngine(scripts=[says("Hello there.")])
    desk = desk_for(engine, SPOKEN)
    async with chat(engine, tmp_path / "chat.db", size=(width, 30), models=desk) as stage:
        await stage.ask("Hi")
        await stage.until_shown("You: Hi", "Model:", "Hello there.", "Write a message")
        assert not [char for char in FRAMES if char in stage.text()]
        await stage.press("f2")
        await stage.until_shown("Models. Enter chooses", "fits, 4,096")
        await stage.press("escape", "f3")
        await stage.until_shown("Settings. Enter changes", "Nothing is changed.")
        await stage.press("escape", "f4")
        await stage.until_shown("Speed")


async def test_a_theme_is_taken_and_kept(tmp_path: Path) -> None:
    engine, keeper = FakeEngine(), FakeKeeper()
    desk = desk_for(engine, Preferences(model="tiny-1m", theme="nord"), keeper=keeper)
    async with chat(engine, tmp_path / "chat.db", models=desk) as stage:
        await stage.until_idle()
        assert stage.app.theme == "nord"
        await stage.send("/theme gruvbox")
        await stage.until(lambda: keeper.saved == {"theme": "gruvbox"})
        assert stage.app.theme == "gruvbox"
        await stage.send("/theme [none]")
        await stage.until_shown("There is no theme [none]; there are")
    desk = desk_for(engine, Preferences(model="tiny-1m", theme="nothing"))
    async with chat(engine, tmp_path / "chat.db", models=desk) as stage:
        await stage.until_shown("There is no theme nothing; there are")
        await stage.until_idle()


async def test_what_concerns_a_card_is_shown_where_there_is_one(tmp_path: Path) -> None:
    engine = FakeEngine()
    for devices, is_shown in (((), False), (("Card 9000, 8.0 GB free",), True)):
        desk = desk_for(engine, replace(SPOKEN, screen_reader=None), shelf=FakeShelf(devices=devices))
        async with chat(engine, tmp_path / "chat.db", size=(100, 60), models=desk) as stage:
            await stage.until_idle()
            await stage.press("f3")
            await stage.until_shown("Settings", "threads")
            assert ("gpu-layers" in stage.text()) == is_shown


def test_progress_in_words_has_no_bars() -> None:
    lines = LoadLines()
    lines.add(LoadStep(title="Downloading x", done=49 * 10**6, total=98 * 10**6, unit="bytes"))
    assert lines.lines(60, is_plain=True) == ["• Downloading x 50 %"]
