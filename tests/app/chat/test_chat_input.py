"""What is typed, pasted and called back in the chat's input."""

import threading
from pathlib import Path

import pytest
from chat_stage import FakeEngine, Stage, chat, says
from hypothesis import given
from hypothesis import strategies as st
from textual import events

from app.chat.prompt_history import PromptHistory
from app.chat.widgets.prompt import Prompt


def prompt_of(stage: Stage) -> Prompt:
    return stage.app.screen.query_one(Prompt)


async def paste(stage: Stage, text: str) -> None:
    prompt_of(stage).post_message(events.Paste(text))
    await stage.pilot.pause()


@pytest.mark.parametrize("key", ["shift+enter", "ctrl+j", "alt+enter"])
async def test_lines_are_written_and_sent_as_one_message(tmp_path: Path, key: str) -> None:
    engine = FakeEngine()
    async with chat(engine, tmp_path / "chat.db") as stage:
        await stage.until_idle()
        assert prompt_of(stage).size.height == 1
        await stage.press("a", key, "b", key, "c")
        await stage.pilot.pause()
        assert prompt_of(stage).size.height == 3
        assert engine.asked == []
        await stage.press("enter")
        await stage.until(lambda: engine.asked)
        assert prompt_of(stage).text == ""
    assert engine.asked[0][-1].text == "a\nb\nc"


async def test_the_input_grows_only_so_far(tmp_path: Path) -> None:
    async with chat(FakeEngine(), tmp_path / "chat.db", size=(40, 20)) as stage:
        await stage.until_idle()
        await paste(stage, "\n".join(map(str, range(100))))
        assert prompt_of(stage).outer_size.height == 8
        await stage.until_shown("99", "tiny-1m")


async def test_the_input_is_wrapped_anew_beside_the_device_panel(tmp_path: Path) -> None:
    async with chat(FakeEngine(), tmp_path / "chat.db", size=(140, 30)) as stage:
        await stage.until_idle()
        await stage.press("f4")
        await stage.until(lambda: prompt_of(stage).outer_size.width == 94, "the panel")
        await paste(stage, "word " * 19 + "last")
        await stage.until(lambda: prompt_of(stage).size.height == 2, "two lines")
        await stage.until_shown("word last ", "F1 keys ─╯│")
        await stage.press("f4")
        await stage.until(lambda: prompt_of(stage).size.height == 1, "one line")


async def test_pasting_many_lines_sends_nothing(tmp_path: Path) -> None:
    engine = FakeEngine()
    async with chat(engine, tmp_path / "chat.db") as stage:
        await stage.until_idle()
        await stage.press("x")
        await paste(stage, "one\r\ntwo\rthree\n\nfive\n")
        assert prompt_of(stage).text == "xone\ntwo\nthree\n\nfive\n"
        assert stage.app.controller.conversation.turns == ()
        await stage.press("enter")
        await stage.until(lambda: engine.asked)
    assert engine.asked[0][-1].text == "xone\ntwo\nthree\n\nfive\n"


async def test_a_long_paste_has_newlines_whatever_the_terminal_makes_of_them(tmp_path: Path) -> None:
    engine = FakeEngine()
    async with chat(engine, tmp_path / "chat.db") as stage:
        await stage.until_idle()
        await paste(stage, "\r".join(f"line {number}" for number in range(300)))
        await stage.until_shown("+ Pasted text 1 · 600 tokens · 300 lines")
        await stage.ask("well?")
    sent = engine.asked[0][-1].text
    assert "\r" not in sent
    assert "line 8\nline 9\n" in sent


async def test_ctrl_d_leaves_an_empty_input_only(tmp_path: Path) -> None:
    gate = threading.Event()
    async with chat(FakeEngine(scripts=[says("a b", gate=gate, num_before_gate=1)]), tmp_path / "chat.db") as stage:
        await stage.until_idle()
        await stage.press("h", "i", "left", "ctrl+d", "ctrl+d")
        assert prompt_of(stage).text == "h"
        await stage.press("enter", "ctrl+d")
        await stage.until_shown("The reply is still being written: Esc stops it.")
        gate.set()
        await stage.until_idle()
        await stage.press("ctrl+d")
        await stage.until(lambda: not stage.app.is_running, "the end")


