"""Turns that are changed after they were written: edited, branched from, walked, taken back."""

import threading
from pathlib import Path

from chat_stage import FakeEngine, Stage, chat, says
from textual.widgets import OptionList

from app.chat.conversation import Conversation, TurnState
from app.chat.engine_port import Role
from app.chat.screens.branches import BranchesScreen
from app.chat.store import Store
from app.chat.widgets.prompt import Prompt


def texts(stage: Stage) -> list[str]:
    return [turn.text for turn in stage.app.controller.conversation.turns]


def prompt_of(stage: Stage) -> Prompt:
    return stage.app.screen.query_one(Prompt)


def kept(path: Path) -> list[Conversation]:
    store = Store(path)
    found = [store.load(line.id) for line in store.conversations()]
    store.close()
    return [conversation for conversation in found if conversation is not None]


async def two_turns(stage: Stage) -> None:
    await stage.ask("one")
    await stage.ask("two")


async def test_an_edited_question_gets_a_new_answer_on_a_branch_of_its_own(tmp_path: Path) -> None:
    path = tmp_path / "chat.db"
    engine = FakeEngine(scripts=[says("1st"), says("2nd"), says("3rd")])
    async with chat(engine, path) as stage:
        await two_turns(stage)
        await stage.press("d", "r", "a", "f", "t", "alt+up", "alt+up", "alt+up", "alt+up", "alt+e")
        await stage.until_shown("Editing your message", "│ one")
        await stage.press("!", "enter")
        await stage.until_shown("▌ one!", "3rd", "‹ version 2 of 2 ›", "│ draft")
        await stage.until_idle()
        assert texts(stage) == ["one!", "3rd"]
        assert "2nd" not in stage.text()
        await stage.press("alt+left")
        await stage.until_shown("1st", "2nd", "‹ version 1 of 2 ›")
        assert texts(stage) == ["one", "1st", "two", "2nd"]
        await stage.press("alt+right")
        await stage.until_shown("3rd")
        await stage.until(lambda: [turn.text for turn in kept(path)[0].turns] == ["one!", "3rd"])
    assert [turn.text for turn in engine.asked[2]] == ["one!"]
    assert sorted(turn.text for turn in kept(path)[0].others) == ["1st", "2nd", "one", "two"]


async def test_leaving_an_edit_changes_nothing_and_brings_the_draft_back(tmp_path: Path) -> None:
    async with chat(FakeEngine(), tmp_path / "chat.db") as stage:
        await stage.ask("one")
        await stage.press("d", "alt+e")
        await stage.until_shown("Editing your message")
        await stage.press("x", "escape")
        await stage.until_shown("│ d")
        assert texts(stage) == ["one", "Fine."]
        await stage.press("ctrl+u")
        await stage.send("/edit 7")
        await stage.until_shown("There is no turn")


async def test_an_edited_reply_is_what_the_model_sees_and_can_be_gone_on_with(tmp_path: Path) -> None:
    engine = FakeEngine(scripts=[says("wrong"), says(" and more."), says("last")])
    async with chat(engine, tmp_path / "chat.db") as stage:
        await stage.ask("one")
        await stage.send("/edit 2")
        await stage.until_shown("Editing the reply", "│ wrong")
        await stage.press("ctrl+u", "r", "i", "g", "h", "t", "enter")
        await stage.until_shown("right", "edited by you · ‹ version 2 of 2 ›")
        await stage.press("ctrl+g")
        await stage.until_shown("right and more.")
        await stage.until_idle()
        turn = stage.app.controller.conversation.turns[-1]
        assert (turn.text, turn.ids, turn.state) == ("right and more.", None, TurnState.FINISHED)
        await stage.ask("two")
    assert engine.begun_texts == ["", "right", ""]
    assert engine.begun == [(), (), ()]
    assert [(turn.role, turn.text, turn.ids) for turn in engine.asked[2]] == [
        (Role.USER, "one", None),
        (Role.ASSISTANT, "right and more.", None),
        (Role.USER, "two", None),
    ]


async def test_a_branch_begins_behind_any_turn_and_can_be_taken_back(tmp_path: Path) -> None:
    engine = FakeEngine(scripts=[says("1st"), says("2nd"), says("3rd")])
    async with chat(engine, tmp_path / "chat.db") as stage:
        await two_turns(stage)
        await stage.send("/branch 2")
        await stage.until_shown("What you send next follows turn 2.")
        assert texts(stage) == ["one", "1st"]
        await stage.press("alt+u")
        await stage.until_shown("Taken back: the branch.", "2nd")
        await stage.send("/branch 2")
        await stage.ask("three")
        assert texts(stage) == ["one", "1st", "three", "3rd"]
        await stage.until_shown("‹ version 2 of 2 ›")
    assert [turn.ids for turn in engine.asked[2]] == [None, (100,), None]


