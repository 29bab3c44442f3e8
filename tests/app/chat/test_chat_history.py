"""Conversations that outlive the chat: kept as they grow, opened again, never lost."""

import re
import threading
from dataclasses import replace
from pathlib import Path

from chat_stage import FakeEngine, chat, says
from fake_shelf import desk_for
from kept import kept

from app.chat.app import ChatApp, ChatSetting
from app.chat.conversation import Conversation, Turn, TurnState
from app.chat.engine_port import Role
from app.chat.store import Store
from app.chat.widgets.turn_views import QuestionView, ReplyView
from app.preferences import Preferences


def broken_off(path: Path) -> Conversation:
    """Leaves what a killed chat leaves."""
    question = Turn(role=Role.USER, text="old question")
    reply = Turn(role=Role.ASSISTANT, text="half a **rep", state=TurnState.PARTIAL, parent=question.id, ids=(1, 2))
    conversation = Conversation().with_turn(question).with_turn(reply)
    store = Store(path)
    store.save_turns(conversation, conversation.turns)
    store.close()
    return conversation


async def test_a_reply_is_kept_while_it_is_written(tmp_path: Path) -> None:
    path = tmp_path / "chat.db"
    gate = threading.Event()
    engine = FakeEngine(scripts=[says("one two three", gate=gate, num_before_gate=2)])
    async with chat(engine, path) as stage:
        await stage.send("question")
        await stage.until(lambda: path.exists() and kept(path) and kept(path)[0].turns[-1].text == "one two ")
        turns = kept(path)[0].turns
        assert [(turn.text, turn.state) for turn in turns] == [
            ("question", TurnState.FINISHED),
            ("one two ", TurnState.PARTIAL),
        ]
        gate.set()
        await stage.until_idle()
        await stage.until(lambda: kept(path)[0].turns[-1].state is TurnState.FINISHED)
    assert [turn.text for turn in kept(path)[0].turns] == ["question", "one two three"]
    assert kept(path)[0].turns[1].ids == (100, 101, 102)


async def test_an_unsent_draft_comes_back(tmp_path: Path) -> None:
    path = tmp_path / "chat.db"
    async with chat(FakeEngine(), path) as stage:
        await stage.press("n", "o", "t", "space", "y", "e", "t")
        await stage.until(lambda: path.exists() and kept(path) and kept(path)[0].draft == "not yet")
    async with chat(FakeEngine(), path) as stage:
        await stage.until_shown("│ not yet")
        await stage.press("!", "enter")
        await stage.until_idle()
    assert [turn.text for turn in kept(path)[0].turns] == ["not yet!", "Fine."]
    assert len(kept(path)) == 1
    assert kept(path)[0].draft == ""


async def test_a_reply_that_broke_off_is_shown_as_such(tmp_path: Path) -> None:
    path = tmp_path / "chat.db"
    broken_off(path)
    engine = FakeEngine()
    async with chat(engine, path) as stage:
        await stage.until_shown("broke off in the middle of a reply: Ctrl+O opens it.")
        await stage.press("ctrl+o")
        await stage.until_shown("Conversations", "old question", "2 turns · broken off")
        await stage.press("enter")
        await stage.until_shown("▌ old question", "half a **rep", "broken off here")
        await stage.ask("go on")
    assert [(turn.role, turn.text) for turn in engine.asked[0]] == [
        (Role.USER, "old question"),
        (Role.ASSISTANT, "half a **rep"),
        (Role.USER, "go on"),
    ]


async def test_the_last_conversation_is_gone_on_with(tmp_path: Path) -> None:
    path = tmp_path / "chat.db"
    async with chat(FakeEngine(scripts=[says("# Head\n\n- a\n- b")]), path, system="Be kind.") as stage:
        await stage.ask("question")
    engine = FakeEngine()
    async with chat(engine, path, continues_last=True) as stage:
        await stage.until_shown("▌ question", "• a", "• b")
        await stage.ask("more")
    assert [turn.text for turn in engine.asked[0]] == ["Be kind.", "question", "# Head\n\n- a\n- b", "more"]
    assert engine.asked[0][2].ids is not None
    assert len(kept(path)) == 1


async def test_a_message_of_the_command_line_is_sent_at_once(tmp_path: Path) -> None:
    path = tmp_path / "chat.db"
    engine = FakeEngine(scripts=[says("One."), says("Two."), says("Three.")])
    async with chat(engine, path, first_message="first") as stage:
        await stage.until_shown("▌ first", "One.")
        await stage.until_idle()
    async with chat(engine, path, first_message="second", continues_last=True) as stage:
        await stage.until_shown("▌ first", "▌ second", "Two.")
        await stage.until_idle()
        await stage.press("ctrl+n", "d")
    async with chat(engine, path, first_message="third") as stage:
        await stage.until_shown("▌ third", "Three.")
        await stage.until_idle()
    assert [[turn.text for turn in asked] for asked in engine.asked] == [
        ["first"],
        ["first", "One.", "second"],
        ["third"],
    ]
    assert sorted((len(one.turns), one.draft) for one in kept(path)) == [(0, "d"), (2, ""), (4, "")]


