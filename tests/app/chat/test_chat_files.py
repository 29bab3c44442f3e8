"""What goes out of the chat and into it: copies, code blocks, exports, attached files."""

import json
from pathlib import Path

import pytest
from chat_stage import FakeEngine, chat, says

from app.chat.attachments import Attachment, AttachmentError, mentioned_files, missing_files, prompt_text, read_file
from app.chat.clipboard import clipboard_command, put_into_clipboard
from app.chat.code_blocks import code_blocks
from app.chat.completion import file_offers
from app.chat.conversation import Conversation, Turn, TurnState
from app.chat.engine_port import Role
from app.chat.export import as_markdown
from app.chat.store import Store

TWO_BLOCKS = "First:\n\n```python\nprint('[/]')\n```\n\n1. then\n\n   ```sh\n   ls\n   ```\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder in which the chat was opened."""
    place = tmp_path / "work"
    place.mkdir()
    monkeypatch.chdir(place)
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "WSL_DISTRO_NAME"):
        monkeypatch.delenv(name, raising=False)
    return place


async def test_turns_and_code_blocks_are_copied(tmp_path: Path, folder: Path) -> None:
    async with chat(FakeEngine(scripts=[says(TWO_BLOCKS)]), tmp_path / "chat.db", size=(140, 30)) as stage:
        await stage.ask("question **one**")
        await stage.press("alt+k")
        await stage.until_shown("Code block 2 of 2 was copied: 1 line.")
        assert stage.app.clipboard == "ls\n"
        await stage.send("/code 1")
        await stage.until_shown("Code block 1 of 2 was copied")
        assert stage.app.clipboard == "print('[/]')\n"
        await stage.send("/code 3")
        await stage.until_shown("There is no block 3: blocks are counted from 1 to 2.")
        await stage.press("alt+up", "alt+up", "alt+c")
        await stage.until_shown("The message was copied.")
        assert stage.app.clipboard == "question **one**"
        await stage.send("/copy 2")
        await stage.until_shown("The reply was copied.")
        assert stage.app.clipboard == TWO_BLOCKS


async def test_a_code_block_is_saved_and_nothing_is_overwritten(tmp_path: Path, folder: Path) -> None:
    async with chat(FakeEngine(scripts=[says(TWO_BLOCKS)]), tmp_path / "chat.db", size=(140, 30)) as stage:
        await stage.ask("question")
        await stage.send("/save 1 first file.py")
        await stage.until_shown("Saved:")
        assert (folder / "first file.py").read_text() == "print('[/]')\n"
        await stage.press("alt+s")
        await stage.until_shown("Save the code block as", "code.sh")
        await stage.press("enter")
        await stage.until(lambda: (folder / "code.sh").exists())
        assert (folder / "code.sh").read_text() == "ls\n"
        await stage.send("/save 1 code.sh")
        await stage.until_shown("exists already and is left alone")
        await stage.send("/save no/such/folder.py")
        await stage.until_shown("can't be written:")
        assert (folder / "code.sh").read_text() == "ls\n"


async def test_a_conversation_is_exported_in_both_forms(tmp_path: Path, folder: Path) -> None:
    engine = FakeEngine(scripts=[says("old"), says("new **answer**")])
    async with chat(engine, tmp_path / "chat.db", system="Be kind.") as stage:
        await stage.ask("What? [/] Ünï")
        await stage.press("ctrl+r")
        await stage.until_shown("new answer")
        await stage.until_idle()
        await stage.send("/export")
        await stage.until_shown("Exported:")
        await stage.send("/export")
        await stage.until(lambda: (folder / "what-ünï-2.md").exists())
        await stage.send("/export all.json")
        await stage.until(lambda: (folder / "all.json").exists())
        await stage.send("/export all.txt")
        await stage.until_shown("all.txt says no form")
    assert (folder / "what-ünï.md").read_text() == (
        "# What? [/] Ünï\n\n## System\n\nBe kind.\n\n## You\n\nWhat? [/] Ünï\n\n## tiny-1m\n\nnew **answer**\n"
    )
    content = json.loads((folder / "all.json").read_text())
    assert [turn["text"] for turn in content["turns"]] == ["What? [/] Ünï", "old", "new **answer**"]
    assert content["shown"] == [content["turns"][0]["id"], content["turns"][2]["id"]]
    assert (content["system"], content["turns"][2]["ids"]) == ("Be kind.", [100, 101])