async def test_the_tree_shows_every_branch_and_leads_to_it(tmp_path: Path) -> None:
    engine = FakeEngine(scripts=[says("1st"), says("2nd"), says("3rd")])
    async with chat(engine, tmp_path / "chat.db") as stage:
        await two_turns(stage)
        await stage.press("ctrl+r")
        await stage.until_shown("3rd")
        await stage.until_idle()
        await stage.press("ctrl+b")
        await stage.until_shown("● you   one", "● reply 1st", "● you   two", "│ ○ reply 2nd", "│ ● reply 3rd")
        await stage.press("up", "enter")
        await stage.until(lambda: not isinstance(stage.app.screen, BranchesScreen))
        await stage.until(lambda: texts(stage) == ["one", "1st", "two", "2nd"])
        await stage.press("ctrl+b", "home", "down", "b")
        await stage.until(lambda: texts(stage) == ["one", "1st"])


async def test_the_tree_shows_where_turns_that_begin_alike_part(tmp_path: Path) -> None:
    same = "It is a long beginning which both of the replies share word for word before they "
    chinese = "天" * 60
    replies = [f"{same}go left.", f"{same}turn right.", same.strip(), f"{chinese}地", f"{chinese}水"]
    engine = FakeEngine(scripts=[says(text) for text in replies])
    async with chat(engine, tmp_path / "chat.db", size=(60, 24)) as stage:
        await stage.ask("one")
        for _ in replies[1:]:
            await stage.press("ctrl+r")
            await stage.until_idle()
        await stage.press("ctrl+b")
        await stage.until_shown(
            "│ ○ reply It is a lon… go left.",
            "│ ○ reply It is a lon… turn right.",
            " (ends)",
            "天地 ",
            "│ ● reply 天天天天天… 天天天天天天水 ",
        )


async def test_undo_takes_a_message_back_and_puts_it_into_the_input(tmp_path: Path) -> None:
    engine = FakeEngine(scripts=[says("1st"), says("2nd")])
    async with chat(engine, tmp_path / "chat.db") as stage:
        await two_turns(stage)
        await stage.press("alt+u")
        await stage.until_shown("Taken back: the message.", "│ two")
        assert texts(stage) == ["one", "1st"]
        await stage.press("ctrl+u")
        await stage.send("/undo")
        await stage.until(lambda: texts(stage) == [])
        await stage.press("ctrl+u", "alt+u")
        await stage.until_shown("There is nothing to take back here.")


async def test_a_regenerated_reply_is_taken_back(tmp_path: Path) -> None:
    engine = FakeEngine(scripts=[says("1st"), says("2nd")])
    async with chat(engine, tmp_path / "chat.db") as stage:
        await stage.ask("one")
        await stage.press("ctrl+r")
        await stage.until_shown("2nd", "‹ version 2 of 2 ›")
        await stage.until_idle()
        await stage.press("alt+u")
        await stage.until_shown("1st", "‹ version 1 of 2 ›")


async def test_nothing_is_changed_while_a_reply_is_written(tmp_path: Path) -> None:
    gate = threading.Event()
    engine = FakeEngine(scripts=[says("half of it", gate=gate, num_before_gate=1)])
    async with chat(engine, tmp_path / "chat.db") as stage:
        await stage.send("one")
        await stage.until_shown("half")
        await stage.press("alt+e", "ctrl+b")
        await stage.until_shown("Esc stops it.")
        assert texts(stage)[0] == "one"
        gate.set()
        await stage.until_idle()


async def test_a_deleted_conversation_comes_back(tmp_path: Path) -> None:
    path = tmp_path / "chat.db"
    async with chat(FakeEngine(), path) as stage:
        await stage.ask("to be deleted")
        await stage.send("/delete")
        await stage.until_shown("Deleted: to be deleted.")
        await stage.until(lambda: kept(path) == [])
        assert texts(stage) == []
        await stage.send("/undo")
        await stage.until_shown("▌ to be deleted", "Fine.", "Taken back: the deletion of 'to be deleted'.")
        await stage.until(lambda: len(kept(path)) == 1)


async def test_the_list_pins_and_deletes(tmp_path: Path) -> None:
    path = tmp_path / "chat.db"
    async with chat(FakeEngine(), path) as stage:
        for name in ("first", "second", "third"):
            await stage.press("ctrl+n")
            await stage.ask(name)
        await stage.press("ctrl+o")
        await stage.until_shown("shown now")
        await stage.press("down", "down", "p")
        await stage.until_shown("pinned · ")
        assert highlighted(stage) == 0
        await stage.press("down", "d")
        await stage.until(lambda: [line.title for line in listed(path)] == ["first", "second"])
        await stage.until_shown("pinned · ")
        assert highlighted(stage) == 1
        await stage.press("escape", "alt+u")
        await stage.until(lambda: [line.title for line in listed(path)] == ["first", "third", "second"])


