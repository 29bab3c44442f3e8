"""Commands of the chat: called by slash word, key or palette, completed while they are typed, and rebound."""

from pathlib import Path

import pytest
from chat_stage import FakeEngine, chat, says
from textual import events
from textual.command import CommandPalette

from app.chat.app import ChatApp
from app.chat.commands.key_table import key_table, shown_key
from app.chat.commands.registry import COMMANDS, command_of
from app.chat.commands.slash import PlainMessage, SlashCall, UnknownWord, read_message
from app.chat.completion import slash_offers
from app.chat.screens.keys import KeysScreen, keys_text
from app.chat.widgets.prompt import Prompt


def prompt_text(app: ChatApp) -> str:
    return app.screen.query_one(Prompt).text


def test_every_command_can_be_told_from_the_others() -> None:
    names = [command.name for command in COMMANDS]
    keys = [key for command in COMMANDS for key in command.keys]
    assert len(set(names)) == len(names)
    assert len(set(keys)) == len(keys)
    assert key_table().notes == ()
    for command in COMMANDS:
        found = read_message(f"/{command.name.upper()}  ")
        assert isinstance(found, SlashCall)
        assert found.command is command


@pytest.mark.parametrize("text", ["/usr/bin is a folder", "/", "/ 2", "1/2", "/2 of it", "a\n/new", "/etc/hosts"])
def test_what_is_no_command_is_a_message(text: str) -> None:
    assert read_message(text) == PlainMessage(text=text)


@pytest.mark.parametrize(("word", "name"), [("bye", "quit"), ("EXIT", "quit"), ("clear", "new"), ("?", "help")])
def test_the_words_of_other_programs_are_understood(word: str, name: str) -> None:
    found = read_message(f"/{word}")
    assert isinstance(found, SlashCall)
    assert found.command.name == name


def test_two_slashes_send_one() -> None:
    assert read_message("//new things") == PlainMessage(text="/new things")
    assert read_message("// a comment\n// more") == PlainMessage(text="/ a comment\n// more")


def test_a_word_that_is_nearly_a_command_is_told_which() -> None:
    unknown = read_message("/nwe")
    assert isinstance(unknown, UnknownWord)
    assert "no command /nwe" in unknown.sentence
    assert "/new" in unknown.sentence


async def test_a_slash_word_does_what_its_key_does(tmp_path: Path) -> None:
    engine = FakeEngine(scripts=[says("First."), says("Second.")])
    async with chat(engine, tmp_path / "chat.db") as stage:
        await stage.ask("question")
        await stage.ask("/regen")
        await stage.until_shown("Second.")
        assert prompt_text(stage.app) == ""
        await stage.send("/new")
        await stage.until(lambda: "question" not in stage.text())
        await stage.send("/help")
        await stage.until(lambda: isinstance(stage.app.screen, KeysScreen))
        await stage.until_shown("Ctrl+R", "/regen")
        await stage.press("escape")
    assert [[turn.text for turn in asked] for asked in engine.asked] == [["question"]] * 2


async def test_a_message_with_an_unknown_word_stays_where_it_was_written(tmp_path: Path) -> None:
    engine = FakeEngine()
    async with chat(engine, tmp_path / "chat.db") as stage:
        await stage.until_idle()
        await stage.send("/frobnicate all of this")
        await stage.until_shown("There is no command /frobnicate.", "│ /frobnicate all of this")
        await stage.press("home", "/", "enter")
        await stage.until_idle()
        await stage.until_shown("▌ /frobnicate all of this", "Fine.")
    assert engine.asked[0][-1].text == "/frobnicate all of this"


async def test_a_command_that_can_not_be_done_says_why(tmp_path: Path) -> None:
    async with chat(FakeEngine(), tmp_path / "chat.db") as stage:
        await stage.until_idle()
        await stage.press("ctrl+r")
        await stage.until_shown("! There is no reply yet.")
        await stage.ask("question")
        await stage.press("ctrl+g")
        await stage.until_shown("! The reply came to its end.")


async def test_commands_are_offered_while_they_are_typed(tmp_path: Path) -> None:
    async with chat(FakeEngine(), tmp_path / "chat.db") as stage:
        await stage.until_idle()
        await stage.press("/", "t")
        await stage.until_shown("/think", "/top")
        assert "/regen" not in stage.text()
        await stage.press("o", "tab")
        assert prompt_text(stage.app) == "/top"
        assert "/think" not in stage.text()
        await stage.press("ctrl+u", "/", "escape")
        await stage.pilot.pause()
        assert "/think" not in stage.text()
        assert prompt_text(stage.app) == "/"
        await stage.press("h", "e", "l", "enter")
        await stage.until(lambda: isinstance(stage.app.screen, KeysScreen))
        assert stage.app.controller.conversation.turns == ()


