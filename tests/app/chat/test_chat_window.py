"""A conversation that outgrows the model's window: the user chooses, the system prompt stays."""

import threading
from dataclasses import replace
from pathlib import Path

from chat_stage import FakeEngine, Stage, chat, says
from fake_shelf import MB, desk_for
from textual import events

from app.chat.conversation import Conversation, Turn, TurnState, prompt_turns
from app.chat.engine_port import EndReason, MemoryUse, Role
from app.preferences import Preferences

WINDOW = 80
ROOM = WINDOW // 8


def engine_with(*scripts: object) -> FakeEngine:
    """An engine with a small window."""
    return FakeEngine(scripts=list(scripts), facts=replace(FakeEngine().facts, context_size=WINDOW))  # type: ignore[arg-type]


async def fill(stage: Stage, num_pairs: int) -> None:
    """Pairs of 12 tokens each."""
    for number in range(num_pairs):
        await stage.ask(f"question {number} " + "q " * 8)


async def test_dropping_the_oldest_turns_keeps_the_system_prompt(tmp_path: Path) -> None:
    engine = engine_with()
    async with chat(engine, tmp_path / "chat.db", system="Be kind.", size=(100, 30)) as stage:
        await fill(stage, 5)
        num_asked = len(engine.asked)
        await stage.send("question 5 " + "q " * 8)
        await stage.until_shown("The window is full: 79 of 80 tokens.", "Go on without the oldest 6 turns")
        await stage.until_shown("frees 39 tokens", "Stop here (Esc)", "window full")
        assert len(engine.asked) == num_asked
        await stage.press("enter")
        await stage.until_idle()
        await stage.until_shown("─── the model sees what follows ───")
        assert "The window is full" not in stage.text()
        texts = [turn.text.split(" q")[0] for turn in engine.asked[-1]]
        assert texts == ["Be kind.", "question 3", "Fine.", "question 4", "Fine.", "question 5"]
        await stage.ask("and")
        assert [turn.text.split(" q")[0] for turn in engine.asked[-1]] == [*texts, "Fine.", "and"]
    async with chat(engine, tmp_path / "chat.db", continues_last=True, size=(100, 60)) as stage:
        await stage.until_shown("question 0", "─── the model sees what follows ───")
        await stage.ask("still")
    assert [turn.text.split(" q")[0] for turn in engine.asked[-1]][:2] == ["Be kind.", "question 3"]


async def test_leaving_it_at_that(tmp_path: Path) -> None:
    engine = engine_with()
    async with chat(engine, tmp_path / "chat.db") as stage:
        await fill(stage, 5)
        await stage.send("question 5 " + "q " * 12)
        await stage.until_shown("Go on without the oldest")
        await stage.press("escape")
        await stage.until_idle()
        await stage.until_shown("ended because the window is full")
        assert stage.app.controller.conversation.turns[-1].state is TurnState.WINDOW
        await stage.press("k")
        await stage.until_shown("│ k")


async def test_a_message_that_no_window_holds(tmp_path: Path) -> None:
    engine = engine_with()
    async with chat(engine, tmp_path / "chat.db", system="Be kind.") as stage:
        await stage.until_idle()
        await stage.send("q " * 200)
        await stage.until_shown("204 of 80 tokens", "nothing older can be left out", "Stop here (Esc)")
        assert "Go on without" not in stage.text()
        await stage.press("enter")
        await stage.until_idle()
    assert engine.asked == []


async def test_a_reply_that_fills_the_window_alone(tmp_path: Path) -> None:
    engine, loaded = engine_with(says("one two ", end=EndReason.WINDOW), says("three")), list[Preferences]()
    engine.facts = replace(engine.facts, trained_context_size=4096)
    desk = desk_for(engine, Preferences(model="tiny-1m"), loaded=loaded)
    async with chat(engine, tmp_path / "chat.db", size=(100, 30), models=desk) as stage:
        await stage.until_idle()
        await stage.send("q " * 40)
        await stage.until_shown("The reply fills the window: ", "nothing older can be left out. What stands is")
        assert "Shorten the message" not in stage.text()
        await stage.until_shown("Enlarge the window to 160 tokens.")
        await stage.press("enter")
        await stage.until(lambda: len(loaded) == 2)
        await stage.until_idle()
        await stage.until_shown("one two three")
    assert loaded[1].ctx_size == 160