async def test_a_message_of_the_command_line_stands_behind_what_was_begun(tmp_path: Path) -> None:
    path = tmp_path / "chat.db"
    async with chat(FakeEngine(scripts=[says("One.")]), path) as stage:
        await stage.ask("question")
        await stage.press("b", "e", "g", "u", "n")
    engine = FakeEngine()
    async with chat(engine, path, first_message="second", continues_last=True) as stage:
        await stage.until_shown("│ begun", "│ second")
    assert engine.asked == []


async def test_a_message_of_the_command_line_that_no_model_can_answer_is_not_lost(tmp_path: Path) -> None:
    engine = FakeEngine(load_error=ValueError("odd"))
    async with chat(engine, tmp_path / "chat.db", first_message="hello") as stage:
        await stage.until_shown("odd", "hello")
    assert engine.asked == []


async def test_a_new_conversation_begins_empty_and_the_old_one_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "chat.db"
    gate = threading.Event()
    engine = FakeEngine(scripts=[says("half of it", gate=gate, num_before_gate=1), says("Second.")])
    async with chat(engine, path) as stage:
        await stage.send("first question")
        await stage.until_shown("half")
        await stage.press("d", "ctrl+n")
        await stage.until(lambda: "first question" not in stage.text())
        await stage.ask("second question")
        await stage.until_shown("▌ second question", "Second.")
        assert "half" not in stage.text()
        assert [turn.text for turn in engine.asked[1]] == ["second question"]
        await stage.press("ctrl+o")
        await stage.until_shown("shown now", "unsent draft")
        await stage.press("down", "enter")
        await stage.until_shown("▌ first question", "half", "stopped", "│ d")
        assert "Second." not in stage.text()
    assert [len(conversation.turns) for conversation in kept(path)] == [2, 2]


async def test_sending_right_behind_a_new_conversation_shows_the_turn(tmp_path: Path) -> None:
    async with chat(FakeEngine(scripts=[says("One."), says("Two.")]), tmp_path / "chat.db") as stage:
        await stage.ask("first")
        await stage.press("ctrl+n", "x", "enter")
        await stage.until_idle()
        await stage.until_shown("▌ x", "Two.")
        assert "first" not in stage.text()


def long_conversation(path: Path, num_turns: int) -> Conversation:
    conversation = Conversation(title="Long")
    for number in range(num_turns):
        role = Role.ASSISTANT if number % 2 else Role.USER
        conversation = conversation.with_turn(Turn(role=role, text=f"turn <{number}>", parent=conversation.leaf))
    store = Store(path)
    store.save_turns(conversation, conversation.turns)
    store.close()
    return conversation


async def test_of_a_long_conversation_a_portion_is_drawn_and_any_other_on_the_way_there(tmp_path: Path) -> None:
    path = tmp_path / "chat.db"
    conversation = long_conversation(path, 130)
    gate = threading.Event()
    engine = FakeEngine(scripts=[says("half of it", gate=gate, num_before_gate=1)])
    async with chat(engine, path, size=(80, 24), continues_last=True) as stage:

        def num_drawn() -> int:
            return len(stage.app.screen.query(QuestionView)) + len(stage.app.screen.query(ReplyView))

        await stage.until_shown("turn <129>")
        await stage.press("ctrl+home")
        await stage.until_shown("turn <0>")
        assert num_drawn() == 40 and "turn <129>" not in stage.text()
        seen = set[str]()
        for _ in range(400):
            seen |= set(re.findall(r"turn <\d+>", stage.text()))
            if "turn <129>" in seen:
                break
            await stage.press("pagedown")
            await stage.pilot.pause()
            assert num_drawn() <= 40
        assert seen == {turn.text for turn in conversation.turns}
        for _ in range(400):
            if "turn <0>" in stage.text():
                break
            await stage.press("pageup")
            await stage.pilot.pause()
        await stage.until_shown("turn <0>")
        stage.app.controller.library.open_at(conversation.id, conversation.turns[60].id)
        await stage.until_shown("▌ turn <60>")
        await stage.press("alt+up")
        await stage.until_shown("Turn 60, reply")
        await stage.send("and now?")
        await stage.until_shown("▌ and now?", "half")
        await stage.press("ctrl+home")
        await stage.until_shown("turn <0>")
        await stage.press("ctrl+end")
        await stage.until_shown("▌ and now?", "half")
        gate.set()
        await stage.until_idle()
        await stage.until_shown("half of it")


async def test_a_damaged_file_is_told_and_the_chat_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "chat.db"
    path.write_bytes(b"no database" * 1000)
    async with chat(FakeEngine(), path, size=(140, 24)) as stage:
        await stage.until_shown("The conversations were damaged: 0 turns were kept")
        await stage.ask("question")
        await stage.until_shown("Fine.")
    assert len(kept(path)) == 1


