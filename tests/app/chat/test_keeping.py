"""What becomes of words that can't be kept at once, and of those that nobody sent yet."""

import asyncio
import json
import sqlite3
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from chat_stage import FakeEngine, chat, says
from fake_shelf import desk_for
from kept import kept

from app.chat import launch as launching
from app.chat.app import ChatApp, ChatSetting
from app.chat.conversation import Conversation
from app.chat.export import ExportError, export, rescue, write_new
from app.chat.prompt_history import PromptHistory
from app.chat.store_schema import SCHEMA_VERSION
from app.chat.widgets.prompt import Prompt
from app.preferences import Preferences


@contextmanager
def full_disk(path: Path) -> Iterator[None]:
    """Nothing can be written meanwhile."""
    raw = sqlite3.connect(path, isolation_level=None, timeout=30)
    names = [f"{what}_{table}" for what in ("INSERT", "UPDATE", "DELETE") for table in ("turns", "conversations")]
    for name in names:
        what, _, table = name.partition("_")
        raw.execute(
            f"CREATE TRIGGER full_{name} BEFORE {what} ON {table} BEGIN SELECT RAISE(ABORT, 'disk is full'); END"
        )
    yield
    for name in names:
        raw.execute(f"DROP TRIGGER full_{name}")
    raw.close()


async def test_what_a_full_disk_held_up_is_written_by_itself_when_there_is_room_again(tmp_path: Path) -> None:
    path = tmp_path / "chat.db"
    async with chat(FakeEngine(scripts=[says("One."), says("Two.")]), path, size=(140, 24)) as stage:
        await stage.ask("first")
        await stage.ask("second")
        await stage.until(lambda: path.exists() and [len(found.turns) for found in kept(path)] == [4])
        with full_disk(path):
            await stage.press("alt+x")
            await stage.until_shown("can't be kept: disk is full", "tiny-1m · not kept")
        await stage.until_shown("The conversations are kept again.")
        assert "not kept" not in stage.text()
        assert [turn.text for turn in kept(path)[0].all_turns] == ["first", "One.", "second"]


async def test_a_deletion_that_could_not_be_written_is_not_forgotten(tmp_path: Path) -> None:
    path = tmp_path / "chat.db"
    async with chat(FakeEngine(), path, size=(140, 24)) as stage:
        await stage.ask("first")
        await stage.until(lambda: path.exists() and [len(found.turns) for found in kept(path)] == [2])
        with full_disk(path):
            await stage.send("/delete")
            await stage.until_shown("not kept")
        await stage.until(lambda: not kept(path), "the deletion on disk")


async def test_a_file_that_was_deleted_under_the_chat_is_written_anew_with_the_whole_conversation(
    tmp_path: Path,
) -> None:
    path = tmp_path / "chat.db"
    async with chat(FakeEngine(), path) as stage:
        await stage.ask("first")
        await stage.until(lambda: path.exists() and [len(found.turns) for found in kept(path)] == [2])
        for name in ("", "-wal", "-shm"):
            path.with_name(path.name + name).unlink(missing_ok=True)
        await stage.ask("second")
    assert [turn.text for turn in kept(path)[0].turns] == ["first", "Fine.", "second", "Fine."]


@pytest.mark.parametrize(
    ("block", "words"),
    [("zeroblob(10)", "question"), ("x'ffffffffff'", "question"), ("x'ffffffffff'", "/search first")],
)
async def test_damage_that_shows_late_is_mended_and_nothing_is_lost(tmp_path: Path, block: str, words: str) -> None:
    path = tmp_path / "chat.db"
    async with chat(FakeEngine(), path, size=(140, 24)) as stage:
        await stage.ask("first")
        await stage.until(lambda: path.exists() and [len(found.turns) for found in kept(path)] == [2])
        raw = sqlite3.connect(path, isolation_level=None, timeout=30)
        raw.execute(f"UPDATE words_data SET block = {block}")  # the index of words: no check of pages sees it
        raw.close()
        await stage.send(words)
        await stage.until_shown("The conversations were damaged: 2 turns were kept")
        await stage.press("escape")
        await stage.until_idle()
        await stage.ask("last")
    texts = [turn.text for turn in kept(path)[0].turns]
    assert texts[:2] == ["first", "Fine."] and texts[-2:] == ["last", "Fine."]


async def test_earlier_conversations_are_asked_for_where_there_is_no_file(tmp_path: Path) -> None:
    (tmp_path / "chat.db").mkdir()
    async with chat(FakeEngine(), tmp_path / "chat.db", size=(140, 24)) as stage:
        await stage.until_shown("! Conversations are not kept", "it is a folder", "not kept")
        await stage.press("ctrl+o")
        await stage.until_shown("! Earlier conversations can't be read", "it is a folder")
        (tmp_path / "chat.db").rmdir()
        await stage.ask("question")
        await stage.until_shown("The conversations are kept again.")
    assert [turn.text for turn in kept(tmp_path / "chat.db")[0].turns] == ["question", "Fine."]


async def test_what_could_not_be_kept_is_handed_back_in_the_end(tmp_path: Path) -> None:
    path = tmp_path / "chat.db"
    raw = sqlite3.connect(path)
    raw.execute(f"PRAGMA user_version = {SCHEMA_VERSION + 1}")
    raw.close()
    app = ChatApp(ChatSetting(models=desk_for(FakeEngine(), Preferences(model="tiny-1m")), history_path=path, keys={}))
    app.controller.set_draft("half a thought")
    unkept = await asyncio.to_thread(app.controller.close)
    assert unkept is not None
    assert "written by a later version" in unkept.reason
    assert [conversation.draft for conversation in unkept.conversations] == ["half a thought"]


