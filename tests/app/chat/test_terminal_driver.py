"""What comes from the terminal: pastes with escape sequences in them, and bytes that are no UTF-8."""

import asyncio
import os
import pty
import shlex
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from terminal import Terminal
from textual.drivers.linux_driver import LinuxDriver
from textual.events import Key

from app.chat import terminal_driver, terminal_keys
from app.chat.conversation import Conversation, Turn
from app.chat.engine_port import Role
from app.chat.store import Store
from app.chat.store_reading import ReadingStore
from app.chat.terminal_backlog import Backlog
from app.chat.terminal_driver import TerminalDriver
from app.chat.terminal_keys import KeyParser, PasteGuard

ROOT = Path(__file__).resolve().parents[3]
PATIENCE_S = 60.0
BEGIN, END = "\x1b[200~", "\x1b[201~"
SENT = f"a\x1b[A{BEGIN}red \x1b[31m\x1b[\x1b\rlast\x1b{END}\x1b[B{BEGIN}{END}\x1b{BEGIN}x\x1b[20{END}\x1b"
PASSED = f"a\x1b[A{BEGIN}red ␛[31m␛[␛\rlast␛{END}\x1b[B{BEGIN}{END}\x1b{BEGIN}x␛[20{END}\x1b"


def test_escapes_inside_a_paste_are_shown_and_others_pass() -> None:
    assert PasteGuard().feed(SENT) == PASSED


@pytest.mark.parametrize("cut", range(1, len(SENT)))
def test_a_paste_may_be_cut_anywhere(cut: int) -> None:
    guard = PasteGuard()
    assert guard.feed(SENT[:cut]) + guard.feed(SENT[cut:]) == PASSED


def test_character_by_character() -> None:
    guard = PasteGuard()
    assert "".join(map(guard.feed, SENT)) == PASSED


def test_a_key_is_not_held_back() -> None:
    guard = PasteGuard()
    assert [guard.feed(text) for text in ("\x1b", "[", "20", "x", "\x1b")] == ["\x1b", "[", "20", "x", "\x1b"]


def test_alt_and_a_letter_is_no_arrow_and_no_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(terminal_keys, "_ARROWS", ())
    keys = [event.key for event in KeyParser().feed("\x1bb\x1bf\x1bu\x1bu\x1b[1;5D") if isinstance(event, Key)]
    assert keys == ["alt+b", "alt+f", "alt+u", "alt+u", "ctrl+left"]


@pytest.mark.parametrize(("pause_s", "keys"), [(0.0, ["alt+x"]), (0.01, ["alt+x"]), (0.05, ["escape", "x"])])
def test_a_letter_typed_behind_escape_is_not_alt(pause_s: float, keys: list[str]) -> None:
    now_s = 1.0
    parser = KeyParser(clock=lambda: now_s)
    events = list(parser.feed("\x1b"))
    now_s += pause_s
    events += parser.feed("x")
    assert [event.key for event in events if isinstance(event, Key)] == keys


def test_an_arrow_that_comes_in_pieces_is_one_key() -> None:
    now_s = 1.0
    parser = KeyParser(clock=lambda: now_s)
    events = list(parser.feed("\x1b"))
    now_s += 0.05
    events += [*parser.feed("[A"), *parser.feed("\x1b"), *parser.feed("OP")]
    assert [event.key for event in events if isinstance(event, Key)] == ["up", "f1"]


def test_the_terminals_answer_is_no_key_also_behind_an_escape() -> None:
    answers: list[int] = []
    parser = KeyParser(when_answered=lambda: answers.append(1))
    keys = [event.key for event in parser.feed("a\x1b[0nb\x1b\x1b[0n\x1b[0nc") if isinstance(event, Key)]
    assert keys == ["a", "b", "escape", "c"]
    assert len(answers) == 3


def test_what_lies_in_the_buffers_of_a_slow_line_counts_as_behind() -> None:
    now_s = 0.0
    backlog = Backlog(clock=lambda: now_s)
    backlog.note_written(5000)
    backlog.note_asked()
    assert not backlog.is_long, "nobody knows yet whether this terminal answers"
    backlog.note_answered()
    backlog.note_written(900)
    backlog.note_asked()
    assert backlog.is_waiting and not backlog.is_long
    backlog.note_written(900)
    backlog.note_asked()
    assert backlog.is_long
    backlog.note_answered()
    assert backlog.is_waiting and not backlog.is_long
    backlog.note_written(5000)
    backlog.note_asked()
    assert backlog.is_long
    now_s = 100.0
    assert not backlog.is_long and not backlog.is_waiting, "a terminal that stopped answering is not waited for"


def test_the_screen_is_drawn_where_stderr_is_a_file(tmp_path: Path) -> None:
    words = shlex.join([sys.executable, "-m", "app", "chat", str(tmp_path / "none.gguf")])
    command = ["sh", "-c", f"exec {words} 2>{shlex.quote(str(tmp_path / 'log'))}"]
    environment = {**os.environ, "XDG_DATA_HOME": str(tmp_path)}
    with Terminal(command, environment=environment, folder=ROOT, columns=90, lines=30) as terminal:
        terminal.wait_for(lambda screen: "Write a message" in screen, "the input", timeout_s=PATIENCE_S)
        terminal.send("\x11")
        assert terminal.wait(timeout_s=PATIENCE_S) == 0
    assert "\x1b" not in (tmp_path / "log").read_text()


