"""Names from strangers reach the terminal escaped."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.errors import DownloadError, FileError, ModelError, TensorError, escaped, quoted

ANY_TEXT = st.text(st.characters(exclude_categories=()))


@given(ANY_TEXT)
def test_escaped_text_holds_nothing_that_steers_a_terminal(text: str) -> None:
    shown = escaped(text)
    assert not {unicodedata.category(character) for character in shown} & {"Cc", "Cf", "Cs", "Cn", "Co", "Zl", "Zp"}
    assert shown.encode("utf-8").decode("utf-8") == shown


@given(ANY_TEXT)
def test_a_message_keeps_line_breaks_and_no_other_control_character(text: str) -> None:
    message = str(ModelError(f"It says {text}"))
    assert message.count("\n") == text.count("\n")
    assert all(unicodedata.category(character) != "Cc" for character in message if character != "\n")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[31mred", r"\x1b[31mred"),
        ("a\tb\nc\r\x00\x7f\x9b", r"a\tb\nc\r\x00\x7f\x9b"),
        ("\u202egnp.exe", r"\u202egnp.exe"),
        ("\udcff half", r"\xff half"),
        ("модель　模型 é 😀", "модель　模型 é 😀"),
        ("[bold]x[/]", "[bold]x[/]"),
    ],
)
def test_what_is_escaped_and_what_stays(text: str, shown: str) -> None:
    assert escaped(text) == shown


def test_quoting_cuts_long_names_but_not_paths() -> None:
    assert quoted("n" * 1000) == f"'{'n' * 79}…'"
    assert quoted("n" * 1000, limit=None) == f"'{'n' * 1000}'"
    assert quoted("n" * 80) == f"'{'n' * 80}'"


def test_every_error_of_the_room_is_a_model_error() -> None:
    for kind in (FileError, TensorError, DownloadError):
        with pytest.raises(ModelError, match="sentence"):
            raise kind("A sentence.")
