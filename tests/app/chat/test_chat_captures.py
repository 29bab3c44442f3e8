"""The chat's screens as text, at three widths: each must stand exactly as it was found good.

TANDEM_WRITE_CAPTURES=1 writes them anew; look at the difference before it is kept.
"""

import os
import re
import threading
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest
from chat_stage import FakeEngine, Script, Stage, chat, says
from fake_shelf import MB
from textual import events

from app.chat.engine_port import EngineFault, LoadStep, MemoryUse, ModelFacts, ReplyPiece
from app.chat.widgets.prompt import Prompt

CAPTURES = Path(__file__).parent / "captures"
SIZES = [(40, 20), (80, 24), (140, 30)]
REPLY = """Here is a **short** answer to [/] and x[0]:

```python
def first(items: list[int]) -> int:
    return items[0]  # a comment that is long enough to be wrapped on a narrow screen
```

| Name | What it is good for |
|---|---|
| list | anything that has an order [bold] |
| set | members, once each |

1. one
2. two
   - inner
"""
MEMORY = MemoryUse(device="CPU", weights_bytes=100 * MB, kv_bytes=4096 * 1600, workspace_bytes=10 * MB)
WINDOW = ModelFacts(name="tiny-1m", description="llama · 1M · Q8_0 · window 60", context_size=60, vocabulary="words")

Scene = Callable[[Stage, FakeEngine], Awaitable[None]]


async def loading(stage: Stage, engine: FakeEngine) -> None:
    await stage.until_shown("Packing weights")
    await stage.send("Are you there?")
    await stage.until_shown("waiting for the model")


async def failed(stage: Stage, engine: FakeEngine) -> None:
    await stage.until_shown("no model")


async def conversation(stage: Stage, engine: FakeEngine) -> None:
    await stage.ask("Tell me about [lists] and sets, please.\nBriefly.")
    await stage.press("ctrl+home")


async def writing(stage: Stage, engine: FakeEngine) -> None:
    await stage.send("How much is 17 + 4?")
    await stage.until_shown("It is 21")
    await stage.until_shown("writing")
    await stage.press("o", "k")
    await stage.until_shown("ok")


async def stopped(stage: Stage, engine: FakeEngine) -> None:
    await writing(stage, engine)
    await stage.press("escape")
    await stage.until_idle()


async def window_full(stage: Stage, engine: FakeEngine) -> None:
    for number in range(4):
        await stage.ask(f"question {number} " + "q " * 8)
    await stage.send("question 4 " + "q " * 8)
    await stage.until_shown("Stop here")


async def conversations(stage: Stage, engine: FakeEngine) -> None:
    await stage.ask("What is a list?")
    await stage.press("ctrl+n")
    await stage.ask("What is a set, and how does it differ from a list of the same things?")
    await stage.press("ctrl+o")
    await stage.until_shown("shown now")


async def keys(stage: Stage, engine: FakeEngine) -> None:
    await stage.until_idle()
    await stage.press("f1")
    await stage.until_shown("new line")


async def offers(stage: Stage, engine: FakeEngine) -> None:
    await stage.until_idle()
    await stage.press("/", "c", "o")
    await stage.until_shown("/continue", "/copy")


async def branches(stage: Stage, engine: FakeEngine) -> None:
    await stage.ask("What is a list?")
    await stage.press("ctrl+r")
    await stage.until_shown("version 2 of 2")
    await stage.until_idle()
    await stage.ask("And a set, in [/] a few words that fill a line of the screen and more, for it is long?")
    await stage.press("ctrl+b")
    await stage.until_shown("○ reply")


async def editing(stage: Stage, engine: FakeEngine) -> None:
    await branches(stage, engine)
    await stage.press("escape", "alt+up", "alt+up", "alt+e")
    await stage.until_shown("Editing")


async def search(stage: Stage, engine: FakeEngine) -> None:
    await stage.ask("What is a list?")
    await stage.press("ctrl+n")
    await stage.ask("And what makes [/] another list of the very same things, however long this may be?")
    await stage.press("ctrl+f", *"list")
    await stage.until_shown("2 found")