async def test_escape_sequences_that_are_pasted_become_text(tmp_path: Path) -> None:
    async with chat(FakeEngine(), tmp_path / "chat.db") as stage:
        await stage.until_idle()
        await paste(stage, "a\x1b[2J\x07\x9bb [/]")
        assert prompt_of(stage).text == "a␛[2J␇\ufffdb [/]"
        await stage.until_shown("a␛[2J␇\ufffdb [/]")


async def test_a_paste_of_many_thousand_lines_is_attached(tmp_path: Path) -> None:
    text = "\n".join(f"line {number} [/]" for number in range(5000))
    engine = FakeEngine()
    engine.facts = type(engine.facts)(name="t", description="", context_size=10**6, vocabulary="w")
    async with chat(engine, tmp_path / "chat.db") as stage:
        await stage.until_idle()
        await paste(stage, text)
        await stage.until_shown("+ Pasted text 1 · 15,000 tokens · 5,000 lines", "/drop takes it out")
        await stage.press("enter")
        await stage.until_idle()
        await stage.until_shown("▌ + Pasted text 1 · 15,000 tokens", "Fine.")
        assert "/drop" not in stage.text()
    assert engine.asked[0][-1].text == f"Pasted text 1:\n```\n{text}\n```"


async def test_a_line_of_a_million_characters_is_attached_at_once(tmp_path: Path) -> None:
    engine = FakeEngine()
    engine.facts = type(engine.facts)(name="t", description="", context_size=10**7, vocabulary="w")
    async with chat(engine, tmp_path / "chat.db") as stage:
        await stage.until_idle()
        await paste(stage, "x[/]" * 250_000)
        await stage.press("w", "h", "y")
        await stage.until_shown("+ Pasted text 1 · 1 token · 1,000,000 characters", "│ why")
        await stage.press("enter")
        await stage.until_idle()
        await stage.until_shown("▌ why", "▌ + Pasted text 1", "Fine.")
        await stage.press("up")
        await stage.until_shown("│ why")


@pytest.mark.parametrize("text", ["你好，世界", "日本語の文", "한국어", "naïve — ‘x’", "👩‍👩‍👧 é"])
async def test_what_an_input_method_commits_arrives_as_it_is(tmp_path: Path, text: str) -> None:
    engine = FakeEngine()
    async with chat(engine, tmp_path / "chat.db") as stage:
        await stage.until_idle()
        # A terminal hands over what an input method commits as the keys of its characters, all at once.
        for char in text:
            stage.app.post_message(events.Key(key=char, character=char))
        await stage.until(lambda: prompt_of(stage).text == text, text)
        await stage.press("enter")
        await stage.until(lambda: engine.asked)
    assert engine.asked[0][-1].text == text


async def test_nothing_is_sent_that_is_nothing(tmp_path: Path) -> None:
    async with chat(FakeEngine(), tmp_path / "chat.db") as stage:
        await stage.until_idle()
        await stage.press("enter", "space", "ctrl+j", "enter")
        await stage.pilot.pause()
        assert stage.app.controller.conversation.turns == ()


async def test_earlier_prompts_come_back_by_the_arrows(tmp_path: Path) -> None:
    async with chat(FakeEngine(), tmp_path / "chat.db") as stage:
        await stage.ask("first\nof two lines")
        await stage.ask("second")
    async with chat(FakeEngine(), tmp_path / "chat.db") as stage:
        await stage.ask("third")
        await stage.press("d", "r", "a", "f", "t")
        shown: list[str] = []
        for key in ["up", "up", "up", "up", "up", "down", "down", "down", "down"]:
            await stage.press(key)
            await stage.pilot.pause()
            shown.append(prompt_of(stage).text)
    two_lines = "first\nof two lines"
    # In two lines, an arrow moves the cursor before it leaves for another prompt.
    assert shown == ["third", "second", two_lines, two_lines, two_lines, two_lines, "second", "third", "draft"]