def test_leaving_a_chat_that_kept_nothing_says_so_and_where_its_words_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "chat.db").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    setting = ChatSetting(
        models=desk_for(FakeEngine(), Preferences(model="tiny-1m")), history_path=tmp_path / "chat.db", keys={}
    )
    app = ChatApp(setting)
    monkeypatch.setattr(launching, "make_app", lambda options: app)
    monkeypatch.setattr(app, "run", lambda: app.controller.set_draft("half a thought"))
    assert launching.launch(None) == 1  # type: ignore[arg-type]
    said = capsys.readouterr()
    assert "is kept" not in said.out
    (folder,) = tmp_path.glob("tandem-conversations-*")
    assert "it is a folder. The conversation was written to" in said.err and str(folder) in said.err
    assert [path.read_text() for path in folder.glob("*.md")] == ["# Untitled\n\n## Not sent\n\nhalf a thought\n"]
    assert [json.loads(path.read_text())["format"] for path in folder.glob("*.json")] == ["tandem-conversation"]


def test_where_no_file_can_be_written_the_words_are_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "none"))
    assert rescue([Conversation(draft="a \x1b thought")], "No room") == (
        "No room. This is the conversation:\n\n# Untitled\n\n## Not sent\n\na ␛ thought\n"
    )


async def test_walking_through_earlier_prompts_leaves_the_draft_kept(tmp_path: Path) -> None:
    path = tmp_path / "chat.db"
    async with chat(FakeEngine(), path) as stage:
        await stage.ask("sent")
        await stage.press(*"mine", "up")
        await stage.until_shown("│ sent")
        await stage.until(lambda: [found.draft for found in kept(path)] == ["mine"], "the draft on disk")
        await stage.press("enter")
        await stage.until_shown("│ mine")
        await stage.until_idle()
        await stage.press("up", "!")
        await stage.until_shown("│ sent!")
        await stage.press("up")
        await stage.until_shown("│ mine")
        await stage.press("down")
        await stage.until_shown("│ sent!")
    assert kept(path)[0].draft == "sent!"


def test_prompts_that_come_late_move_nobody_who_walks() -> None:
    history = PromptHistory()
    history.add("own")
    assert history.earlier("draft") == "own"
    history.set_prompts(["before"])
    assert history.earlier("own") == "before"
    assert [history.later(), history.later(), history.later()] == ["own", "draft", None]


async def test_an_edit_that_was_not_saved_is_gone_on_with_after_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "chat.db"
    async with chat(FakeEngine(), path) as stage:
        await stage.ask("question")
        await stage.press(*"draft", "alt+e")
        await stage.until_shown("Editing your message", "│ question")
        await stage.press(*"?!")
        await stage.until(lambda: [found.edit for found in kept(path)] == ["question?!"], "the edit on disk")
        await stage.press("ctrl+n")
        await stage.until(lambda: not stage.app.controller.conversation.turns)
        assert "Editing" not in stage.text()
    async with chat(FakeEngine(), path, continues_last=True) as stage:
        await stage.until_shown("Editing your message", "│ question?!")
        await stage.press("enter")
        await stage.until_idle()
        await stage.until_shown("▌ question?!", "version 2 of 2", "│ draft")
    (conversation,) = kept(path)
    assert (conversation.edited, conversation.edit, conversation.draft) == (None, "", "draft")


async def test_an_edit_that_is_left_is_gone_and_one_that_is_refused_is_not(tmp_path: Path) -> None:
    path = tmp_path / "chat.db"
    gate = threading.Event()
    engine = FakeEngine(scripts=[says("One."), says("two three", gate=gate, num_before_gate=1)])
    async with chat(engine, path) as stage:
        await stage.ask("question")
        await stage.press("alt+e", "!")
        await stage.until_shown("│ question!")
        question = stage.app.controller.conversation.turns[0]
        stage.app.controller.answer(question)
        await stage.press("enter")
        await stage.until_shown("! The reply is still being written", "│ question!")
        await stage.until(lambda: [found.edit for found in kept(path)] == ["question!"], "the edit on disk")
        gate.set()
        await stage.until_idle()
        await stage.press("escape")
        await stage.until(lambda: [found.edit for found in kept(path)] == [""], "no edit on disk")


async def test_the_title_stands_in_the_frame_and_steers_nothing(tmp_path: Path) -> None:
    async with chat(FakeEngine(), tmp_path / "chat.db") as stage:
        await stage.ask("What is [red]?")
        await stage.until_shown("─ What is [red]? ─")
        stage.app.controller.revisions.rename("\x1b]0;owned\x07 " + "long " * 40)
        stage.app.screen.wake()  # type: ignore[attr-defined]
        await stage.until_shown("─ ␛]0;owned␇ long long")
        await stage.press("alt+e")
        await stage.until_shown("Editing your message")
        await stage.press("escape")
        await stage.until_shown("─ ␛]0;owned␇ long long")
        assert stage.app.screen.query_one(Prompt).region.width == 80


def test_a_file_that_could_not_be_written_whole_does_not_stay(tmp_path: Path) -> None:
    path = tmp_path / "a.md"
    with pytest.raises(TypeError):
        write_new(path, object())  # type: ignore[arg-type]
    assert not path.exists()


@pytest.mark.parametrize("name", ["none/a.md", "~nobody-of-that-name/a.md"])
def test_a_place_that_is_not_there_is_named(tmp_path: Path, name: str) -> None:
    with pytest.raises(ExportError, match=r"can't be written: .*\.$"):
        export(Conversation(title="T"), name, tmp_path)