def highlighted(stage: Stage) -> int | None:
    return stage.app.screen.query_one(OptionList).highlighted


def listed(path: Path) -> list:
    store = Store(path)
    lines = store.conversations()
    store.close()
    return lines


async def test_a_conversation_is_renamed_by_word_or_question(tmp_path: Path) -> None:
    path = tmp_path / "chat.db"
    async with chat(FakeEngine(), path) as stage:
        await stage.ask("plain")
        await stage.send("/rename Better [name]")
        await stage.until_shown("Renamed: Better [name]")
        await stage.send("/rename")
        await stage.until_shown("Title of this conversation", "Better [name]")
        await stage.press("end", "!", "enter")
        await stage.until(lambda: kept(path)[0].title == "Better [name]!")
        await stage.press("alt+u")
        await stage.until(lambda: kept(path)[0].title == "Better [name]")


async def test_a_turn_is_removed_alone_and_brought_back(tmp_path: Path) -> None:
    path = tmp_path / "chat.db"
    engine = FakeEngine(scripts=[says("1st"), says("2nd"), says("3rd"), says("4th")])
    async with chat(engine, path) as stage:
        await two_turns(stage)
        await stage.send("/remove 3")
        await stage.until_shown(
            "Removed turn 3, your message. What came behind it follows turn 2 now.", "brings it back"
        )
        assert texts(stage) == ["one", "1st", "2nd"]
        await stage.until(lambda: [turn.text for turn in kept(path)[0].all_turns] == ["one", "1st", "2nd"])
        await stage.press("alt+u")
        await stage.until_shown("Taken back: the removal of two.")
        assert texts(stage) == ["one", "1st", "two", "2nd"]
        await stage.until(lambda: [turn.text for turn in kept(path)[0].turns] == ["one", "1st", "two", "2nd"])
        await stage.send("/remove 2")
        await stage.ask("three")
        assert texts(stage) == ["one", "two", "2nd", "three", "3rd"]
    assert [(turn.role, turn.text, turn.ids) for turn in engine.asked[2]] == [
        (Role.USER, "one\n\ntwo", None),
        (Role.ASSISTANT, "2nd", (100,)),
        (Role.USER, "three", None),
    ]
    assert [turn.text for turn in kept(path)[0].turns] == ["one", "two", "2nd", "three", "3rd"]


async def test_removing_a_turn_leaves_every_other_branch_whole(tmp_path: Path) -> None:
    path = tmp_path / "chat.db"
    engine = FakeEngine(scripts=[says("1st"), says("2nd"), says("3rd")])
    async with chat(engine, path) as stage:
        await two_turns(stage)
        await stage.press("ctrl+r")
        await stage.until_shown("3rd", "‹ version 2 of 2 ›")
        await stage.until_idle()
        await stage.press("alt+up", "alt+up", "alt+up", "alt+x")
        await stage.until_shown("Removed turn 2, reply. What came behind it follows turn 1 now.")
        assert texts(stage) == ["one", "two", "3rd"]
        await stage.press("ctrl+b")
        await stage.until_shown("● you   one", "● you   two", "│ ○ reply 2nd", "│ ● reply 3rd")
        await stage.press("escape", "alt+x")
        await stage.until_shown("Removed turn 3, reply. Alt+U brings it back.")
        assert texts(stage) == ["one", "two", "2nd"]
        await stage.press("alt+u", "alt+u")
        await stage.until(lambda: texts(stage) == ["one", "1st", "two", "3rd"])
        await stage.until_shown("‹ version 2 of 2 ›")
    (conversation,) = kept(path)
    assert [turn.text for turn in conversation.turns] == ["one", "1st", "two", "3rd"]
    assert [turn.text for turn in conversation.others] == ["2nd"]


async def test_a_reply_whose_question_was_removed_is_not_asked_for_again(tmp_path: Path) -> None:
    async with chat(FakeEngine(scripts=[says("1st")]), tmp_path / "chat.db") as stage:
        await stage.ask("one")
        await stage.send("/remove 1")
        await stage.until_shown("Removed turn 1, your message. What came behind it is the beginning now.")
        await stage.press("ctrl+r")
        await stage.until_shown("The question to this reply was removed.")
        await stage.send("/remove")
        await stage.until(lambda: texts(stage) == [])
        await stage.press("alt+u", "alt+u")
        await stage.until(lambda: texts(stage) == ["one", "1st"])
