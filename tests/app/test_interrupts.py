"""Ctrl-C that waits for a place where it does no harm."""

from __future__ import annotations

import os
import signal
import threading

import pytest

from app.interrupts import AskedToStop, HeldInterrupt


def test_it_is_raised_where_it_is_asked_for() -> None:
    reached = []
    with pytest.raises(KeyboardInterrupt), HeldInterrupt() as interrupt:
        interrupt.check()
        signal.raise_signal(signal.SIGINT)
        reached.append(interrupt.is_noted)
        interrupt.check()
        reached.append("too far")
    assert reached == [True]


def test_it_is_raised_at_the_end_and_the_handler_is_as_before() -> None:
    before = signal.getsignal(signal.SIGINT)
    reached = []
    with pytest.raises(KeyboardInterrupt), HeldInterrupt():
        signal.raise_signal(signal.SIGINT)
        reached.append("end")
    assert reached == ["end"]
    assert signal.getsignal(signal.SIGINT) is before


def test_it_takes_the_place_of_what_it_caused() -> None:
    with pytest.raises(KeyboardInterrupt) as caught, HeldInterrupt():
        signal.raise_signal(signal.SIGINT)
        raise ValueError("a child was interrupted too")
    assert isinstance(caught.value.__cause__, ValueError)


def test_a_second_one_is_raised_at_once() -> None:
    reached = []
    with pytest.raises(KeyboardInterrupt), HeldInterrupt():
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
        reached.append("too far")
    assert reached == []


def test_it_is_raised_at_once_while_nothing_holds_it() -> None:
    reached = []
    with pytest.raises(KeyboardInterrupt), HeldInterrupt() as interrupt:
        interrupt.is_held = False
        signal.raise_signal(signal.SIGINT)
        reached.append("too far")
    assert reached == []


def test_other_exceptions_pass_and_nothing_is_raised_without_it() -> None:
    with HeldInterrupt():
        pass
    with pytest.raises(ValueError, match="fault"), HeldInterrupt():
        raise ValueError("fault")


def test_other_threads_may_use_it() -> None:
    reached = []

    def work() -> None:
        with HeldInterrupt() as interrupt:
            interrupt.check()
            reached.append("end")

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert reached == ["end"]


def test_the_first_interrupt_asks_and_nothing_is_lost() -> None:
    asked: list[int] = []
    pieces = []
    with AskedToStop(lambda: asked.append(1)):
        for piece in range(5):
            if piece == 2:
                os.kill(os.getpid(), signal.SIGINT)
            pieces.append(piece)
    assert (asked, pieces) == ([1], [0, 1, 2, 3, 4])


def test_a_second_interrupt_is_raised() -> None:
    asked: list[int] = []
    with pytest.raises(KeyboardInterrupt), AskedToStop(lambda: asked.append(1)):
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)
    assert asked == [1]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