def test_markdown_holds_the_thinking_as_a_quotation() -> None:
    question = Turn(role=Role.USER, text="Why?")
    reply = Turn(role=Role.ASSISTANT, text="Because.", thinking="First.\n\nThen.", model="m", parent=question.id)
    stopped = Turn(role=Role.ASSISTANT, text="", thinking="Hm", model="m", state=TurnState.STOPPED)
    words = as_markdown(Conversation(title="T").with_turn(question).with_turn(reply).with_turn(stopped))
    assert words == (
        "# T\n\n## You\n\nWhy?\n\n## m\n\n> Thinking:\n>\n> First.\n>\n> Then.\n\nBecause.\n\n"
        "## m (stopped)\n\n> Thinking:\n>\n> Hm\n"
    )


async def test_a_block_that_was_cut_off_is_counted_and_saved_whole(tmp_path: Path, folder: Path) -> None:
    engine = FakeEngine(scripts=[says("```c\nint a;\nint b;")])
    async with chat(engine, tmp_path / "chat.db", size=(140, 30)) as stage:
        await stage.ask("question")
        await stage.press("alt+k")
        await stage.until_shown("Code block 1 of 1 was copied: 2 lines.")
        await stage.send("/save code.c")
        await stage.until_shown("Saved:")
    assert (folder / "code.c").read_text() == "int a;\nint b;\n"


async def test_a_home_of_nobody_is_a_name_like_any_other(tmp_path: Path, folder: Path) -> None:
    engine = FakeEngine(scripts=[says(TWO_BLOCKS), says("two")])
    async with chat(engine, tmp_path / "chat.db", size=(140, 30)) as stage:
        await stage.ask("one")
        await stage.press(*"look at @~nobody-here/a")
        await stage.until_shown("look at @~nobody-here/a")
        await stage.press(*".txt", "enter")
        await stage.until_shown("There is no file ~nobody-here/a.txt. The message was sent without it.")
        await stage.until_idle()
        for word in ("/export ~nobody-here/a.md", "/save 1 ~nobody-here/a.py"):
            await stage.send(word)
            await stage.until_shown("can't be written:")
            await stage.press("escape")


def test_a_file_in_utf_16_is_a_text(tmp_path: Path) -> None:
    for encoding in ("utf-16", "utf-16-be"):
        data = "héllo\n".encode(encoding)
        (tmp_path / "wide.txt").write_bytes(data if encoding == "utf-16" else b"\xfe\xff" + data)
        assert read_file("wide.txt", tmp_path).text == "héllo\n"
    (tmp_path / "wide.txt").write_bytes(b"\xff\xfe\0")
    with pytest.raises(AttachmentError, match="no UTF-16 text"):
        read_file("wide.txt", tmp_path)


def test_a_folder_that_is_named_is_told(tmp_path: Path) -> None:
    (tmp_path / "notes").mkdir()
    assert missing_files("see @notes and @property", tmp_path) == ["notes is a folder: name a file in it."]