def test_the_terminal_is_asked_nothing_once_no_keys_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[str] = []
    for name in ("disable_input", "flush"):
        monkeypatch.setattr(LinuxDriver, name, lambda driver: None)
    monkeypatch.setattr(LinuxDriver, "write", lambda driver, data: written.append(data))
    driver = object.__new__(TerminalDriver)
    driver._key_thread, driver._backlog = None, Backlog()
    driver._backlog.note_answered()
    driver.flush()
    assert written == ["\x1b[5n"]
    driver._backlog.note_answered()
    driver.disable_input()
    driver.flush()
    assert written == ["\x1b[5n"]


def test_the_title_is_the_windows_too_and_steers_nothing(tmp_path: Path) -> None:
    question = Turn(role=Role.USER, text="question")
    store = Store(tmp_path / "tandem" / "conversations.db")
    store.save_turns(Conversation(title="\x1b]2;owned\x07 a \x9b2J title").with_turn(question), [question])
    store.close()
    command = [sys.executable, "-m", "app", "chat", str(tmp_path / "none.gguf"), "--continue"]
    environment = {**os.environ, "XDG_DATA_HOME": str(tmp_path), "HOME": str(tmp_path)}
    with Terminal(command, environment=environment, folder=ROOT, columns=90, lines=30) as terminal:
        terminal.wait_for(lambda screen: "─ ␛]2;owned␇ a \ufffd2J title ─" in screen, "the title", timeout_s=PATIENCE_S)
        terminal.wait_for(
            lambda screen: terminal._screen.title == "␛]2;owned␇ a \ufffd2J title", "its title", timeout_s=PATIENCE_S
        )
        terminal.send("\x11")
        assert terminal.wait(timeout_s=PATIENCE_S) == 0


def test_no_paste_and_no_byte_steers_or_ends_the_chat(tmp_path: Path) -> None:
    """Without the guard, Ctrl+Q after an escape would leave the chat."""
    command = [sys.executable, "-m", "app", "chat", str(tmp_path / "none.gguf")]
    environment = {**os.environ, "XDG_DATA_HOME": str(tmp_path)}
    with Terminal(command, environment=environment, folder=ROOT, columns=90, lines=30) as terminal:

        def wait(text: str) -> None:
            terminal.wait_for(lambda screen: text in screen, f"{text} on the screen", timeout_s=PATIENCE_S)

        wait("Write a message")
        terminal.send(f"{BEGIN}one \x1b[31mred\x1b[0m\rtwo \x1bq\x11 three{END}")
        wait("│ one ␛[31mred␛[0m")
        wait("│ two ␛q␑ three")
        os.write(terminal._master, b"\xff\xfe four")
        wait("three\ufffd\ufffd four")
        terminal.send("\x11")
        assert terminal.wait(timeout_s=PATIENCE_S) == 0


def test_a_signal_waits_until_nothing_else_is_being_done(monkeypatch: pytest.MonkeyPatch) -> None:
    """At once, it would wait for ever for the queue of what is written, where that one was being filled."""
    later: list[Callable[[], None]] = []
    done: list[str] = []
    monkeypatch.setattr(LinuxDriver, "_sigcont_application", lambda driver, *_: done.append("continued"))
    driver = object.__new__(TerminalDriver)
    driver._loop = cast("asyncio.AbstractEventLoop", SimpleNamespace(call_soon_threadsafe=later.append))
    driver._key_thread, driver._must_signal_resume = None, False
    driver._sigcont_application()
    assert len(later) == 1 and not done
    later[0]()
    assert not done, "a chat that is leaving takes no terminal again"
    driver._must_signal_resume = True
    later[0]()
    assert done == ["continued"]


def test_lines_that_no_terminal_marks_as_pasted_are_not_sent(tmp_path: Path) -> None:
    """And a flood of them, or of keys, does not keep a chat from its end when the terminal is closed."""
    command = [sys.executable, "-m", "app", "chat", str(tmp_path / "none.gguf")]
    environment = {**os.environ, "XDG_DATA_HOME": str(tmp_path)}
    with Terminal(command, environment=environment, folder=ROOT, columns=90, lines=30) as terminal:

        def wait(text: str) -> None:
            terminal.wait_for(lambda screen: text in screen, f"{text} on the screen", timeout_s=PATIENCE_S)

        wait("Write a message")
        terminal.send("first line\rsecond line\r")
        wait("│ second line")
        terminal.send("".join(f"line {number} of many\r" for number in range(3000)))
        wait("3,000 lines")
        os.set_blocking(terminal._master, False)
        os.write(terminal._master, b"\x1b[Dx" * 1000)
        terminal.close()
        assert terminal.wait(timeout_s=PATIENCE_S) == 0
    with closing(ReadingStore(tmp_path / "tandem" / "conversations.db")) as store:
        [line] = store.conversations()
        kept = store.load(line.id)
    assert kept is not None and not kept.turns
    assert [attachment.text.count("\n") for attachment in kept.attachments] == [3000]
    assert kept.draft.replace("x", "") == "first line\nsecond line\n"


def test_what_a_closed_terminal_did_not_take_is_forgotten() -> None:
    """Or else Python would write it at its end, fail, and exit with 120."""
    master, slave = pty.openpty()
    with open(slave, "w", encoding="utf-8") as file:
        screen = terminal_driver._Screen(file)
        os.close(master)
        screen.write("nobody reads this")
        screen.flush()
        with pytest.raises(OSError, match="Input/output"):
            file.flush()
        screen.let_go()
        file.flush()
