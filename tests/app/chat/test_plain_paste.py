"""What is a paste where the terminal does not say so, and what stays keys."""

import pytest

from app.chat.plain_paste import BEGIN, END, PlainPaste

ANSWER = "\x1b[0n"
LONG = "word " * 100


def passed(*pieces: str, waited_s: float = 0.0) -> str:
    """What the parser gets of pieces that follow each other at once, and then a pause."""
    plain = PlainPaste(ANSWER)
    return "".join(plain.feed(piece, waited_s) for piece in pieces) + plain.end()


@pytest.mark.parametrize(
    "text",
    [
        "hello\r",
        "h",
        "\r",
        "\r\r\r\r\r\r",
        "/quit\r",
        "hello\r\r",
        "\rhello",
        "hello",
        "hello\x11",
        "a\rb",
        "\x1b[Aone\rtwo",
    ],
)
def test_these_stay_keys(text: str) -> None:
    assert passed(text) == text


def test_a_newline_in_the_middle_tells_a_paste() -> None:
    assert passed("one\rtwo\r") == f"{BEGIN}one\rtwo\r{END}"
    assert passed("one two\r", "three\r") == f"{BEGIN}one two\rthree\r{END}"


def test_what_a_person_typed_while_nobody_read_stays_keys() -> None:
    assert passed("hello\rsay more", waited_s=2.0) == "hello\rsay more"


def test_keys_behind_a_paste_come_behind_it() -> None:
    assert passed("one\rtwo\x11three") == f"{BEGIN}one\rtwo{END}\x11three"
    assert passed("one\rtwo", "\x1b[A") == f"{BEGIN}one\rtwo{END}\x1b[A"


@pytest.mark.parametrize("cut", range(4, 15))
def test_answers_of_the_terminal_neither_end_nor_enter_a_paste(cut: int) -> None:
    text = f"first\rsec{ANSWER}ond"
    whole = passed(text[:cut], text[cut:])
    assert whole.replace(ANSWER, "") == f"{BEGIN}first\rsecond{END}"
    assert whole.count(ANSWER) == 1


def test_enter_pressed_behind_a_paste_is_no_part_of_it() -> None:
    plain = PlainPaste(ANSWER)
    assert plain.feed("one\rtwo", 0.0) + plain.feed("\r", 0.01) == f"{BEGIN}one\rtwo{END}\r"


def test_a_long_line_is_one_insertion_and_its_enter_sends() -> None:
    assert passed(LONG + "\r") == f"{BEGIN}{LONG}{END}\r"