async def test_a_prompt_that_was_called_back_and_changed_is_a_draft(tmp_path: Path) -> None:
    async with chat(FakeEngine(), tmp_path / "chat.db") as stage:
        await stage.ask("one")
        await stage.ask("two")
        await stage.press("up", "!")
        await stage.pilot.pause()
        assert prompt_of(stage).text == "two!"
        await stage.press("up")
        await stage.pilot.pause()
        assert prompt_of(stage).text == "two"
        await stage.press("down")
        await stage.pilot.pause()
        assert prompt_of(stage).text == "two!"


async def test_keys_are_echoed_while_a_prompt_is_read(tmp_path: Path) -> None:
    gate = threading.Event()
    engine = FakeEngine(scripts=[says("late", prefill_gate=gate)])
    async with chat(engine, tmp_path / "chat.db") as stage:
        await stage.send("question")
        await stage.until_shown("reading")
        await stage.press("n", "e", "x", "t")
        await stage.until_shown("│ next", "reading")
        gate.set()
        await stage.until_idle()
        await stage.until_shown("late", "│ next")


async def test_the_keys_are_told(tmp_path: Path) -> None:
    async with chat(FakeEngine(), tmp_path / "chat.db", size=(40, 20)) as stage:
        await stage.until_idle()
        await stage.press("f1")
        await stage.until_shown("│ Enter      send", "│ Ctrl+D     leave, where")
        await stage.press("end")
        await stage.until_shown("│ Ctrl+Q     /quit: leave;")
        await stage.press("escape")
        await stage.until(lambda: "Ctrl+Q" not in stage.text())


@given(st.lists(st.sampled_from(["earlier", "later"]), max_size=20), st.lists(st.text(min_size=1), max_size=5))
def test_walking_through_prompts_always_comes_back_to_the_draft(steps: list[str], prompts: list[str]) -> None:
    history = PromptHistory()
    history.set_prompts(prompts)
    shown, place = "draft", len(prompts)
    for step in steps:
        found = history.earlier(shown) if step == "earlier" else history.later()
        place = max(0, place - 1) if step == "earlier" else min(len(prompts), place + 1)
        shown = found if found is not None else shown
        assert shown == [*prompts, "draft"][place]
    while (found := history.later()) is not None:
        shown = found
    assert shown == "draft"


async def test_a_click_into_the_conversation_does_not_take_the_input_away(tmp_path: Path) -> None:
    async with chat(FakeEngine(scripts=[says("Some [link](http://x.org) text.")]), tmp_path / "chat.db") as stage:
        await stage.ask("question")
        line = next(place for place, text in enumerate(stage.lines()) if "Some link text." in text)
        await stage.pilot.click(offset=(12, line))
        await stage.press("t", "y", "p", "e", "d")
        await stage.until_shown("│ typed")


async def test_what_is_typed_in_one_go_is_taken_in_its_order(tmp_path: Path) -> None:
    engine, gate = FakeEngine(), threading.Event()
    engine.scripts = [says("one two", gate=gate, num_before_gate=1)]
    async with chat(engine, tmp_path / "chat.db") as stage:
        await stage.until_idle()

        def type_at_once(*keys: str) -> None:
            for key in keys:
                stage.app.post_message(events.Key(key, key if len(key) == 1 else None))

        prompt = stage.app.screen.query_one(Prompt)
        type_at_once(*"hi", "enter", *"more")
        await stage.until_shown("▌ hi", "│ more")
        type_at_once(*"and", "ctrl+u", *"last", "home", "right", "backspace", *"p")
        await stage.until(lambda: prompt.text == "past", "keys in their order")
        gate.set()
        await stage.until_idle()
        type_at_once("end", *"one", "enter", "ctrl+u", *"two", "enter", "ctrl+u")
        await stage.until(lambda: len(engine.asked) > 1, "another question")
        await stage.until_idle()
    assert [turns[-1].text for turns in engine.asked] == ["hi", "pastone"]
