"""Files of conversations that are damaged, of another version, or not where they were."""

import shutil
import sqlite3
import time
from dataclasses import replace
from pathlib import Path

import pytest

from app.chat import store_schema
from app.chat.changes import Changes
from app.chat.conversation import Conversation, Turn, TurnState
from app.chat.engine_port import Role
from app.chat.salvage import open_store
from app.chat.store import Store
from app.chat.store_file import MovedStoreError, StoreError
from app.chat.store_reading import ReadingStore
from app.chat.store_schema import SCHEMA_VERSION

PAGE_BYTES = 4096


def conversations(num: int, *, text_size: int = 300) -> list[Conversation]:
    made = []
    for number in range(num):
        conversation = Conversation(title=f"Number {number}")
        for place, role in enumerate((Role.USER, Role.ASSISTANT) * 2):
            text = f"{place} of {number}: " + "灯塔" * text_size
            conversation = conversation.with_turn(Turn(role=role, text=text, parent=conversation.leaf))
        made.append(conversation)
    return made


def stored(path: Path, made: list[Conversation]) -> None:
    """The first was changed last."""
    store = Store(path)
    for place, conversation in enumerate(made):
        store.save_turns(conversation, conversation.turns)
        store.set_time(conversation.id, 1_700_000_000.0 - place)
    store.close()


@pytest.mark.parametrize("num_bytes", [16, 100, PAGE_BYTES])
def test_a_broken_first_page_costs_nothing(tmp_path: Path, num_bytes: int) -> None:
    path = tmp_path / "chat.db"
    made = conversations(20)
    stored(path, made)
    raw = bytearray(path.read_bytes())
    raw[:num_bytes] = b"\xa5" * num_bytes
    path.write_bytes(raw)
    opened = open_store(path)
    assert opened.note.startswith("The conversations were damaged: 80 turns were kept")
    assert [opened.store.load(line.id) for line in opened.store.conversations()] == made
    assert [line.updated_at for line in opened.store.conversations()] == [
        1_700_000_000.0 - place for place in range(20)
    ]
    opened.store.close()


def test_a_conversation_of_which_only_turns_are_left_is_named_after_its_first_question(tmp_path: Path) -> None:
    path = tmp_path / "chat.db"
    stored(path, conversations(3))
    raw = sqlite3.connect(path)
    raw.executescript("PRAGMA foreign_keys = OFF; DELETE FROM conversations WHERE title = 'Number 1'")
    raw.close()
    opened = open_store(path, is_damaged=True)
    titles = {line.title[:8]: line.num_turns for line in opened.store.conversations()}
    assert titles == {"Number 0": 4, "Number 2": 4, "0 of 1: ": 4}
    opened.store.close()


@pytest.mark.parametrize("version", range(1, SCHEMA_VERSION))
def test_an_earlier_version_is_brought_up_to_date_with_all_that_stands_in_it(tmp_path: Path, version: int) -> None:
    path = tmp_path / "chat.db"
    raw = sqlite3.connect(path, isolation_level=None)
    for number, step in enumerate(store_schema._STEPS[:version]):
        raw.executescript(f"{step}; PRAGMA user_version = {number + 1}")
    raw.execute(
        "INSERT INTO conversations (id, title, leaf, draft, created_at, updated_at) "
        "VALUES ('c', 'Old', 'b', 'd', 1.0, 2.0)"
    )
    turn = (
        "INSERT INTO turns (id, conversation, parent, role, text, state, created_at) VALUES (?, 'c', ?, ?, ?, ?, 1.0)"
    )
    raw.execute(turn, ("a", None, "user", "之前的问题", "finished"))
    raw.execute(turn, ("b", "a", "assistant", "half", "partial"))
    raw.close()
    store = Store(path)
    (line,) = store.conversations()
    assert (line.title, line.num_turns, line.has_draft, line.is_broken_off) == ("Old", 2, True, True)
    conversation = store.load("c")
    assert conversation is not None and conversation.draft == "d"
    assert [(turn.text, turn.state) for turn in conversation.turns] == [
        ("之前的问题", TurnState.FINISHED),
        ("half", TurnState.PARTIAL),
    ]
    assert [hit.turn_id for hit in store.search("之前的")] == ["a"]
    store.save_conversation(replace(conversation, edited="a", edit="more"))
    store.close()
    assert sqlite3.connect(path).execute("PRAGMA user_version").fetchone() == (SCHEMA_VERSION,)


