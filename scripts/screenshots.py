"""Pictures of the chat for the README: a real model answers, and each screen is kept as an SVG.

    .venv/bin/python scripts/screenshots.py [MODEL]

Writes docs/screenshots/NAME.svg. Owns the scenes; the chat is the one that `tandem` opens.
"""

from __future__ import annotations

import asyncio
import re
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from textual.pilot import Pilot  # noqa: E402

from app.chat import ChatOptions  # noqa: E402
from app.chat.app import ChatApp  # noqa: E402
from app.chat.launch import make_app  # noqa: E402
from app.chat.view import Phase  # noqa: E402
from app.chat.widgets.prompt import Prompt  # noqa: E402
from app.preferences import Preferences  # noqa: E402
from runtime.catalog import models_folder  # noqa: E402

FOLDER = ROOT / "docs" / "screenshots"
SIZE = (104, 42)
QUESTION = (
    "Write a short Python function that merges two sorted lists. "
    "Then compare it with sorted(a + b) in a Markdown table: time, memory, when to use it."
)
_FONTS = re.compile(r"\s*@font-face \{.*?\}", re.DOTALL)
_LOOK_S = 0.1


async def settle(app: ChatApp, pilot: Pilot[None], pause_s: float = 0.5) -> None:
    """Waits until the model is loaded and nothing is written, then for the drawing."""
    while app.controller.phase in (Phase.LOADING, Phase.REPLYING):
        await pilot.pause(_LOOK_S)
    await app.workers.wait_for_complete()
    await pilot.pause(pause_s)


def keep(app: ChatApp, name: str) -> None:
    """Writes what stands on the screen; the viewer's own fixed-width font is as good as one from elsewhere."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    picture = _FONTS.sub("", app.export_screenshot(title="tandem"))
    (FOLDER / f"{name}.svg").write_text(picture + "\n", encoding="utf-8")
    print(f"{name}.svg")


async def say(app: ChatApp, pilot: Pilot[None], text: str) -> None:
    """Sends a message or a command."""
    app.screen.query_one(Prompt).insert_text(text)
    await pilot.press("enter")


async def take(app: ChatApp) -> None:
    """Goes through the scenes."""
    async with app.run_test(size=SIZE) as pilot:
        await settle(app, pilot)
        await say(app, pilot, QUESTION)
        await settle(app, pilot)
        keep(app, "chat")
        await pilot.press("f2")
        await pilot.pause(6.0)  # every model of the list is priced
        keep(app, "models")
        await pilot.press("escape")
        await say(app, pilot, "/set ctx-size 16384")
        await pilot.pause(3.0)
        keep(app, "settings")
        await pilot.press("escape")
        await pilot.press("f4")
        await pilot.pause(3.0)
        await say(app, pilot, "/guesses")
        await say(app, pilot, "Now the same for any number of lists.")
        await settle(app, pilot)
        keep(app, "device")


def main() -> None:
    model = sys.argv[1] if len(sys.argv) > 1 else "qwen2.5-coder-1.5b"
    with tempfile.TemporaryDirectory() as folder:
        app = make_app(
            ChatOptions(
                preferences=Preferences(model=model, temp=0.0, predict=400),
                settings_path=Path(folder) / "settings.toml",
                models_folder=models_folder(),
                history_path=Path(folder) / "conversations.db",
            )
        )
        try:
            asyncio.run(take(app))
        finally:
            app.controller.close()


if __name__ == "__main__":
    main()
