"""Several windows on the same conversations: who writes what, whether that window lives, and no words overwritten."""

import multiprocessing
import os
import signal
import threading
from dataclasses import replace
from multiprocessing.synchronize import Event
from pathlib import Path

from chat_stage import FakeEngine, chat, says

from app.chat.claims import Claims
from app.chat.conversation import Conversation, Turn, TurnState
from app.chat.engine_port import Role
from app.chat.store import Store


def begun(text: str = "half a rep") -> Conversation:
    """A question, and a reply that is being written."""
    question = Turn(role=Role.USER, text="old question")
    reply = Turn(role=Role.ASSISTANT, text=text, state=TurnState.PARTIAL, parent=question.id, ids=(1, 2))
    return Conversation().with_turn(question).with_turn(reply)


def loaded(store: Store, conversation_id: str) -> Conversation:
    found = store.load(conversation_id)
    assert found is not None
    return found


def test_what_one_window_holds_no_other_gets_until_it_lets_go(tmp_path: Path) -> None:
    here, there = Claims(tmp_path / "open"), Claims(tmp_path / "open")
    assert here.hold("a") and here.hold("a") and here.hold("b")
    assert not there.hold("a")
    assert there.is_elsewhere("a") and not here.is_elsewhere("a") and here.is_held("a") and there.is_held("a")
    assert there.held_elsewhere() == {"a", "b"} and here.held_elsewhere() == set()
    here.let_all_go(but="b")
    assert there.held_elsewhere() == {"b"}
    assert there.hold("a") and here.is_elsewhere("a")
    there.let_all_go()
    here.let_all_go()
    assert list((tmp_path / "open").iterdir()) == []


def test_without_a_place_for_locks_everything_is_free(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    claims = Claims(tmp_path / "file" / "open")
    assert claims.hold("a")
    assert not claims.is_elsewhere("a") and claims.held_elsewhere() == set()


def _write_and_wait(path: Path, conversation: Conversation, written: Event) -> None:
    store = Store(path)
    store.save_turns(conversation, conversation.turns)
    written.set()
    signal.pause()


def test_a_reply_is_broken_off_once_its_window_was_killed_and_not_before(tmp_path: Path) -> None:
    path, conversation = tmp_path / "chat.db", begun()
    context = multiprocessing.get_context("fork")
    written = context.Event()
    window = context.Process(target=_write_and_wait, args=(path, conversation, written))
    window.start()
    assert written.wait(20)
    store = Store(path)
    (line,) = store.conversations()
    assert (line.is_broken_off, line.is_being_written, line.is_elsewhere) == (False, True, True)
    assert loaded(store, conversation.id).turns[1].state is TurnState.ELSEWHERE
    assert window.pid is not None
    os.kill(window.pid, signal.SIGKILL)
    window.join()
    (line,) = store.conversations()
    assert (line.is_broken_off, line.is_being_written, line.is_elsewhere) == (True, False, False)
    assert loaded(store, conversation.id).turns[1].state is TurnState.PARTIAL
    store.close()
    assert list(path.with_name("chat.db-open").iterdir()) == []


def test_a_reply_that_two_windows_go_on_with_keeps_the_words_of_both(tmp_path: Path) -> None:
    here, there = Store(tmp_path / "chat.db"), Store(tmp_path / "chat.db")
    conversation = begun()
    stopped = replace(conversation.turns[1], state=TurnState.STOPPED)
    conversation = conversation.with_turn(stopped)
    here.save_turns(conversation, conversation.turns)
    shown_there = loaded(there, conversation.id)
    for text in ("half a reply", "half a reply from here"):
        here.save_turns(conversation, [replace(stopped, text=text)])
    there.save_turns(shown_there, [replace(stopped, text="half a report")])
    there.save_turns(shown_there, [replace(stopped, text="half a report from there")])
    found = loaded(here, conversation.id)
    replies = {turn.text for turn in found.all_turns if turn.role is Role.ASSISTANT}
    assert replies == {"half a reply from here", "half a report from there"}
    assert {turn.parent for turn in found.all_turns if turn.role is Role.ASSISTANT} == {conversation.turns[0].id}
    here.close()
    there.close()


def test_a_copy_that_is_behind_overwrites_nothing(tmp_path: Path) -> None:
    here, there = Store(tmp_path / "chat.db"), Store(tmp_path / "chat.db")
    conversation = begun()
    here.save_turns(conversation, conversation.turns)
    behind = loaded(there, conversation.id)
    finished = replace(conversation.turns[1], text="half a reply, and the rest", state=TurnState.FINISHED)
    here.save_turns(conversation.with_turn(finished), [finished])
    there.save_turns(behind, [replace(turn, parent=None) for turn in behind.turns[1:]])
    found = loaded(here, conversation.id)
    assert [(turn.text, turn.state, turn.parent) for turn in found.all_turns if turn.role is Role.ASSISTANT] == [
        ("half a reply, and the rest", TurnState.FINISHED, None)
    ]
    here.close()
    there.close()


async def test_a_second_window_waits_for_the_reply_of_the_first_and_shows_its_end(tmp_path: Path) -> None:
    path = tmp_path / "chat.db"
    gate = threading.Event()
    engine = FakeEngine(scripts=[says("one two three", gate=gate, num_before_gate=2)])
    async with chat(engine, path, size=(140, 24)) as first:
        await first.send("question")
        await first.until_shown("one two")
        await first.until(lambda: path.exists() and _last_text(path) == "one two ", "the reply on disk")
        async with chat(FakeEngine(), path, size=(140, 24)) as second:
            await second.until_idle()
            await second.press("ctrl+o")
            await second.until_shown("2 turns · being written · in another window")
            assert "broke" not in second.text()
            await second.press("enter")
            await second.until_shown("one two", "being written in another window", "Another window shows this")
            await second.press("ctrl+g")
            await second.until_shown("! Another window writes this reply just now.")
            await second.press(*"mine")
            gate.set()
            await second.until_shown("one two three", "│ mine")
            assert "being written in another window" not in second.text()
        await first.until_idle()
        await first.press(*"own")
    store = Store(path)
    assert {line.title: line.has_draft for line in store.conversations()} == {"question": True, "mine": True}
    assert [store.load(line.id).draft for line in store.conversations() if line.num_turns] == ["own"]  # type: ignore[union-attr]
    store.close()


def _last_text(path: Path) -> str:
    store = Store(path)
    texts = [loaded(store, line.id).turns[-1].text for line in store.conversations() if line.num_turns]
    store.close()
    return texts[0] if texts else ""


async def test_what_another_window_is_writing_is_not_taken_out_of_its_hands(tmp_path: Path) -> None:
    path = tmp_path / "chat.db"
    async with chat(FakeEngine(), path) as first:
        await first.press(*"mine")
        await first.until(lambda: path.exists() and _drafts(path) == ["mine"], "the draft on disk")
        async with chat(FakeEngine(), path) as second:
            await second.until_idle()
            await second.press("ctrl+o")
            await second.until_shown("Conversations", "unsent draft · in another window")
            await second.press("escape")
            assert second.app.controller.conversation.draft == ""
    async with chat(FakeEngine(), path) as third:
        await third.until_shown("│ mine")


def _drafts(path: Path) -> list[str]:
    store = Store(path)
    titles = [line.title for line in store.conversations() if line.has_draft]
    store.close()
    return titles
