"""Conversations on disk: what was written is read again, also after a kill, by two windows, and around damage."""

import multiprocessing
import os
import signal
import sqlite3
import time
from dataclasses import replace
from multiprocessing.synchronize import Event
from pathlib import Path

import pytest

from app.chat.attachments import Attachment
from app.chat.changes import Changes
from app.chat.conversation import Conversation, Turn, TurnState
from app.chat.engine_port import ReplyFigures, Role
from app.chat.file_systems import is_network_path
from app.chat.salvage import open_store
from app.chat.store import Store
from app.chat.store_file import NewerStoreError, StoreError
from app.chat.store_schema import SCHEMA_VERSION


def a_conversation(num_pairs: int = 2, *, text_size: int = 20) -> Conversation:
    conversation = Conversation(system="Be brief.", model="tiny")
    for number in range(num_pairs):
        question = Turn(
            parent=conversation.leaf, role=Role.USER, text=f"question {number} of {conversation.id} " + "q" * text_size
        )
        conversation = conversation.with_turn(question)
        answer = Turn(
            parent=question.id,
            role=Role.ASSISTANT,
            text=f"answer {number} to {conversation.id} [/] \x1b " + "a" * text_size,
            thinking="hm",
            ids=(1, 2, 151_000 + number),
            vocabulary="v1",
            model="tiny",
            figures=ReplyFigures(prompt_tokens=3, reply_tokens=4, ttft_s=0.5, tokens_per_s=12.5),
        )
        conversation = conversation.with_turn(answer)
    return conversation


def test_a_conversation_comes_back_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "カタログ　имя" / "chat.db"
    conversation = replace(a_conversation(), draft="not sent\nyet", window_start=None)
    store = Store(path)
    store.save_turns(conversation, conversation.turns)
    store.close()
    reopened = Store(path)
    assert reopened.load(conversation.id) == conversation
    assert reopened.load("nobody") is None
    reopened.close()


def test_a_turn_written_again_replaces_itself_and_keeps_its_place(tmp_path: Path) -> None:
    store = Store(tmp_path / "chat.db")
    conversation = a_conversation(2)
    store.save_turns(conversation, conversation.turns)
    reply = conversation.turns[1]
    stopped = replace(reply, text=f"{reply.text} and mo", state=TurnState.STOPPED, ids=(1,))
    conversation = conversation.with_turn(stopped)
    store.save_turns(conversation, [stopped])
    assert store.load(conversation.id) == conversation


def test_half_surrogates_are_kept_as_question_marks(tmp_path: Path) -> None:
    store = Store(tmp_path / "chat.db")
    turn = Turn(role=Role.USER, text="a\udcffb")
    store.save_turns(Conversation(system="\ud800", draft="\udfff").with_turn(turn), [turn])
    loaded = store.load(store.conversations()[0].id)
    assert loaded is not None
    assert (loaded.system, loaded.draft, loaded.turns[0].text) == ("?", "?", "a?b")


def test_another_branch_stays_in_the_store(tmp_path: Path) -> None:
    store = Store(tmp_path / "chat.db")
    conversation = a_conversation(1)
    store.save_turns(conversation, conversation.turns)
    regenerated = Turn(parent=conversation.turns[0].id, role=Role.ASSISTANT, text="another answer")
    branched = conversation.without_last().with_turn(regenerated)
    store.save_turns(branched, [regenerated])
    loaded = store.load(conversation.id)
    assert loaded is not None
    assert [turn.text for turn in loaded.turns] == [conversation.turns[0].text, "another answer"]
    assert store.conversations()[0].num_turns == 3


def test_the_list_is_newest_first_and_leaves_out_the_empty(tmp_path: Path) -> None:
    store = Store(tmp_path / "chat.db")
    first, second = a_conversation(1), a_conversation(2)
    store.save_turns(first, first.turns)
    store.save_turns(second, second.turns)
    store.save_conversation(Conversation())
    store.save_conversation(Conversation(draft="an idea"))
    store.save_turns(first, [])
    lines = store.conversations()
    assert [(line.title, line.num_turns, line.has_draft) for line in lines] == [
        (first.title, 2, False),
        ("an idea", 0, True),
        (second.title, 4, False),
    ]


def test_only_a_conversation_that_ends_in_a_partial_reply_is_broken_off(tmp_path: Path) -> None:
    store = Store(tmp_path / "chat.db")
    conversation = a_conversation(1)
    partial = replace(conversation.turns[1], state=TurnState.PARTIAL)
    conversation = conversation.with_turn(partial)
    store.save_turns(conversation, conversation.turns)
    store.close()
    store = Store(tmp_path / "chat.db")
    assert store.conversations()[0].is_broken_off
    question = Turn(role=Role.USER, text="and then", parent=partial.id)
    conversation = conversation.with_turn(question)
    store.save_turns(conversation, [question])
    assert not store.conversations()[0].is_broken_off


