"""A chat that its closed terminal could not end in the usual way."""

import os
import pty
import threading

import pytest

from app.chat.closed_terminal import end_without_terminal, has_hung_up

PATIENCE_S = 30.0


@pytest.mark.parametrize("keep_fails", [False, True])
def test_what_is_owed_is_kept_before_the_end(keep_fails: bool) -> None:
    done: list[object] = []
    has_left = threading.Event()

    def keep() -> None:
        done.append("kept")
        if keep_fails:
            raise RuntimeError

    def leave(status: int) -> None:
        done.append(status)
        has_left.set()

    master, slave = pty.openpty()
    with open(slave, encoding="utf-8") as terminal:
        end_without_terminal(terminal, threading.Event(), keep=keep, grace_s=0.01, leave=leave)
        assert not has_left.wait(0.2), "an open terminal ends nothing"
        os.close(master)
        assert has_left.wait(PATIENCE_S)
    assert done == ["kept", 129]


def test_where_the_system_cannot_tell_nothing_has_hung_up() -> None:
    """As macOS answers of every terminal, poll answers of a number that stands for nothing."""
    master, slave = pty.openpty()
    assert not has_hung_up(slave)
    os.close(master)
    assert has_hung_up(slave) and has_hung_up(slave, None)
    os.close(slave)
    assert not has_hung_up(slave) and not has_hung_up(slave, None)
