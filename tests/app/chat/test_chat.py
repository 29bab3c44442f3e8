"""Turns of a chat as a user sees them: an engine that says what it is told, a screen that is read line by line."""

import os
import signal
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from chat_stage import FakeEngine, Script, Stage, chat, says

from app.chat.conversation import TurnState
from app.chat.engine_port import EndReason, EngineFault, LoadStep, ModelFacts, ReplyPiece, Role


async def test_a_turn_is_answered_and_the_status_says_what_it_took(tmp_path: Path) -> None:
    engine = FakeEngine(scripts=[says("Hello **you** there.")])
    async with chat(engine, tmp_path / "chat.db", size=(140, 24), system="Be kind.") as stage:
        await stage.ask("Hi")
        await stage.until_shown("▌ Hi", "Hello you there.")
        prompt_tokens = 3 + 2
        assert stage.lines()[-1].split(" · ") == [
            " tiny-1m",
            "40.0 tokens/s",
            "first token 250 ms",
            f"context {prompt_tokens + 3} of 4,096 (0 %)",
            f"{prompt_tokens // 2} reused",
        ]
    assert [(turn.role, turn.text) for turn in engine.asked[0]] == [(Role.SYSTEM, "Be kind."), (Role.USER, "Hi")]


async def test_own_turns_go_back_with_the_ids_they_were_made_of(tmp_path: Path) -> None:
    engine = FakeEngine(scripts=[says("one two"), says("three")])
    async with chat(engine, tmp_path / "chat.db") as stage:
        await stage.ask("first")
        await stage.ask("second")
    assert [(turn.role, turn.text, turn.ids) for turn in engine.asked[1]] == [
        (Role.USER, "first", None),
        (Role.ASSISTANT, "one two", (100, 101)),
        (Role.USER, "second", None),
    ]


async def test_the_screen_stands_while_the_model_loads_and_a_message_waits_for_it(tmp_path: Path) -> None:
    gate = threading.Event()
    steps = (LoadStep(title="Downloading [x]", done=5 * 10**7, total=10**8, unit="bytes"),)
    engine = FakeEngine(scripts=[says("Here I am.")], load_steps=steps, load_gate=gate)
    async with chat(engine, tmp_path / "chat.db") as stage:
        await stage.until_shown("Loading tiny-1m", "✓ Downloading [x]", "• Packing weights", "1 of 2")
        await stage.send("Are you there?")
        await stage.until_shown("▌ Are you there?", "waiting for the model")
        await stage.press("t", "y", "p", "e")
        await stage.until_shown("│ type")
        assert engine.asked == []
        gate.set()
        await stage.until_idle()
        await stage.until_shown("Here I am.", "tiny-1m · llama · 1M · Q8_0", "│ type")
        assert "waiting for the model" not in stage.text()


async def test_a_message_that_waits_can_be_stopped(tmp_path: Path) -> None:
    gate = threading.Event()
    engine = FakeEngine(load_gate=gate)
    async with chat(engine, tmp_path / "chat.db") as stage:
        await stage.send("Hello?")
        await stage.press("escape")
        await stage.until_shown("stopped")
        gate.set()
        await stage.until_idle()
    assert engine.asked == []


async def test_a_load_that_fails_is_a_sentence_with_the_way_on(tmp_path: Path) -> None:
    fault = EngineFault("The file x[0].gguf [/] is cut off.", "Fetch it again: tandem models pull [bold]x.")
    engine = FakeEngine(load_error=fault)
    async with chat(engine, tmp_path / "chat.db") as stage:
        await stage.until_shown("The file x[0].gguf [/] is cut off.", "tandem models pull [bold]x.", "no model")
        await stage.send("Hi")
        await stage.until_shown("There is no model to answer", "│ Hi")


async def test_a_load_that_fails_in_an_unknown_way_is_a_sentence_too(tmp_path: Path) -> None:
    engine = FakeEngine(load_error=ValueError("odd"))
    async with chat(engine, tmp_path / "chat.db") as stage:
        await stage.until_shown("The model can't be loaded: odd")


async def test_escape_stops_and_keeps_what_there_is_and_closes_the_turn(tmp_path: Path) -> None:
    gate = threading.Event()
    engine = FakeEngine(scripts=[says("half of it never comes", gate=gate, num_before_gate=2), says("Next.")])
    async with chat(engine, tmp_path / "chat.db") as stage:
        await stage.send("first question")
        await stage.until_shown("half of", "writing")
        await stage.press("escape")
        await stage.until_idle()
        await stage.until_shown("half of", "stopped")
        assert stage.app.controller.conversation.turns[1].state is TurnState.STOPPED
        await stage.ask("second question")
        await stage.until_shown("Next.")
    assert [(turn.role, turn.text, turn.ids) for turn in engine.asked[1]] == [
        (Role.USER, "first question", None),
        (Role.ASSISTANT, "half of ", (100, 101)),
        (Role.USER, "second question", None),
    ]