def test_prompts_are_listed_once_oldest_first(tmp_path: Path) -> None:
    store = Store(tmp_path / "chat.db")
    conversation = Conversation()
    for number, text in enumerate(["one", "two", "one"]):
        turn = Turn(parent=conversation.leaf, role=Role.USER, text=text, created_at=float(number))
        conversation = conversation.with_turn(turn)
    store.save_turns(conversation, conversation.turns)
    assert store.prompts() == ["two", "one"]


def _write_until_killed(path: Path, started: Event) -> None:
    store = Store(path)
    number = 0
    while True:
        conversation = Conversation(id=f"c{number}", draft=f"draft {number}")
        turn = Turn(role=Role.USER, text=f"turn {number}")
        store.save_turns(conversation.with_turn(turn), [turn])
        with path.with_suffix(".done").open("a") as done:
            done.write(f"{number}\n")
        started.set()
        number += 1


@pytest.mark.parametrize("delay_s", [0.0, 0.03, 0.11])
def test_kill_nine_keeps_every_finished_turn_and_draft(tmp_path: Path, delay_s: float) -> None:
    context = multiprocessing.get_context("fork")
    path = tmp_path / "chat.db"
    started = context.Event()
    writer = context.Process(target=_write_until_killed, args=(path, started))
    writer.start()
    assert started.wait(20)
    time.sleep(delay_s)
    assert writer.pid is not None
    os.kill(writer.pid, signal.SIGKILL)
    writer.join()
    written = [int(line) for line in path.with_suffix(".done").read_text().split("\n")[:-1]]
    opened = open_store(path)
    assert opened.note == ""
    for number in written:
        conversation = opened.store.load(f"c{number}")
        assert conversation is not None
        assert conversation.draft == f"draft {number}"
        assert [turn.text for turn in conversation.turns] == [f"turn {number}"]


def test_a_window_writes_only_what_it_changed(tmp_path: Path) -> None:
    here, there = Store(tmp_path / "chat.db"), Store(tmp_path / "chat.db")
    question = Turn(role=Role.USER, text="question")
    conversation = Conversation(draft="unsent").with_turn(question)
    here.save_turns(conversation, [question])
    shown_there = there.load(conversation.id)
    assert shown_there is not None and shown_there.draft == ""
    here.save_conversation(replace(conversation, title="Renamed", is_pinned=True))
    reply = Turn(role=Role.ASSISTANT, text="from there", parent=question.id)
    there.save_turns(shown_there.with_turn(reply), [reply])
    found = here.load(conversation.id)
    assert found is not None and (found.title, found.is_pinned, found.draft) == ("Renamed", True, "unsent")
    assert [turn.text for turn in found.turns] == ["question", "from there"]
    there.save_conversation(replace(shown_there, draft="new"))
    here.save_conversation(replace(found, system="Be kind."))
    found = there.load(conversation.id)
    assert found is not None and (found.title, found.system) == ("Renamed", "Be kind.")
    here.close()
    there.close()
    drafts = {line.title or conversation.title: line.has_draft for line in Store(tmp_path / "chat.db").conversations()}
    assert drafts == {"Renamed": True, "new": True}


def test_a_conversation_that_another_window_deleted_comes_back_with_its_next_turn(tmp_path: Path) -> None:
    here, there = Store(tmp_path / "chat.db"), Store(tmp_path / "chat.db")
    question, reply = Turn(role=Role.USER, text="question"), Turn(role=Role.ASSISTANT, text="reply")
    conversation = Conversation().with_turn(question)
    here.save_turns(conversation, [question])
    for saves in (
        lambda: here.save_turns(conversation.with_turn(reply), [reply]),
        lambda: here.save_conversation(replace(conversation, draft="d")),
    ):
        there.write(Changes(conversation_id=conversation.id, is_deleted=True))
        here.save_conversation(replace(conversation, title="Renamed"))
        assert here.conversations() == []
        saves()
        assert [line.id for line in there.conversations()] == [conversation.id]
    here.close()
    there.close()


def test_two_windows_write_at_once(tmp_path: Path) -> None:
    first, second = Store(tmp_path / "chat.db"), Store(tmp_path / "chat.db")
    for store in (first, second) * 5:
        conversation = a_conversation(1)
        store.save_turns(conversation, conversation.turns)
    assert len(first.conversations()) == len(second.conversations()) == 10


def test_a_file_that_is_no_database_is_set_aside(tmp_path: Path) -> None:
    path = tmp_path / "chat.db"
    path.write_bytes(b"this is no database " * 400)
    opened = open_store(path)
    aside = [found for found in tmp_path.iterdir() if ".damaged-" in found.name]
    assert len(aside) == 1
    assert aside[0].read_bytes() == b"this is no database " * 400
    assert str(aside[0]) in opened.note
    assert opened.store.conversations() == []


