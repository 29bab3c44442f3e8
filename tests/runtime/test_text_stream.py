"""Incremental UTF-8 and stop texts: the same text however the bytes are cut."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.text_stream import TextStream

FAMILY = "👨‍👩‍👧‍👦"


def streamed(data: bytes, cuts: list[int], stops: tuple[str, ...] = ()) -> tuple[str, str | None]:
    """(text, stop) of the data pushed in pieces that end at the cuts."""
    stream = TextStream(stops)
    borders = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    pieces = [stream.push(data[start:end]) for start, end in zip(borders, borders[1:], strict=False)]
    pieces.append(stream.finish())
    assert "".join(pieces) == stream.text
    return stream.text, stream.stop_text


def test_an_emoji_over_several_tokens_comes_whole() -> None:
    stream = TextStream()
    data = "🙂".encode()
    assert [stream.push(data[index : index + 1]) for index in range(4)] == ["", "", "", "🙂"]


@given(st.text(), st.lists(st.integers(min_value=0)))
def test_any_split_of_any_text_streams_the_same_text(text: str, cuts: list[int]) -> None:
    assert streamed(text.encode(), cuts) == (text, None)


@given(st.lists(st.integers(min_value=0), max_size=20))
def test_joined_emoji_and_scripts_survive_any_split(cuts: list[int]) -> None:
    text = f"a{FAMILY}é—日本語 العربية {FAMILY}\n"
    assert streamed(text.encode(), cuts) == (text, None)


@given(st.binary(), st.lists(st.integers(min_value=0)))
def test_any_split_of_any_bytes_streams_the_same_text(data: bytes, cuts: list[int]) -> None:
    text, _ = streamed(data, cuts)
    assert text == data.decode("utf-8", errors="replace")
    assert text.count("\ufffd") <= len(data)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"a\xffb", "a\ufffdb"),
        (b"\xf0\x9f\x99", "\ufffd"),
        (b"\xf0\x9fX", "\ufffdX"),
        (b"\xc3\x28", "\ufffd("),
        (b"\xe2\x82\xe2\x82\xac", "\ufffd€"),
    ],
)
def test_invalid_bytes_give_at_most_one_replacement_each(data: bytes, expected: str) -> None:
    for cut in range(len(data) + 1):
        assert streamed(data, [cut])[0] == expected


def test_a_stop_across_borders_ends_the_text_exactly_before_it() -> None:
    stream = TextStream(("</end>",))
    assert stream.push(b"Hello <") == "Hello "
    assert stream.push(b"/en") == ""
    assert stream.push(b"d> and more") == ""
    assert stream.stop_text == "</end>"
    assert stream.push(b"never") == ""
    assert stream.finish() == ""
    assert stream.text == "Hello "


def test_what_might_begin_a_stop_is_held_and_let_go() -> None:
    stream = TextStream(("STOP",))
    assert stream.push(b"a ST") == "a "
    assert stream.push(b"O") == ""
    assert stream.push(b"NE") == "STONE"
    assert stream.push(b" S") == " "
    assert stream.finish() == "S"
    assert stream.stop_text is None


def test_a_stop_that_overlaps_itself_is_found() -> None:
    stream = TextStream(("aab",))
    assert stream.push(b"aaa") == "a"
    assert stream.push(b"b") == ""
    assert (stream.text, stream.stop_text) == ("a", "aab")


def test_a_stop_of_characters_over_several_bytes_is_found() -> None:
    data = "fin — ende".encode()
    for cut in range(len(data) + 1):
        assert streamed(data, [cut], ("—",)) == ("fin ", "—")


def test_half_a_character_at_the_end_can_complete_a_stop() -> None:
    assert streamed(b"ab\xf0\x9f", [], ("b\ufffd",)) == ("a", "b\ufffd")


stop_texts = st.lists(st.text(alphabet="abé🙂", min_size=1, max_size=4), min_size=1, max_size=3)


def reference(text: str, stops: list[str]) -> tuple[str, str | None]:
    """Character by character: the first place where a stop has come to its end, the longest there."""
    for end in range(1, len(text) + 1):
        ending = [stop for stop in stops if text[:end].endswith(stop)]
        if ending:
            stop = max(ending, key=len)
            return text[: end - len(stop)], stop
    return text, None


@given(st.text(alphabet="abé🙂", max_size=30), stop_texts, st.lists(st.integers(min_value=0), max_size=12))
def test_stops_do_not_depend_on_how_the_bytes_are_cut(text: str, stops: list[str], cuts: list[int]) -> None:
    assert streamed(text.encode(), cuts, tuple(stops)) == reference(text, stops)


@given(st.text(alphabet="abc", max_size=30), stop_texts)
def test_no_more_is_held_back_than_could_become_a_stop(text: str, stops: list[str]) -> None:
    stream = TextStream(tuple(stops))
    shown = ""
    for index, character in enumerate(text):
        shown += stream.push(character.encode())
        if stream.stop_text is not None:
            break
        held = text[len(shown) : index + 1]
        assert not held or any(stop.startswith(held) for stop in stops)