async def test_a_stopped_reply_can_be_gone_on_with(tmp_path: Path) -> None:
    gate = threading.Event()
    stopped = says("half **of** it never comes", gate=gate, num_before_gate=2)
    engine = FakeEngine(scripts=[stopped, says("it **comes** after all.")])
    async with chat(engine, tmp_path / "chat.db") as stage:
        await stage.send("question")
        await stage.until_shown("half of")
        await stage.press("escape")
        await stage.until_idle()
        await stage.press("ctrl+g")
        await stage.until_shown("half of it comes after all.")
        await stage.until_idle()
        assert "stopped" not in stage.text()
        turn = stage.app.controller.conversation.turns[-1]
        assert (turn.state, turn.ids) == (TurnState.FINISHED, (100, 101, 100, 101, 102, 103))
        await stage.press("ctrl+g")
        await stage.pilot.pause()
    assert engine.begun == [(), (100, 101)]
    assert [[turn.text for turn in asked] for asked in engine.asked] == [["question"]] * 2


async def test_the_latest_reply_is_copied_as_it_was_written(tmp_path: Path) -> None:
    async with chat(FakeEngine(scripts=[says("**bold** [/]")]), tmp_path / "chat.db") as stage:
        await stage.ask("question")
        await stage.send("/copy")
        await stage.until_shown("The reply was copied.")
        assert stage.app.clipboard == "**bold** [/]"


@pytest.mark.parametrize("size", [(1, 1), (9, 4), (20, 8)])
async def test_a_tiny_terminal_breaks_nothing(tmp_path: Path, size: tuple[int, int]) -> None:
    async with chat(
        FakeEngine(scripts=[says("# a\n\n| b | c |\n|---|---|\n| d | e |")]), tmp_path / "c.db", size=size
    ) as stage:
        await stage.ask("question")
        await stage.press("f1", "escape", "ctrl+o")
        await stage.pilot.pause()
        assert stage.app.is_running


async def test_a_request_to_end_ends_the_chat(tmp_path: Path) -> None:
    engine = FakeEngine()
    async with chat(engine, tmp_path / "chat.db") as stage:
        await stage.until_idle()
        os.kill(os.getpid(), signal.SIGTERM)
        await stage.until(lambda: not stage.app.is_running, "the end")
    assert engine.is_closed


async def test_escape_while_the_prompt_is_read(tmp_path: Path) -> None:
    gate = threading.Event()
    engine = FakeEngine(scripts=[says("never", prefill_gate=gate), says("Next.")])
    async with chat(engine, tmp_path / "chat.db") as stage:
        await stage.send("a long question")
        await stage.until_shown("reading 50 %")
        await stage.press("k", "e", "y")
        await stage.until_shown("│ key")
        await stage.press("escape")
        await stage.until_idle()
        await stage.until_shown("stopped", "│ key")
    async with chat(engine, tmp_path / "other.db") as stage:
        await stage.ask("again")
        await stage.until_shown("Next.")


async def test_sending_while_a_reply_is_written_keeps_the_message(tmp_path: Path) -> None:
    gate = threading.Event()
    engine = FakeEngine(scripts=[says("one two", gate=gate, num_before_gate=1)])
    async with chat(engine, tmp_path / "chat.db") as stage:
        await stage.send("first")
        await stage.until_shown("one")
        await stage.send("too early")
        await stage.until_shown("Esc stops it", "│ too early")
        gate.set()
        await stage.until_idle()
    assert len(engine.asked) == 1


@pytest.mark.parametrize("text", ["[/]", "[bold", "x[0] = [[1]]", "[red]no[/red]", "[@click=app.quit]no[/]", "\\[/"])
async def test_brackets_are_text_everywhere(tmp_path: Path, text: str) -> None:
    facts = ModelFacts(
        name=f"m{text}", description=text, context_size=4096, vocabulary="w", has_chat_template=False, notes=(text,)
    )
    engine = FakeEngine(scripts=[says(f"`{text}` said", error=EngineFault(f"Fault {text}."))], facts=facts)
    async with chat(engine, tmp_path / f"chat {text.replace('/', '')}.db") as stage:
        await stage.ask(f"Me: {text}")
        stage.app.screen.show_note(f"Note {text}")  # type: ignore[attr-defined]
        await stage.until_shown(f"▌ Me: {text}", f"{text} said", f"Fault {text}.", f"m{text} · {text}", f"Note {text}")
        stage.app.controller.library.list_all()
        await stage.until_shown(f"Me: {text}", "2 turns")