async def test_a_window_that_fills_up_during_a_reply(tmp_path: Path) -> None:
    engine = engine_with()
    async with chat(engine, tmp_path / "chat.db", size=(100, 30)) as stage:
        await fill(stage, 4)
        engine.scripts = [says("one two ", end=EndReason.WINDOW), says("three four")]
        await stage.send("question 4 " + "q " * 8)
        await stage.until_shown("one two", "Go on without the oldest")
        await stage.press("enter")
        await stage.until_idle()
        await stage.until_shown("one two three four")
        assert stage.app.controller.conversation.turns[-1].text == "one two three four"
        assert stage.app.controller.conversation.turns[-1].state is TurnState.FINISHED
    assert engine.begun[-1] == (100, 101, 102)
    assert engine.asked[-1][-1].text.startswith("question 4")
    assert engine.asked[-1][0].text.startswith("question ")
    assert not engine.asked[-1][0].text.startswith("question 0")


async def test_the_question_stands_at_forty_columns(tmp_path: Path) -> None:
    async with chat(engine_with(), tmp_path / "chat.db", size=(40, 20)) as stage:
        await fill(stage, 5)
        await stage.send("question 5 " + "q " * 8)
        await stage.until_shown("The window is full", "Go on without", "Stop here (Esc)")


def test_the_prompt_holds_the_system_text_and_the_turns_of_the_window() -> None:
    conversation = Conversation(system="S")
    for text in ("a", "b", "c"):
        question = Turn(role=Role.USER, text=text, parent=conversation.leaf)
        conversation = conversation.with_turn(question)
        answer = Turn(role=Role.ASSISTANT, text=text.upper(), ids=(1,), vocabulary="v", parent=question.id)
        conversation = conversation.with_turn(answer)
    seen = replace(conversation, window_start=conversation.turns[2].id)
    assert [turn.text for turn in prompt_turns(seen, "v")] == ["S", "b", "B", "c", "C"]
    assert [turn.text for turn in prompt_turns(replace(conversation, system="", window_start="lost"), "v")][0] == "a"
    assert [turn.ids for turn in prompt_turns(seen, "v")] == [None, None, (1,), None, (1,)]
    assert [turn.ids for turn in prompt_turns(seen, "another")] == [None] * 5


async def test_enlarging_loads_the_model_anew_and_the_reply_goes_on(tmp_path: Path) -> None:
    engine, loaded = engine_with(), list[Preferences]()
    memory = MemoryUse(device="CPU", weights_bytes=100 * MB, kv_bytes=80 * 1600, workspace_bytes=10 * MB)
    engine.facts = replace(engine.facts, trained_context_size=4096, memory=(memory,))
    desk = desk_for(engine, Preferences(model="tiny-1m"), loaded=loaded)
    async with chat(engine, tmp_path / "chat.db", size=(100, 30), models=desk) as stage:
        await fill(stage, 5)
        await stage.send("question 5 " + "q " * 8)
        await stage.until_shown("Enlarge the window to 160 tokens. Reloads the model", "KV 128.0 kB → 256.0 kB")
        await stage.press("down", "down", "enter")
        await stage.until(lambda: len(loaded) == 2)
        await stage.until_idle()
        assert stage.app.controller.conversation.turns[-1].state is TurnState.FINISHED
        assert stage.app.controller.conversation.window_start is None
    assert loaded[1].ctx_size == 160
    assert engine.asked[-1][0].text.startswith("question 0")


async def test_a_model_that_was_trained_for_no_more_can_not_be_enlarged(tmp_path: Path) -> None:
    engine = engine_with()
    engine.facts = replace(engine.facts, trained_context_size=WINDOW)
    async with chat(engine, tmp_path / "chat.db", size=(100, 30)) as stage:
        await fill(stage, 5)
        await stage.send("question 5 " + "q " * 8)
        await stage.until_shown("Enlarging is no way on: the model was trained for 80 tokens")
        await stage.press("down", "down", "enter")
        await stage.until_shown("ended because the window is full")


