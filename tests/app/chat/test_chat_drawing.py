"""What drawing a long reply costs, and that nothing of it is missing wherever one scrolls."""

import asyncio
import re
import threading
from pathlib import Path

import pytest
from chat_stage import FakeEngine, Script, Stage, chat
from textual._compositor import ChopsUpdate
from textual.widget import Widget
from textual.widgets import Static

from app.chat.engine_port import ReplyPiece
from app.chat.widgets.near_compositor import NearCompositor
from app.chat.widgets.prompt import Prompt
from app.chat.widgets.transcript import Transcript
from app.chat.widgets.turn_views import ReplyView


def long_reply(num_parts: int) -> list[str]:
    return [f"Paragraph {number} of many.\n\n- item {number}\n- more\n\n" for number in range(num_parts)]


def script_of(texts: list[str], gate: threading.Event | None = None, num_before_gate: int = 0) -> Script:
    pieces = tuple(ReplyPiece(text=text, token_ids=(number,)) for number, text in enumerate(texts))
    return Script(pieces=pieces, gate=gate, num_before_gate=num_before_gate)


async def work_of_a_line(folder: Path, num_parts: int, monkeypatch: pytest.MonkeyPatch) -> tuple[int, int]:
    """How often a height is asked for, and how many widgets are placed, when one more line is drawn."""
    gate = threading.Event()
    texts = [*long_reply(num_parts), "The last line.\n\n"]
    engine = FakeEngine(scripts=[script_of(texts, gate, num_parts)])
    async with chat(engine, folder / f"{num_parts}.db") as stage:
        await stage.send("question")
        await stage.until_shown(f"Paragraph {num_parts - 1} of many.")
        await stage.pilot.pause(0.1)
        compositor = stage.app.screen._compositor
        assert isinstance(compositor, NearCompositor)
        heights, placed = [0], [0]
        measure, reflow = Widget.get_content_height, NearCompositor.reflow

        def counted_measure(widget, *arguments):
            heights[0] += 1
            return measure(widget, *arguments)

        def counted_reflow(self, *arguments):
            result = reflow(self, *arguments)
            placed[0] = max(placed[0], len(self._full_map))
            return result

        with monkeypatch.context() as patch:
            patch.setattr(Widget, "get_content_height", counted_measure)
            patch.setattr(NearCompositor, "reflow", counted_reflow)
            before = -1
            while heights[0] != before:  # What was drawn before is laid out to its end first.
                before = heights[0]
                await stage.pilot.pause(0.5)
            heights[0] = placed[0] = 0
            gate.set()
            await stage.until_shown("The last line.")
            await stage.until_idle()
    return heights[0], placed[0]