async def test_escape_sequences_of_the_model_do_nothing_to_the_terminal(tmp_path: Path) -> None:
    text = "a\x1b[31mred\x1b[0m\x1b]0;title\x07 \x9b2J\x00 end"
    pieces = tuple(ReplyPiece(text=char, token_ids=(1,)) for char in text)
    engine = FakeEngine(scripts=[Script(pieces=pieces)])
    async with chat(engine, tmp_path / "chat.db") as stage:
        await stage.ask("go")
        await stage.until_shown("a␛[31mred␛[0m␛]0;title␇ \ufffd2J␀ end")
        assert stage.app.controller.conversation.turns[1].text == text
        shown = stage.text()
    assert not any(ord(char) < 0x20 and char != "\n" or 0x7F <= ord(char) < 0xA0 for char in shown)


async def test_an_engine_that_fails_leaves_the_conversation_and_can_be_asked_again(tmp_path: Path) -> None:
    fault = EngineFault("The memory ran out.", "Close other programs.")
    engine = FakeEngine(scripts=[says("some words", error=fault), Script(error=ValueError("odd")), says("Better.")])
    async with chat(engine, tmp_path / "chat.db") as stage:
        await stage.ask("question")
        await stage.until_shown("some words", "The memory ran out. Close other programs.")
        await stage.press("ctrl+r")
        await stage.until_shown("The reply broke off: odd")
        await stage.until_idle()
        await stage.press("ctrl+r")
        await stage.until_shown("Better.")
        await stage.until_idle()
        assert "some words" not in stage.text()
        assert "odd" not in stage.text()
    assert [[turn.text for turn in asked] for asked in engine.asked] == [["question"]] * 3


async def test_the_engine_never_waits_for_the_screen(tmp_path: Path) -> None:
    is_through = threading.Event()

    class Counting(tuple):
        def __iter__(self):  # type: ignore[no-untyped-def]
            yield from super().__iter__()
            is_through.set()

    script = replace(says("word " * 3000), pieces=Counting(says("word " * 3000).pieces))
    engine = FakeEngine(scripts=[script])
    async with chat(engine, tmp_path / "chat.db") as stage:
        await stage.until_idle()
        await stage.send("go")
        # From here the screen is stuck, and yet the reply comes to its end.
        assert is_through.wait(20)
        await stage.until_idle()
        assert stage.app.controller.conversation.turns[1].text == "word " * 3000


async def test_a_base_model_says_so(tmp_path: Path) -> None:
    facts = ModelFacts(name="base", description="", context_size=64, vocabulary="w", has_chat_template=False)
    async with chat(FakeEngine(facts=facts), tmp_path / "chat.db", size=(40, 20)) as stage:
        await stage.until_idle()
        assert "base model without a chat template" in " ".join(" ".join(stage.lines()).split())


@pytest.mark.parametrize("reason", [EndReason.LENGTH, EndReason.WINDOW])
async def test_how_a_reply_ended_is_said_below_it(tmp_path: Path, reason: EndReason) -> None:
    engine = FakeEngine(scripts=[says("cut", end=reason)], facts=replace(FakeEngine().facts, context_size=100))
    words = {EndReason.LENGTH: "cut off at the most tokens", EndReason.WINDOW: "Stop here"}
    async with chat(engine, tmp_path / "chat.db") as stage:
        await stage.send("q " * (80 if reason is EndReason.WINDOW else 1))
        await stage.until_shown("cut", words[reason])


async def scrolled_to(stage: Stage) -> tuple[float, float]:
    await stage.pilot.pause()
    transcript = stage.app.screen.query_one("Transcript")
    return transcript.scroll_y, transcript.max_scroll_y


async def test_the_end_is_followed_unless_the_user_scrolled_up(tmp_path: Path) -> None:
    gate = threading.Event()
    reply = "\n\n".join(f"paragraph {number}" for number in range(60))
    pieces = tuple(ReplyPiece(text=f"{part}\n\n", token_ids=(1,)) for part in reply.split("\n\n"))
    engine = FakeEngine(scripts=[Script(pieces=pieces, gate=gate, num_before_gate=40), says("Short.")])
    async with chat(engine, tmp_path / "chat.db") as stage:
        await stage.send("go")
        await stage.until_shown("paragraph 39")
        at, end = await scrolled_to(stage)
        assert at == end > 0
        await stage.press("pageup", "pageup")
        before, _ = await scrolled_to(stage)
        assert before < end
        gate.set()
        await stage.until_idle()
        after, new_end = await scrolled_to(stage)
        assert after == before
        assert new_end > end
        await stage.press("ctrl+end")
        await stage.until_shown("paragraph 59")
        await stage.press("ctrl+home")
        await stage.until_shown("▌ go")
        await stage.ask("and now")
        await stage.until_shown("Short.")