async def test_a_file_is_named_completed_counted_and_sent(tmp_path: Path, folder: Path) -> None:
    (folder / "notes").mkdir()
    (folder / "notes" / "a.txt").write_text("one two ``` three\n")
    engine = FakeEngine()
    path = tmp_path / "chat.db"
    async with chat(engine, path) as stage:
        await stage.until_idle()
        await stage.press(*"see", "space", "@", "n", "tab")
        await stage.until_shown("@notes/a.txt")
        await stage.press("tab")
        await stage.until_shown("│ see @notes/a.txt", "+ notes/a.txt · 4 tokens · 18 characters")
        await stage.press("x")
        await stage.until(lambda: "+ notes" not in stage.text())
        await stage.press("backspace")
        await stage.until_shown("+ notes/a.txt")
        await stage.press("enter")
        await stage.until_idle()
        await stage.until_shown("▌ see @notes/a.txt", "▌ + notes/a.txt")
    assert engine.asked[0][-1].text == "notes/a.txt:\n````\none two ``` three\n````\n\nsee @notes/a.txt"
    store = Store(path)
    conversation = store.load(store.conversations()[0].id)
    store.close()
    assert conversation is not None
    assert [attachment.text for attachment in conversation.turns[0].attachments] == ["one two ``` three\n"]
    assert conversation.attachments == ()


async def test_a_file_that_can_not_be_read_keeps_the_message(tmp_path: Path, folder: Path) -> None:
    (folder / "blob.bin").write_bytes(b"a\0b")
    engine = FakeEngine()
    async with chat(engine, tmp_path / "chat.db", size=(100, 24)) as stage:
        await stage.until_idle()
        await stage.send("look at @blob.bin")
        await stage.until_shown("! blob.bin is no text: take it out of the message.", "│ look at @blob.bin")
        await stage.press("ctrl+u")
        await stage.send("/file nosuch.txt")
        await stage.until_shown("nosuch.txt can't be read: No such file or directory.")
        await stage.ask("mail me@example.org or @nobody")
    assert [turn.text for turn in engine.asked[0]] == ["mail me@example.org or @nobody"]


async def test_attachments_of_a_draft_are_kept_and_taken_out(tmp_path: Path, folder: Path) -> None:
    (folder / "a.txt").write_text("alpha")
    (folder / "b.txt").write_text("beta")
    path = tmp_path / "chat.db"
    async with chat(FakeEngine(), path) as stage:
        await stage.until_idle()
        await stage.send("/file a.txt")
        await stage.send("/file b.txt")
        await stage.until_shown("+ a.txt", "+ b.txt")
    engine = FakeEngine()
    async with chat(engine, path) as stage:
        await stage.until_shown("+ a.txt", "+ b.txt")
        await stage.send("/drop 1")
        await stage.until(lambda: "+ a.txt" not in stage.text())
        await stage.press("enter")
        await stage.until_idle()
        await stage.press("alt+u")
        await stage.until_shown("Taken back: the message.", "+ b.txt")
    assert engine.asked[0][0].text == "b.txt:\n```\nbeta\n```"


async def test_what_undo_puts_back_into_the_input_is_kept_with_what_was_attached(tmp_path: Path, folder: Path) -> None:
    (folder / "a.txt").write_text("alpha")
    path = tmp_path / "chat.db"
    async with chat(FakeEngine(), path) as stage:
        await stage.ask("look at @a.txt")
        await stage.press("alt+u")
        await stage.until_shown("Taken back: the message.", "+ a.txt", "│ look at @a.txt")
    async with chat(FakeEngine(), path, continues_last=True) as stage:
        await stage.until_shown("+ a.txt", "│ look at @a.txt")


async def test_a_draft_keeps_its_file_in_another_folder_and_sends_it_as_it_reads_now(
    tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "a.txt").write_text("alpha")
    path = tmp_path / "chat.db"
    async with chat(FakeEngine(), path) as stage:
        await stage.press(*"see @a.txt")
        await stage.until_shown("+ a.txt")
    other = tmp_path / "other"
    other.mkdir()
    engine = FakeEngine()
    with monkeypatch.context() as patched:
        patched.chdir(other)
        async with chat(engine, path) as stage:
            await stage.until_shown("+ a.txt", "│ see @a.txt")
            await stage.press("!")
            await stage.press("enter")
            await stage.until_idle()
            await stage.press("ctrl+n", *"and @a.txt")
    assert engine.asked[0][0].text.startswith("a.txt:\n```\nalpha\n```")
    async with chat(engine, path) as stage:
        await stage.until_idle()
        await stage.until_shown("│ and @a.txt")
        await stage.press(" ")
        await stage.until_shown("+ a.txt")
        (folder / "a.txt").write_text("changed since")
        await stage.press("enter")
        await stage.until(lambda: len(engine.asked) == 2)
        await stage.until_idle()
    assert "changed since" in engine.asked[1][0].text and "alpha" not in engine.asked[1][0].text