def test_a_damaged_page_costs_its_own_rows_alone(tmp_path: Path) -> None:
    path = tmp_path / "chat.db"
    store = Store(path)
    saved = [a_conversation(3, text_size=600) for _ in range(12)]
    for conversation in saved:
        store.save_turns(conversation, conversation.turns)
    store.close()
    page_bytes = 4096
    raw = bytearray(path.read_bytes())
    victim = next(
        number
        for number in range(8, len(raw) // page_bytes)
        if b"question 1" in raw[number * page_bytes :][:page_bytes]
    )
    raw[victim * page_bytes : (victim + 1) * page_bytes] = b"\xa5" * page_bytes
    path.write_bytes(raw)
    opened = open_store(path)
    assert "damaged" in opened.note
    texts = {
        turn.text
        for conversation in saved
        if (loaded := opened.store.load(conversation.id)) is not None
        for turn in loaded.turns
    }
    expected = {turn.text for conversation in saved for turn in conversation.turns}
    assert texts <= expected
    assert len(expected) - 12 <= len(texts) < len(expected)


def test_of_a_file_that_was_cut_short_what_is_left_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "chat.db"
    store = Store(path)
    saved = [a_conversation(3, text_size=600) for _ in range(12)]
    for conversation in saved:
        store.save_turns(conversation, conversation.turns)
    attached = replace(saved[0], draft="unsent", attachments=(Attachment(name="a.txt", text="alpha"),))
    store.write(Changes(conversation_id=attached.id, conversation=attached, has_attachments=True))
    store.close()
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) * 6 // 10])
    opened = open_store(path)
    found = {turn.text for line in opened.store.conversations() for turn in loaded(opened.store, line.id).turns}
    expected = {turn.text for conversation in saved for turn in conversation.turns}
    assert 0 < len(found) < len(expected) and found <= expected
    first = loaded(opened.store, saved[0].id)
    assert (first.draft, [attachment.text for attachment in first.attachments]) == ("unsent", ["alpha"])
    (aside,) = [found for found in tmp_path.iterdir() if ".damaged-" in found.name]
    assert aside.read_bytes() == whole[: len(whole) * 6 // 10]
    assert sorted(tmp_path.iterdir()) == sorted([aside, *tmp_path.glob("chat.db*")])


def loaded(store: Store, conversation_id: str) -> Conversation:
    conversation = store.load(conversation_id)
    assert conversation is not None
    return conversation


def test_a_value_that_makes_no_sense_costs_that_value(tmp_path: Path) -> None:
    path = tmp_path / "chat.db"
    conversation = a_conversation(1)
    store = Store(path)
    store.save_turns(conversation, conversation.turns)
    store.close()
    raw = sqlite3.connect(path)
    raw.execute("UPDATE turns SET ids = x'010203', figures = 'no json', state = 'odd', text = CAST(x'ff41' AS TEXT)")
    raw.commit()
    raw.close()
    loaded = Store(path).load(conversation.id)
    assert loaded is not None
    assert [(turn.ids, turn.figures, turn.state, turn.text) for turn in loaded.turns] == [
        (None, None, TurnState.FINISHED, "\ufffdA")
    ] * 2


def test_a_later_version_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "chat.db"
    raw = sqlite3.connect(path)
    raw.execute(f"PRAGMA user_version = {SCHEMA_VERSION + 1}")
    raw.close()
    before = path.read_bytes()
    with pytest.raises(NewerStoreError, match="later version"):
        open_store(path)
    assert path.read_bytes() == before


def test_a_place_that_cannot_be_written_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(StoreError, match="can't be"):
        open_store(tmp_path / "file" / "chat.db")


def test_network_file_systems_are_seen() -> None:
    linux = (
        "/dev/sda1 / ext4 rw 0 0\n"
        "server:/x /home/my\\040home nfs4 rw 0 0\n"
        "/dev/sdb /home/my\\040home/local xfs rw 0 0\n"
        "me@host:/ /mnt/far fuse.sshfs rw 0 0\n"
        "share /mnt/host vboxsf rw 0 0\n"
    )
    assert is_network_path(Path("/home/my home/.local/chat.db"), linux)
    assert not is_network_path(Path("/home/my home/local/chat.db"), linux)
    assert not is_network_path(Path("/srv/chat.db"), linux)
    assert is_network_path(Path("/mnt/far/chat.db"), linux) and is_network_path(Path("/mnt/host/chat.db"), linux)
    mac = "/dev/disk1 on / (apfs, local)\n//me@server/share on /Volumes/share (smbfs, nodev)\n"
    assert is_network_path(Path("/Volumes/share/chat.db"), mac)
    assert not is_network_path(Path("/Users/me/chat.db"), mac)