def test_what_is_offered() -> None:
    def labels(before: str) -> list[str]:
        return [offer.label for offer in slash_offers(before, key_table(), lambda command: ("dark", "light"))]

    assert labels("") == labels("x /n") == labels("//n") == labels("/n\n") == []
    assert labels("/ren") == ["/rename TITLE"]
    assert labels("/elp") == ["/help"]
    assert labels("/help l") == ["light"]
    assert len(labels("/")) == len(COMMANDS)


async def test_the_palette_offers_what_can_be_done(tmp_path: Path) -> None:
    async with chat(FakeEngine(scripts=[says("one"), says("two")]), tmp_path / "chat.db") as stage:
        await stage.until_idle()
        offered = [command.title for command in stage.app.get_system_commands(stage.app.screen)]
        assert "New conversation" in offered
        assert "Another reply" not in offered
        await stage.ask("question")
        await stage.press("ctrl+p")
        await stage.until(lambda: isinstance(stage.app.screen, CommandPalette))
        await stage.press(*"another")
        await stage.until_shown("Another reply")
        await stage.press("enter", "enter")
        await stage.until_shown("two")
        await stage.press("ctrl+p")
        await stage.until(lambda: isinstance(stage.app.screen, CommandPalette))
        await stage.press(*"branch")
        await stage.until_shown("(/branch [N])")


async def test_keys_of_the_settings_take_the_place_of_the_commands_own(tmp_path: Path) -> None:
    engine = FakeEngine(scripts=[says("one"), says("two"), says("three")])
    keys = {"regen": ("alt+r", "f5"), "help": (), "renam": ("f6",), "open": ("x",)}
    async with chat(engine, tmp_path / "chat.db", size=(140, 30), keys=keys) as stage:
        await stage.until_shown("there is no such command (did you mean rename?)", "open: x is needed for writing")
        await stage.ask("question")
        await stage.press("ctrl+r", "f1")
        await stage.pilot.pause()
        assert len(engine.asked) == 1
        assert not isinstance(stage.app.screen, KeysScreen)
        await stage.until_shown("/help keys")
        await stage.press("f5")
        await stage.until_shown("two")
        await stage.until_idle()
        await stage.press("alt+r")
        await stage.until_shown("three")


def test_a_chosen_key_is_taken_from_whoever_had_it() -> None:
    table = key_table({"new": ("Ctrl+R",), "open": ("ctrl+r", "esc", "nosuch", "hyperx+a")})
    new, regenerate, stop, opening = (command_of(name) for name in ("new", "regen", "stop", "open"))
    assert new and regenerate and stop and opening
    assert table.keys_of(new) == ("ctrl+r",)
    assert table.keys_of(regenerate) == ()
    assert table.keys_of(opening) == ("escape",)
    assert table.keys_of(stop) == ()
    assert (table.hint("new"), table.hint("stop")) == ("Ctrl+R", "/stop")
    assert [note.split(": ")[1].split(" ")[0] for note in table.notes] == ["ctrl+r", "nosuch", "hyperx+a"]


def test_how_keys_are_shown() -> None:
    assert [shown_key(key) for key in ("ctrl+n", "f1", "pageup", "alt+up")] == ["Ctrl+N", "F1", "PgUp", "Alt+Up"]


@pytest.mark.parametrize("width", [20, 30, 70, 130])
def test_the_page_of_keys_fits_and_leaves_no_command_out(width: int) -> None:
    text = keys_text(key_table(), width)
    assert all(f"/{command.name}" in text for command in COMMANDS)
    assert max(map(len, text.split("\n"))) <= max(width, 40)


async def test_a_command_typed_faster_than_its_offers_come_is_sent_as_it_is(tmp_path: Path) -> None:
    async with chat(FakeEngine(), tmp_path / "chat.db") as stage:
        await stage.until_idle()
        await stage.ask("question")
        prompt = stage.app.screen.query_one(Prompt)
        await stage.press("/")
        await stage.until_shown("/new")
        for character in "branch 1":
            prompt.insert_text(character)  # Word of these edits has not come to the list yet.
        await prompt._on_key(events.Key("enter", "\r"))
        await stage.until_shown("What you send next follows turn 1.")
