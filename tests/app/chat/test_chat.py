"""The chat as a user sees it: an engine that says what it is told, a screen that is read line by line."""

from pathlib import Path

from chat_stage import FakeEngine, chat, says


async def test_a_first_turn(tmp_path: Path) -> None:
    engine = FakeEngine(scripts=[says("Hello **you** there.")])
    async with chat(engine, tmp_path / "chat.db", system="Be kind.") as stage:
        await stage.until_idle()
        await stage.ask("Hi [/] x[0]")
        print(stage.text())
        await stage.until_shown("Hi [/] x[0]", "Hello you there.", "40.0 t", "tiny-1m")