def test_which_files_a_message_names(tmp_path: Path) -> None:
    for name in ("a.txt", "b c.txt"):
        (tmp_path / name).write_text("x")
    (tmp_path / "folder").mkdir()

    def named(text: str) -> list[str]:
        return mentioned_files(text, tmp_path)

    assert named('@a.txt, and @"b c.txt" and @a.txt.') == ["a.txt", "b c.txt"]
    assert named("x@a.txt @folder @nothing @ @@a.txt \0@\0") == []
    assert named(f"(@a.txt) @{tmp_path}/a.txt") == [f"{tmp_path}/a.txt"]


def test_a_pattern_names_the_files_of_one_folder(tmp_path: Path) -> None:
    (tmp_path / "src" / "deep").mkdir(parents=True)
    for name in ("b.py", "a.py", ".hidden.py", "c.txt", "deep/d.py"):
        (tmp_path / "src" / name).write_text("x")
    (tmp_path / "top.py").write_text("x")
    (tmp_path / "what?.py").write_text("x")

    def named(text: str) -> list[str]:
        return mentioned_files(text, tmp_path)

    assert named("see @src/*.py, and @*.py") == ["src/a.py", "src/b.py", "top.py", "what?.py"]
    assert named("@src/?.txt") == ["src/c.txt"] and named(f"@{tmp_path}/src/a*.py") == [f"{tmp_path}/src/a.py"]
    assert named("@what?.py") == ["what?.py"]
    assert named("@*args @** @/*/*.py @**/d.py @src/*.rs @gone/*.py") == []
    assert missing_files("@src/*.rs @*args", tmp_path) == ["There is no file src/*.rs."]
    for number in range(51):
        (tmp_path / "src" / f"{number}.log").write_text("x")
    assert named("@src/*.log") == []
    assert missing_files("@src/*.log", tmp_path) == ["src/*.log names 51 files, and 50 go at once."]


async def test_the_files_of_a_pattern_are_attached_while_it_is_written(tmp_path: Path, folder: Path) -> None:
    for name in ("one.py", "two.py"):
        (folder / name).write_text("pass\n")
    engine = FakeEngine(scripts=[says("Good.")])
    async with chat(engine, tmp_path / "chat.db") as stage:
        await stage.press(*"see", "space", *"@*.py")
        await stage.until_shown("one.py", "two.py")
        await stage.press("enter")
        await stage.until_shown("Good.")
        await stage.until_idle()
    assert "one.py:\n```\npass\n```" in engine.asked[0][0].text and "two.py:" in engine.asked[0][0].text


def test_what_is_named_like_a_file_and_is_none_is_told(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "a.txt").write_text("x")

    def missing(text: str) -> list[str]:
        return missing_files(text, tmp_path)

    assert missing("@a.txt, @a.txt. @home @angular/core @ @@ @pytest.fixture @app.get('/') me@example.com \0@\0") == []
    assert missing('@b.txt, @b.txt and @"no such"') == [
        "There is no file b.txt.",
        "There is no file no such.",
    ]
    assert missing("@./folder") == ["./folder is a folder: name a file in it."]
    assert missing("@folder/") == ["folder/ is a folder: name a file in it."]


async def test_a_message_that_names_no_file_is_sent_and_says_so(tmp_path: Path, folder: Path) -> None:
    async with chat(FakeEngine(), tmp_path / "chat.db", size=(140, 30)) as stage:
        await stage.ask("@speling.py what is this?")
        await stage.until_shown("There is no file speling.py. The message was sent without it.", "Fine.")