async def test_the_damage_is_told_also_where_the_last_conversation_is_opened(tmp_path: Path) -> None:
    path = tmp_path / "chat.db"
    store = Store(path)
    turns = [Turn(role=Role.USER, text=f"question {number} " + "x" * 600) for number in range(40)]
    store.save_turns(Conversation(turns=tuple(turns), title="Old"), turns)
    store.close()
    path.write_bytes(path.read_bytes()[:-8192])
    async with chat(FakeEngine(), path, size=(140, 24), continues_last=True) as stage:
        await stage.until(lambda: stage.app.controller.conversation.title == "Old")
        await stage.until_shown("! The conversations were damaged:", "turns were kept, the old file is")


async def test_without_a_place_to_keep_conversations_the_chat_goes_on(tmp_path: Path) -> None:
    (tmp_path / "file [x]").write_text("")
    async with chat(FakeEngine(), tmp_path / "file [x]" / "chat.db", size=(140, 24)) as stage:
        await stage.until_shown("! Conversations are not kept", "file [x]")
        await stage.ask("question")
        await stage.until_shown("Fine.")


async def test_what_can_no_longer_be_written_is_told_once(tmp_path: Path) -> None:
    path = tmp_path / "chat.db"
    async with chat(FakeEngine(), path, size=(140, 24)) as stage:
        await stage.ask("first")
        store = Store(path)
        store._connection.execute("DROP TABLE turns")
        store.close()
        await stage.ask("second")
        await stage.until_shown("can't be kept", "Fine.")
        await stage.ask("third")
        assert "can't be kept" not in stage.text()


async def test_a_disk_that_was_full_for_a_while_costs_no_turn(tmp_path: Path) -> None:
    path = tmp_path / "chat.db"
    async with chat(FakeEngine(), path, size=(140, 24)) as stage:
        await stage.ask("first")
        store = Store(path)
        full = "CREATE TRIGGER f BEFORE INSERT ON turns BEGIN SELECT RAISE(ABORT, 'database or disk is full'); END"
        store._connection.execute(full)
        await stage.ask("second")
        await stage.until_shown("can't be kept", "is missing is written as soon as it can be.")
        store._connection.execute("DROP TRIGGER f")
        store.close()
        await stage.until_shown("The conversations are kept again.")
        await stage.ask("third")
    (conversation,) = kept(path)
    assert [turn.text for turn in conversation.turns] == ["first", "Fine.", "second", "Fine.", "third", "Fine."]


async def test_a_disk_that_was_full_for_a_while_costs_no_draft_and_nothing_attached(tmp_path: Path) -> None:
    path = tmp_path / "chat.db"
    async with chat(FakeEngine(), path, size=(220, 24)) as stage:
        await stage.ask("first")
        store = Store(path)
        full = "CREATE TRIGGER f BEFORE UPDATE ON conversations BEGIN SELECT RAISE(ABORT, 'disk is full'); END"
        store._connection.execute(full)
        stage.app.controller.attaching.attach_paste("a long text")
        await stage.press(*"draft")
        await stage.until_shown("can't be kept", "is missing is written as soon as it can be.")
        store._connection.execute("DROP TRIGGER f")
        store.close()
    (conversation,) = kept(path)
    assert conversation.draft == "draft"
    assert [attachment.text for attachment in conversation.attachments] == ["a long text"]


async def test_leaving_keeps_the_draft_and_the_partial_reply(tmp_path: Path) -> None:
    path = tmp_path / "chat.db"
    gate = threading.Event()
    engine = FakeEngine(scripts=[says("one two", gate=gate, num_before_gate=1)])
    async with chat(engine, path) as stage:
        await stage.send("question")
        await stage.until_shown("one")
        await stage.press("d", "ctrl+q")
    conversation = kept(path)[0]
    assert [(turn.text, turn.state) for turn in conversation.turns][1] == ("one ", TurnState.STOPPED)
    assert conversation.draft == "d"


async def test_another_reply_is_a_branch(tmp_path: Path) -> None:
    path = tmp_path / "chat.db"
    engine = FakeEngine(scripts=[says("First try."), says("Second try.")])
    async with chat(engine, path) as stage:
        await stage.ask("question")
        await stage.press("ctrl+r")
        await stage.until_shown("Second try.")
        await stage.until_idle()
        assert "First try." not in stage.text()
    store = Store(path)
    line = store.conversations()[0]
    assert line.num_turns == 3
    loaded = store.load(line.id)
    assert loaded is not None
    assert [turn.text for turn in loaded.turns] == ["question", "Second try."]
    assert replace(loaded, turns=()).draft == ""


async def test_a_chat_that_is_left_before_anything_began_keeps_what_was_typed(tmp_path: Path) -> None:
    path = tmp_path / "chat.db"

    def never_begun() -> ChatApp:
        models = desk_for(FakeEngine(), Preferences(model="tiny-1m"))
        return ChatApp(ChatSetting(models=models, history_path=path))

    never_begun().controller.close()
    assert not path.exists()
    app = never_begun()
    app.controller.set_draft("half a thought")
    app.controller.close()
    async with chat(FakeEngine(), path) as stage:
        await stage.until_shown("│ half a thought")