async def test_a_larger_window_that_would_be_full_too_is_not_offered(tmp_path: Path) -> None:
    engine = engine_with()
    engine.facts = replace(engine.facts, trained_context_size=2 * WINDOW)
    async with chat(engine, tmp_path / "chat.db", size=(100, 30)) as stage:
        await stage.until_idle()
        await stage.send("q " * 200)
        await stage.until_shown("Enlarging is no way on: 160 tokens are the most that can be had")
        await stage.press("up", "enter")
        await stage.until_shown("ended because the window is full")


async def test_the_tokens_of_a_reply_that_goes_on_are_counted_once(tmp_path: Path) -> None:
    gate = threading.Event()
    engine = engine_with()
    engine.facts = replace(engine.facts, trained_context_size=4096)
    async with chat(engine, tmp_path / "chat.db", size=(100, 30)) as stage:
        await stage.until_idle()
        begun = says("one two three four ", end=EndReason.WINDOW)
        engine.scripts = [begun, says("five six", gate=gate, num_before_gate=1)]
        await stage.send("q")
        await stage.until_shown("Enlarge the window to 160 tokens")
        await stage.press("enter")
        # 2 tokens of the question, 5 that had come before, and 1.
        await stage.until_shown("one two three four five", "writing", "context 8 of 160")
        gate.set()
        await stage.until_idle()


async def test_what_is_typed_while_it_is_asked_is_not_lost(tmp_path: Path) -> None:
    async with chat(engine_with(), tmp_path / "chat.db", size=(100, 30)) as stage:
        await fill(stage, 5)
        await stage.send("question 5 " + "q " * 8)
        await stage.until_shown("Go on without the oldest")
        await stage.press(*"next [", "space")
        stage.app.post_message(events.Paste("pasted\x1b]"))
        await stage.until_shown("│ next [ pasted␛]", "Go on without the oldest")
        await stage.press("enter")
        await stage.until_shown("! The window is full: choose first how to go on.", "Go on without the oldest")
        await stage.press("enter")
        await stage.until_idle()
        await stage.until_shown("│ next [ pasted␛]")
        await stage.press("k")
        await stage.until_shown("pasted␛]k")


async def test_the_oldest_turns_become_a_summary(tmp_path: Path) -> None:
    engine = engine_with()
    async with chat(engine, tmp_path / "chat.db", system="Be kind.", size=(100, 30)) as stage:
        await fill(stage, 5)
        engine.scripts = [says("They asked five times.")]
        await stage.send("question 5 " + "q " * 8)
        await stage.until_shown("Put them into a summary first: 39 tokens become 10 at most")
        await stage.press("down", "enter")
        await stage.until_shown(
            "6 turns (39 tokens) are now a summary of 4 tokens: They asked five times.", "the model sees what follows"
        )
        await stage.until_idle()
        asked = engine.asked[-2]
        assert asked[0].text == "Be kind." and asked[1].text.startswith("question 0")
        assert asked[-1].text.startswith("Summarise our conversation so far")
        seen = engine.asked[-1]
        assert seen[0].text == "Be kind.\n\nWhat was said before, in short:\nThey asked five times."
        assert [turn.text.split(" q")[0] for turn in seen[1:]] == [
            "question 3",
            "Fine.",
            "question 4",
            "Fine.",
            "question 5",
        ]
    async with chat(engine, tmp_path / "chat.db", continues_last=True, size=(100, 60)) as stage:
        await stage.until_shown("question 0")
        await stage.ask("still")
    assert "They asked five times." in engine.asked[-1][0].text


async def test_a_summary_that_is_stopped_leads_back_to_the_question(tmp_path: Path) -> None:
    never = threading.Event()
    engine = engine_with()
    async with chat(engine, tmp_path / "chat.db", size=(100, 30)) as stage:
        await fill(stage, 5)
        engine.scripts = [says("They asked and asked", gate=never, num_before_gate=1)]
        await stage.send("question 5 " + "q " * 8)
        await stage.until_shown("Put them into a summary first")
        await stage.press("down", "enter")
        await stage.until_shown("summarising")
        await stage.until(lambda: len(engine.asked) == 6)
        await stage.press("escape")
        await stage.until_shown("! The summary was stopped.", "Go on without the oldest", "window full")
        await stage.press("enter")
        await stage.until_idle()
        assert stage.app.controller.conversation.summary == ""