def test_files_that_are_no_text_are_refused(tmp_path: Path) -> None:
    (tmp_path / "latin").write_bytes(b"caf\xe9")
    (tmp_path / "bom").write_bytes(b"\xef\xbb\xbfok")
    assert read_file("bom", tmp_path).text == "ok"
    with pytest.raises(AttachmentError, match="byte 3"):
        read_file("latin", tmp_path)
    with pytest.raises(AttachmentError, match="can't be read"):
        read_file("latin\0", tmp_path)


def test_what_the_model_sees_of_attachments() -> None:
    assert prompt_text("hi", ()) == "hi"
    assert prompt_text(" ", [Attachment(name="a", text="x\n")]) == "a:\n```\nx\n```"


def test_files_are_offered_folder_by_folder(tmp_path: Path) -> None:
    for name in ("docs", "blank folder"):
        (tmp_path / name).mkdir()
    for name in ("docs/one.md", "docs/two.md", "done.txt", ".hidden", "with blank"):
        (tmp_path / name).write_text("")

    def offered(before: str) -> list[str]:
        return [offer.text for offer in file_offers(before, tmp_path)]

    assert offered("see @") == ["@docs/", "@done.txt", '@"with blank"']
    assert offered("@wi") == ['@"with blank"']
    assert offered("@do") == ["@docs/", "@done.txt"]
    assert offered("@docs/T") == ["@docs/two.md"]
    assert offered("@done.txt") == offered("me@d") == offered("@done.txt ") == offered("@nosuch/x") == []
    assert offered("@.h") == ["@.hidden"]


def test_code_blocks_are_those_that_are_drawn() -> None:
    blocks = code_blocks(TWO_BLOCKS + "\nText.\n\n    indented\n\n```\nopen")
    assert [(block.language, block.code) for block in blocks] == [
        ("python", "print('[/]')\n"),
        ("sh", "ls\n"),
        ("", "indented\n"),
        ("", "open"),
    ]
    assert [block.file_name for block in blocks[:3]] == ["code.py", "code.sh", "code.txt"]


def test_the_program_for_the_clipboard() -> None:
    def everything(name: str) -> str | None:
        return f"/bin/{name}"

    assert clipboard_command({}, "linux", everything) is None
    assert clipboard_command({"DISPLAY": ":0"}, "linux", everything) == ("xclip", "-selection", "clipboard")
    assert clipboard_command({"DISPLAY": ":0"}, "linux", lambda name: name if name == "xsel" else None) == (
        "xsel",
        "--clipboard",
        "--input",
    )
    assert clipboard_command({"DISPLAY": ":0", "WAYLAND_DISPLAY": "w"}, "linux", everything) == ("wl-copy",)
    assert clipboard_command({}, "darwin", everything) == ("pbcopy",)


def test_putting_into_the_clipboard(tmp_path: Path) -> None:
    target = tmp_path / "clipboard"
    assert put_into_clipboard(("sh", "-c", f"cat > {target}"), "text ü")
    assert target.read_text() == "text ü"
    assert not put_into_clipboard(("false",), "x")
    assert not put_into_clipboard(("/no/such/program",), "x")


def test_attachments_that_make_no_sense_cost_no_turn(tmp_path: Path) -> None:
    path = tmp_path / "chat.db"
    store = Store(path)
    turn = Turn(role=Role.USER, text="words", attachments=(Attachment(name="\ud800", text="half \udcff"),))
    conversation = Conversation().with_turn(turn)
    store.save_turns(conversation, [turn])
    loaded = store.load(conversation.id)
    assert loaded is not None and len(loaded.turns[0].attachments) == 1
    store._connection.execute("UPDATE turns SET attachments = '[{\"odd\": 1}]'")
    loaded = store.load(conversation.id)
    assert loaded is not None and (loaded.turns[0].text, loaded.turns[0].attachments) == ("words", ())
    store.close()
