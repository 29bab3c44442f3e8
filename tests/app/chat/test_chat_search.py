"""Searching in all conversations: what is found, what stands around it, and the way to it."""

import sqlite3
import threading
from pathlib import Path

import pytest
from chat_stage import FakeEngine, chat, says
from textual.events import Key

from app.chat.changes import Changes
from app.chat.conversation import Conversation, Turn, TurnState
from app.chat.engine_port import Role
from app.chat.search import words_of
from app.chat.store import Store
from app.chat.store_schema import SCHEMA_VERSION

# The file as the first version made it.
FIRST_VERSION = """
CREATE TABLE conversations (
    id TEXT PRIMARY KEY, title TEXT NOT NULL DEFAULT '', system TEXT NOT NULL DEFAULT '',
    model TEXT NOT NULL DEFAULT '', leaf TEXT, window_start TEXT, draft TEXT NOT NULL DEFAULT '',
    created_at REAL NOT NULL, updated_at REAL NOT NULL
);
CREATE TABLE turns (
    id TEXT PRIMARY KEY, conversation TEXT NOT NULL REFERENCES conversations (id) ON DELETE CASCADE,
    parent TEXT, role TEXT NOT NULL, text TEXT NOT NULL, thinking TEXT NOT NULL DEFAULT '', ids BLOB,
    vocabulary TEXT NOT NULL DEFAULT '', model TEXT NOT NULL DEFAULT '', state TEXT NOT NULL, figures TEXT,
    created_at REAL NOT NULL
);
CREATE INDEX turns_of_conversation ON turns (conversation);
CREATE INDEX conversations_by_time ON conversations (updated_at);
PRAGMA user_version = 1;
INSERT INTO conversations VALUES ('c', 'Old', 'Be kind.', 'm', 'r2', NULL, 'a draft', 1.0, 2.0);
INSERT INTO turns VALUES ('q', 'c', NULL, 'user', 'an old question', '', NULL, '', '', 'finished', NULL, 1.0);
INSERT INTO turns VALUES ('r1', 'c', 'q', 'assistant', 'first answer', '', NULL, 'v', 'm', 'stopped', NULL, 1.5);
INSERT INTO turns VALUES ('r2', 'c', 'q', 'assistant', 'second answer', 'hm', NULL, 'v', 'm', 'partial', NULL, 1.7);
"""


def stored(path: Path, *texts: str, state: TurnState = TurnState.FINISHED) -> Store:
    store = Store(path)
    for text in texts:
        turn = Turn(role=Role.USER, text=text, state=state)
        store.save_turns(Conversation().with_turn(turn), [turn])
    return store


def found(store: Store, text: str) -> list[str]:
    return sorted(hit.before + hit.found + hit.after for hit in store.search(text))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("天气", ["今天天气很好"]),
        ("天气很好", ["今天天气很好"]),
        ("天", ["今天天气很好"]),
        ("WEATHER", ["The weather is fine", "weather 100%"]),
        ("fine weather", ["The weather is fine"]),
        ('"weather is"', ["The weather is fine"]),
        ('"is weather"', []),
        ("ea", ["The weather is fine", "weather 100%"]),
        ("0%", ["weather 100%"]),
        ("_", ["snake_case"]),
        ("e_c", ["snake_case"]),
        ('say "hi', ['they say "hi" OR NOT']),
        ("OR NOT", ['they say "hi" OR NOT']),
        ("  ", []),
        ('""', []),
    ],
)
def test_what_is_found(tmp_path: Path, text: str, expected: list[str]) -> None:
    store = stored(
        tmp_path / "c.db",
        "The weather is fine",
        "今天天气很好",
        "weather 100%",
        "snake_case",
        'they say "hi" OR NOT',
    )
    assert found(store, text) == expected
    store.close()


def test_a_reply_is_found_while_it_is_written_and_as_it_became(tmp_path: Path) -> None:
    store = Store(tmp_path / "c.db")
    turn = Turn(role=Role.ASSISTANT, text="unfinished words", state=TurnState.PARTIAL)
    conversation = Conversation().with_turn(turn)
    store.save_turns(conversation, [turn])
    assert found(store, "unfinished") == ["unfinished words"]
    for more, state in ((" and a thought", TurnState.STOPPED), (" and a thought to its end", TurnState.FINISHED)):
        changed = Turn(id=turn.id, role=turn.role, text=turn.text + more, state=state)
        store.save_turns(conversation.with_turn(changed), [changed])
        assert found(store, "unfinished") == found(store, more) == [changed.text]
    store.write(Changes(conversation_id=conversation.id, is_deleted=True))
    assert found(store, "unfinished") == []
    store.close()


def test_a_file_of_the_first_version_is_brought_up_to_date(tmp_path: Path) -> None:
    path = tmp_path / "old.db"
    raw = sqlite3.connect(path)
    raw.executescript(FIRST_VERSION)
    raw.close()
    store = Store(path)
    conversation = store.load("c")
    assert conversation is not None
    assert (conversation.title, conversation.draft, conversation.is_pinned) == ("Old", "a draft", False)
    assert [turn.text for turn in conversation.turns] == ["an old question", "second answer"]
    assert [turn.text for turn in conversation.others] == ["first answer"]
    assert found(store, "answer") == ["first answer", "second answer"]
    assert found(store, "old question") == ["an old question"]
    store.close()
    raw = sqlite3.connect(path)
    assert raw.execute("PRAGMA user_version").fetchone()[0] == SCHEMA_VERSION
    assert raw.execute("INSERT INTO words (words) VALUES ('integrity-check')").fetchall() == []
    raw.close()