async def test_thinking_is_folded_with_a_live_line_and_opens_by_a_key(tmp_path: Path) -> None:
    gate = threading.Event()
    pieces = (
        ReplyPiece(thinking="Let me see [/].\n", token_ids=(1,)),
        ReplyPiece(thinking="It must be 4 \x1b.", token_ids=(2,)),
        ReplyPiece(text="The answer is 4.", token_ids=(3,)),
    )
    engine = FakeEngine(scripts=[Script(pieces=pieces, gate=gate, num_before_gate=2), says("Sure.")])
    async with chat(engine, tmp_path / "chat.db") as stage:
        await stage.send("2+2?")
        await stage.until_shown("▸ Thinking: It must be 4 ␛.")
        assert "Let me see" not in stage.text()
        gate.set()
        await stage.until_idle()
        await stage.until_shown("▸ Thought for ", " s, 9 words", "The answer is 4.")
        await stage.press("ctrl+t")
        await stage.until_shown("▾ Thought", "Let me see [/].", "It must be 4 ␛.")
        await stage.ask("sure?")
        await stage.pilot.pause(0)
    # Thinking is not sent back, and so neither are the ids that hold it.
    assert [(turn.text, turn.ids) for turn in engine.asked[1]][1] == ("The answer is 4.", None)


@pytest.mark.parametrize("moment", ["loading", "reading", "writing", "idle"])
async def test_leaving_at_any_moment(tmp_path: Path, moment: str) -> None:
    gate = threading.Event()
    engine = FakeEngine(
        scripts=[
            says("some words", gate=gate, num_before_gate=1) if moment != "reading" else says("no", prefill_gate=gate)
        ],
        load_gate=gate if moment == "loading" else None,
    )
    async with chat(engine, tmp_path / "chat.db") as stage:
        if moment != "loading":
            await stage.until_idle()
        if moment in ("reading", "writing"):
            await stage.send("question")
            await stage.until_shown(moment)
        await stage.press("ctrl+q")
        await stage.until(lambda: not stage.app.is_running, "the end")
        assert stage.app.return_code == 0
    assert engine.is_closed == (moment != "loading")
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("chat-")]


@pytest.mark.parametrize("moment", ["loading", "reading", "writing", "idle"])
async def test_ctrl_c_stops_the_reply_and_leaves_when_pressed_again(tmp_path: Path, moment: str) -> None:
    gate = threading.Event()
    reading, writing = says("no", prefill_gate=gate), says("some words", gate=gate, num_before_gate=1)
    engine = FakeEngine(
        scripts=[reading if moment == "reading" else writing], load_gate=gate if moment == "loading" else None
    )
    async with chat(engine, tmp_path / "chat.db", size=(100, 30)) as stage:
        if moment != "loading":
            await stage.until_idle()
        if moment in ("reading", "writing"):
            await stage.send("question")
            await stage.until_shown(moment)
            await stage.press("ctrl+c")
            await stage.until_idle()
            await stage.until_shown("stopped")
            assert "once more" not in stage.text()
        await stage.press("ctrl+c")
        await stage.until_shown("Ctrl+C once more leaves. Nothing is lost.")
        assert stage.app.is_running
        await stage.press("ctrl+c")
        await stage.until(lambda: not stage.app.is_running, "the end")
        assert stage.app.return_code == 0


async def test_ctrl_c_closes_what_is_open(tmp_path: Path) -> None:
    async with chat(FakeEngine(), tmp_path / "chat.db") as stage:
        await stage.until_idle()
        for key in ("f1", "f2", "ctrl+p", "ctrl+f"):
            await stage.press(key)
            await stage.until(lambda: len(stage.app.screen_stack) == 2, key)
            await stage.press("ctrl+c")
            await stage.until(lambda: len(stage.app.screen_stack) == 1, f"the end of {key}")
        await stage.press("h", "i", "slash")
        assert stage.app.is_running
        assert "once more" not in stage.text()


async def test_ctrl_c_copies_what_is_selected_instead_of_leaving(tmp_path: Path) -> None:
    async with chat(FakeEngine(), tmp_path / "chat.db") as stage:
        await stage.until_idle()
        await stage.press("h", "i", "shift+left", "ctrl+c")
        await stage.pilot.pause()
        assert stage.app.is_running
        assert stage.app.clipboard == "i"


async def test_only_web_addresses_are_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    engine = FakeEngine(scripts=[says("[a](https://example.org/x[0])\n\n[b](vnc://example.org/x)")])
    async with chat(engine, tmp_path / "chat.db") as stage:
        monkeypatch.setattr(stage.app, "open_url", lambda url, **_: opened.append(url))
        await stage.ask("links")
        for row in ("a", "b"):
            line = next(place for place, line in enumerate(stage.lines()) if line == f"  {row}")
            await stage.pilot.click(offset=(2, line))
        await stage.until_shown("Not opened, since it is no web address: vnc://example.org/x")
    assert opened == ["https://example.org/x[0]"]