async def attached(stage: Stage, engine: FakeEngine) -> None:
    await stage.until_idle()
    prompt = stage.app.screen.query_one(Prompt)
    prompt.post_message(events.Paste("a [line] of many words\n" * 3000))
    await stage.press(*"What is this?")
    await stage.until_shown("15,000 tokens", "What is this?")


async def models(stage: Stage, engine: FakeEngine) -> None:
    await stage.until_idle()
    await stage.press("f2")
    await stage.until_shown("fits, 4,096", "In the catalog")


async def settings(stage: Stage, engine: FakeEngine) -> None:
    await stage.until_idle()
    await stage.send("/set ctx-size 999999")
    await stage.until_shown("Does not fit", "* ctx-size")


async def device(stage: Stage, engine: FakeEngine) -> None:
    await stage.until_idle()
    await stage.press("f4")
    await stage.until_shown("Speed   measured", "work   10.0 MB")


def engine_for(scene: Scene) -> FakeEngine:
    """The engine that a scene needs."""
    never = threading.Event()
    thinking = (
        # One arrival, which gives no speed yet.
        ReplyPiece(thinking="17 + 4 is 17 + 3 + 1, so 20 + 1.", text="It is 21", token_ids=(1, 2)),
        ReplyPiece(text=", of course.", token_ids=(3,)),
    )
    if scene is loading:
        steps = (LoadStep(title="Downloading tiny-1m", done=10**8, total=10**8, unit="bytes"),)
        return FakeEngine(load_steps=steps, load_gate=never)
    if scene is failed:
        fault = EngineFault("There is no model tiny-1m: it is neither a catalog name nor a file.", "See tandem models.")
        return FakeEngine(load_error=fault)
    if scene in (writing, stopped):
        return FakeEngine(scripts=[Script(pieces=thinking, gate=never, num_before_gate=1)])
    if scene is window_full:
        return FakeEngine(facts=WINDOW)
    engine = FakeEngine(scripts=[says(REPLY)] if scene is conversation else [])
    if scene in (settings, device):
        engine.facts = replace(engine.facts, memory=(MEMORY,))
    return engine


def steady(text: str) -> str:
    """The text without its scroll bar; the time of day and how long was thought replaced by fixed ones."""
    text = re.sub(r"\b\d\d:\d\d\b", "12:34", text)
    text = re.sub(r"[▁-▇]", " ", text)
    text = re.sub(r"(?m) *█?$", "", text)
    text = re.sub(r"Thought for \d+ s", "Thought for 1 s", text)
    return text + "\n"


@pytest.mark.parametrize("size", SIZES, ids=lambda size: str(size[0]))
@pytest.mark.parametrize(
    "scene",
    [
        loading,
        failed,
        conversation,
        writing,
        stopped,
        window_full,
        conversations,
        keys,
        offers,
        branches,
        editing,
        search,
        attached,
        models,
        settings,
        device,
    ],
    ids=lambda scene: scene.__name__,
)
async def test_screens_stand_as_they_were_found_good(scene: Scene, size: tuple[int, int], tmp_path: Path) -> None:
    capture = CAPTURES / f"{scene.__name__}-{size[0]}.txt"
    engine = engine_for(scene)
    async with chat(engine, tmp_path / "chat.db", size=size) as stage:
        await scene(stage, engine)
        assert len(stage.lines()) == size[1]
        if os.environ.get("TANDEM_WRITE_CAPTURES") == "1":
            await stage.pilot.pause(0.5)
            capture.parent.mkdir(exist_ok=True)
            capture.write_text(steady(stage.text()), encoding="utf-8")
        expected = capture.read_text(encoding="utf-8")
        await stage.until(lambda: steady(stage.text()) == expected, f"the screen of {capture.name}\n{expected}\nbut")


async def test_without_colour_nothing_is_coloured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    async with chat(FakeEngine(scripts=[says(REPLY)]), tmp_path / "chat.db") as stage:
        await stage.ask("Colours?")
        await stage.until_shown("return items[0]")
        colours = {
            colour
            for strip in stage.app.screen._compositor.render_strips()
            for segment in strip.apply_filter(stage.app._filters[0], stage.app.screen.background_colors[1])
            if segment.style is not None
            for colour in (segment.style.color, segment.style.bgcolor)
            if colour is not None
        }
    assert colours
    assert [colour for colour in colours if len(set(colour.get_truecolor())) != 1] == []