async def test_one_more_line_costs_the_same_in_a_long_reply(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    short = await work_of_a_line(tmp_path, 15, monkeypatch)
    long = await work_of_a_line(tmp_path, 90, monkeypatch)
    assert 0 < long[0] <= 2 * short[0] + 20
    assert 0 < long[1] <= 1.5 * short[1]


async def seen_while_scrolling(stage: Stage) -> list[int]:
    """The numbers of the paragraphs on each screen from the first to the last."""
    transcript = stage.app.screen.query_one(Transcript)
    await stage.press("ctrl+home")
    await stage.until(lambda: transcript.scroll_y == 0, "the first line")
    seen: list[int] = []
    while True:
        seen += [int(number) for number in re.findall(r"Paragraph (\d+) of many\.", stage.text())]
        place = transcript.scroll_y
        if place >= transcript.max_scroll_y:
            return seen
        await stage.press("pagedown")
        await stage.until(lambda place=place: transcript.scroll_y > place, "the next page")


async def test_all_of_a_long_reply_is_there_wherever_one_scrolls(tmp_path: Path) -> None:
    path = tmp_path / "chat.db"
    async with chat(FakeEngine(scripts=[script_of(long_reply(40))]), path) as stage:
        await stage.ask("question")
        await stage.until_shown("Paragraph 39 of many.")
        assert sorted(set(await seen_while_scrolling(stage))) == list(range(40))
        await stage.press("alt+up", "alt+up")
        await stage.until_shown("▌ question", "Paragraph 0 of many.")
        await stage.pilot.resize_terminal(44, 20)
        await stage.press("ctrl+end")
        await stage.until_shown("Paragraph 39 of many.")
        assert sorted(set(await seen_while_scrolling(stage))) == list(range(40))
    async with chat(FakeEngine(), path, continues_last=True) as stage:
        await stage.until_shown("Paragraph 39 of many.")
        assert sorted(set(await seen_while_scrolling(stage))) == list(range(40))


async def test_what_comes_after_the_screen_has_gone_is_kept_and_breaks_nothing(tmp_path: Path) -> None:
    path = tmp_path / "chat.db"
    gate = threading.Event()
    engine = FakeEngine(scripts=[script_of(["first ", "last "], gate, 1)])
    async with chat(engine, path) as stage:
        await stage.send("question")
        await stage.until_shown("first")
        view = stage.app.screen.query_one(ReplyView)
        stage.app.exit()
        gate.set()
    await asyncio.to_thread(view.grow, "more", "")
    async with chat(FakeEngine(), path, continues_last=True) as stage:
        await stage.until_shown("first last")


async def test_a_new_line_while_one_reads_further_up_moves_nothing(tmp_path: Path) -> None:
    gate = threading.Event()
    texts = [*long_reply(20), *long_reply(3)]
    async with chat(FakeEngine(scripts=[script_of(texts, gate, 20)]), tmp_path / "chat.db") as stage:
        await stage.send("question")
        await stage.until_shown("Paragraph 19 of many.")
        await stage.press("pageup")
        await stage.pilot.pause(0.05)
        shown = stage.lines()[:15]
        gate.set()
        await stage.until_idle()
        assert [line.rstrip(" ▁▂▃▄▅▆▇█") for line in stage.lines()[:15]] == [line.rstrip(" ▁▂▃▄▅▆▇█") for line in shown]
        await stage.press("ctrl+end")
        await stage.until_shown("Paragraph 2 of many.")


def recording_terminal(monkeypatch: pytest.MonkeyPatch, *, asks_first: bool) -> list[str]:
    """24 lines that become what was sent to a terminal of 80 columns, put together."""
    terminal = [" " * 80 for _ in range(24)]
    render_update, reflow = NearCompositor.render_update, NearCompositor.reflow

    def noting_update(self, *arguments, **options):
        update = render_update(self, *arguments, **options)
        if update is not None:
            shown = ["".join(segment.text for segment in strip) for strip in self.render_strips()]
            every_line = [(y, 0, 80) for y in range(24)]
            for y, start, end in update.spans if isinstance(update, ChopsUpdate) else every_line:
                terminal[y] = terminal[y][:start] + shown[y][start:end] + terminal[y][end:]
        return update

    def asking_reflow(self, *arguments):
        if asks_first:
            assert self.full_map is not None
        return reflow(self, *arguments)

    monkeypatch.setattr(NearCompositor, "render_update", noting_update)
    monkeypatch.setattr(NearCompositor, "reflow", asking_reflow)
    return terminal


@pytest.mark.parametrize("asks_first", [False, True])
async def test_no_drawing_is_lost(asks_first: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was sent to the terminal, put together, is what stands on the screen, also when somebody asked where a
    widget out of sight is between a change and its layout."""
    terminal = recording_terminal(monkeypatch, asks_first=asks_first)
    gate = threading.Event()
    texts = long_reply(12)
    async with chat(FakeEngine(scripts=[script_of(texts, gate, 6)] * 2), tmp_path / "chat.db") as stage:

        async def holds() -> None:
            await stage.pilot.pause(0.3)
            assert [line.rstrip() for line in terminal] == stage.lines()

        await stage.send("question")
        await stage.until_shown("Paragraph 5 of many.")
        await holds()
        gate.set()
        await stage.until_idle()
        await holds()
        await stage.press("pageup")
        await holds()
        transcript = stage.app.screen.query_one(Transcript)
        note = Static("A line that comes and goes.")
        await transcript.mount(note, before=0)
        await stage.press("ctrl+home")
        await holds()
        for is_visible in (False, True):
            note.visible = is_visible
            await holds()
        note.display = False
        assert stage.app.screen._compositor.full_map is not None
        note.display = True
        note.update("Another line, where it was.")
        await holds()
        await note.remove()
        await holds()
        await stage.press("ctrl+end")
        await stage.ask("question")
        await holds()


async def test_a_line_more_is_laid_out_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gate = threading.Event()
    texts = [*long_reply(20), "The last line.\n\n"]
    async with chat(FakeEngine(scripts=[script_of(texts, gate, 20)]), tmp_path / "chat.db") as stage:
        await stage.send("question")
        await stage.until_shown("Paragraph 19 of many.")
        await stage.pilot.pause(0.6)
        layouts = [0]
        reflow = NearCompositor.reflow

        def counted_reflow(self, *arguments):
            layouts[0] += 1
            return reflow(self, *arguments)

        monkeypatch.setattr(NearCompositor, "reflow", counted_reflow)
        stage.app.screen.query_one(ReplyView).grow("One more line.\n\n", "")
        await stage.until_shown("One more line.")
        await stage.pilot.pause(0.3)
        assert layouts == [1]
        gate.set()
        await stage.until_idle()


async def test_nothing_is_drawn_while_the_terminal_is_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gate = threading.Event()
    texts = [*long_reply(3), *long_reply(60)]
    async with chat(FakeEngine(scripts=[script_of(texts, gate, 3)]), tmp_path / "chat.db") as stage:
        await stage.send("question")
        await stage.until_shown("Paragraph 2 of many.")
        await stage.pilot.pause(0.5)
        drawn = [0]
        render_update = NearCompositor.render_update

        def counted_update(self, *arguments, **options):
            drawn[0] += 1
            return render_update(self, *arguments, **options)

        monkeypatch.setattr(NearCompositor, "render_update", counted_update)
        driver = stage.app._driver
        monkeypatch.setattr(driver, "is_behind", True, raising=False)
        gate.set()
        await stage.until(lambda: stage.app.controller.phase == "idle", "the end of the reply")
        await stage.press("k", "e", "y")
        assert stage.app.screen.query_one(Prompt).text == "key"
        assert drawn == [0]
        monkeypatch.setattr(driver, "is_behind", False)
        await stage.until_shown("Paragraph 59 of many.", "key")
        await stage.pilot.pause(0.3)
        assert 0 < drawn[0] < 10