def test_without_the_index_every_turn_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "c.db"
    stored(path, "written with the index").close()
    monkeypatch.setattr("app.chat.store_schema.has_word_index", lambda connection: False)
    store = stored(path, "written without it")
    assert found(store, "written") == ["written with the index", "written without it"]
    store.close()
    monkeypatch.undo()
    store = Store(path)
    assert found(store, "written") == ["written with the index", "written without it"]
    store.close()


def test_words_and_phrases() -> None:
    assert words_of(" a  b ") == ["a", "b"]
    assert words_of('"a  b"') == ["a  b"]
    assert words_of('"') == ['"']


def test_the_excerpt_shows_what_stands_around(tmp_path: Path) -> None:
    store = stored(tmp_path / "c.db", "x" * 500 + " needle\n" + "y" * 500)
    hit = store.search("needle")[0]
    assert hit.found == "needle"
    assert hit.before == "…" + "x" * 19 + " "
    assert hit.after.startswith(" yyy") and len(hit.after) < 300
    store.close()


async def test_searching_leads_to_the_turn_on_its_branch(tmp_path: Path) -> None:
    engine = FakeEngine(scripts=[says("blue whale [x]"), says("red fox"), says("green frog")])
    async with chat(engine, tmp_path / "chat.db") as stage:
        await stage.ask("an animal")
        await stage.press("ctrl+r")
        await stage.until_shown("red fox")
        await stage.until_idle()
        await stage.press("ctrl+n")
        await stage.ask("another")
        await stage.press("ctrl+f", *"whale")
        await stage.until_shown("1 found", "an animal · reply", "blue whale [x]")
        await stage.press("enter")
        await stage.until_shown("▌ an animal", "blue whale [x]", "‹ version 1 of 2 ›")
        selected = stage.app.screen.transcript.selected_turn  # type: ignore[attr-defined]
        assert selected == stage.app.controller.conversation.turns[1].id
        await stage.send("/search nosuchword")
        await stage.until_shown("Nothing was found.")
        await stage.press("escape")


def test_titles_and_unsent_drafts_are_found_where_no_turn_is(tmp_path: Path) -> None:
    store = Store(tmp_path / "chat.db")
    turn = Turn(role=Role.USER, text="add two numbers")
    store.save_turns(Conversation(title="Adding 加法 100%").with_turn(turn), [turn])
    store.save_conversation(Conversation(draft="an unsent 100% question"))
    hits = store.search("100%")
    assert [(hit.role, hit.turn_id, hit.before + hit.found + hit.after) for hit in hits] == [
        ("draft", None, "an unsent 100% question"),
        ("title", None, "Adding 加法 100%"),
    ]
    assert [hit.role for hit in store.search("加法")] == ["title"]
    assert [hit.turn_id for hit in store.search("add")] == [turn.id]
    store.write(Changes(conversation_id=hits[1].conversation_id, is_deleted=True))
    assert store.search("加法") == []
    store.close()


async def test_a_conversation_is_opened_by_its_title(tmp_path: Path) -> None:
    async with chat(FakeEngine(scripts=[says("one")]), tmp_path / "chat.db") as stage:
        await stage.ask("first")
        await stage.send("/rename Journey [x]")
        await stage.press("ctrl+n", "ctrl+f", *"journey")
        await stage.until_shown("Journey [x] · title · ", "1 found")
        await stage.press("enter")
        await stage.until_shown("▌ first", "one")


async def test_keys_that_are_pressed_twice_answer_once(tmp_path: Path) -> None:
    gate = threading.Event()
    engine = FakeEngine(scripts=[says("one"), says("half of it", gate=gate, num_before_gate=1)])
    async with chat(engine, tmp_path / "chat.db") as stage:

        def press_twice(key: str) -> None:
            for _ in range(2):
                stage.app.post_message(Key(key, None))

        await stage.ask("first")
        await stage.press("ctrl+f", *"first")
        await stage.until_shown("1 found")
        press_twice("enter")
        await stage.until(lambda: len(stage.app.screen_stack) == 1)
        await stage.press("ctrl+n")
        await stage.send("second")
        await stage.until_shown("half")
        press_twice("ctrl+o")
        await stage.until_shown("being written · shown now")
        await stage.press("escape")
        await stage.until(lambda: len(stage.app.screen_stack) == 1)
        await stage.pilot.pause(0.2)
        assert len(stage.app.screen_stack) == 1
        gate.set()
        await stage.until_idle()
        await stage.press("ctrl+o")
        await stage.until_shown("shown now")
        assert "being written" not in stage.text()
        press_twice("enter")
        await stage.until(lambda: len(stage.app.screen_stack) == 1)
        await stage.press("ctrl+b")
        await stage.until_shown("Branches")
        press_twice("b")
        await stage.until(lambda: len(stage.app.screen_stack) == 1)
        await stage.pilot.pause()