@pytest.mark.parametrize("happens", ["moved", "deleted", "replaced"])
def test_nothing_is_written_into_a_file_that_is_no_longer_there(tmp_path: Path, happens: str) -> None:
    path = tmp_path / "chat.db"
    store = Store(path)
    (conversation,) = conversations(1)
    store.save_turns(conversation, conversation.turns[:1])
    if happens == "deleted":
        path.unlink()
    else:
        path.rename(tmp_path / "elsewhere.db")
    if happens == "replaced":
        Store(path).close()
    with pytest.raises(MovedStoreError, match="no longer the file"):
        store.save_turns(conversation, conversation.turns[1:])
    store.close()


def test_a_place_where_nothing_can_be_written_can_be_read_and_stays_untouched(tmp_path: Path) -> None:
    path = tmp_path / "chat.db"
    made = conversations(2)
    stored(path, made)
    (tmp_path / "copy").mkdir()
    shutil.copy(path, tmp_path / "copy" / "chat.db")
    reading = ReadingStore(tmp_path / "copy" / "chat.db")
    assert [reading.load(line.id) for line in reading.conversations()] == made
    assert reading.prompts() and reading.search("灯塔")
    with pytest.raises(sqlite3.OperationalError, match="readonly"):
        reading._connection.execute("DELETE FROM turns")
    reading.close()
    assert (tmp_path / "copy" / "chat.db").read_bytes() == path.read_bytes()


def test_what_stands_in_the_way_is_named(tmp_path: Path) -> None:
    (tmp_path / "chat.db").mkdir()
    with pytest.raises(StoreError, match=r"chat\.db can't be kept: it is a folder"):
        open_store(tmp_path / "chat.db")
    (tmp_path / "file").write_text("x")
    with pytest.raises(StoreError, match=r"file is a file where a folder should be"):
        open_store(tmp_path / "file" / "deep" / "chat.db")


def test_what_was_written_while_the_clock_was_wrong_does_not_stay_the_latest(tmp_path: Path) -> None:
    path = tmp_path / "chat.db"
    made = conversations(2)
    stored(path, made)
    store = Store(path)
    store.set_time(made[0].id, time.time() + 10 * 365 * 86400)
    store.close()
    store = Store(path)
    store.save_conversation(replace(made[1], title="Now"))
    assert [line.title for line in store.conversations()] == ["Now", "Number 0"]
    store.close()


def test_every_commit_is_on_the_disk_itself(tmp_path: Path) -> None:
    store = Store(tmp_path / "chat.db")
    assert store._connection.execute("PRAGMA synchronous").fetchone() == (2,)
    store.close()


def test_changes_that_follow_each_other_become_one() -> None:
    (conversation,) = conversations(1)
    first, second, *_ = conversation.turns
    both = Changes(conversation_id="c", turns={first.id: first, second.id: second}, is_deleted=True)
    grown = replace(second, text="more")
    later = Changes(conversation_id="c", turns={second.id: grown}, removed=frozenset({first.id}), is_pinned=True)
    joined = both.followed_by(later)
    assert joined.turns == {second.id: grown} and joined.removed == {first.id}
    assert (joined.is_deleted, joined.is_pinned) == (False, True)
    back = joined.followed_by(Changes(conversation_id="c", turns={first.id: first}))
    assert back.turns == {second.id: grown, first.id: first} and not back.removed
