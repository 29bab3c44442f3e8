"""Thinking and answer are told apart however the text is cut."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.thinking import ThinkingSplitter, opens_thinking


def split(text: str, *, starts_inside: bool = False, cuts: list[int] | None = None) -> tuple[str, str]:
    """(thinking, answer) of a text pushed in pieces that end at the cuts."""
    splitter = ThinkingSplitter(starts_inside=starts_inside)
    borders = [0, *sorted(cut % (len(text) + 1) for cut in cuts or []), len(text)]
    segments = [
        segment for start, end in zip(borders, borders[1:], strict=False) for segment in splitter.push(text[start:end])
    ]
    segments += splitter.finish()
    kinds = [segment.kind for segment in segments]
    assert kinds == sorted(kinds, reverse=True), "thinking comes before the answer"
    assert all(segment.text for segment in segments)
    return (
        "".join(segment.text for segment in segments if segment.kind == "thinking"),
        "".join(segment.text for segment in segments if segment.kind == "answer"),
    )


CASES = [
    ("plain", False, "", "plain"),
    ("<think>why</think>so", False, "why", "so"),
    ("\n <think>\nwhy\n</think>\n\nso", False, "\nwhy\n", "\n\nso"),
    ("why</think>so", True, "why", "so"),
    ("never closed", True, "never closed", ""),
    ("<think>never closed </thin", False, "never closed </thin", ""),
    ("<thin", False, "", "<thin"),
    ("  ", False, "", "  "),
    ("Use <think> and </think> tags.", False, "", "Use <think> and </think> tags."),
    ("the tag `</think>` ends it\n</think>so", True, "the tag `</think>` ends it\n", "so"),
    ("the tag ``a ` </think> b`` ends it</think>so", True, "the tag ``a ` </think> b`` ends it", "so"),
    ("a lone ` and\n</think>so `x`", True, "a lone ` and\n", "so `x`"),
    ("a lone ` then</think>so", True, "a lone ` then", "so"),
    ("a lone ` then</think>so\nand `more`", True, "a lone ` then", "so\nand `more`"),
    ("`a` </think>`b`", True, "`a` ", "`b`"),
    ("`x </think> ``", True, "`x ", " ``"),
]


@pytest.mark.parametrize(("text", "starts_inside", "thinking", "answer"), CASES)
def test_whole_and_character_by_character(text: str, starts_inside: bool, thinking: str, answer: str) -> None:
    assert split(text, starts_inside=starts_inside) == (thinking, answer)
    assert split(text, starts_inside=starts_inside, cuts=list(range(len(text)))) == (thinking, answer)


pieces = st.sampled_from(["<think>", "</think>", "`", "``", "\n", " ", "a", "b c", "<", "</th"])


@given(st.lists(pieces, max_size=12).map("".join), st.booleans(), st.lists(st.integers(min_value=0), max_size=8))
def test_cuts_change_nothing(text: str, starts_inside: bool, cuts: list[int]) -> None:
    assert split(text, starts_inside=starts_inside, cuts=cuts) == split(text, starts_inside=starts_inside)


@given(st.lists(pieces, max_size=12).map("".join), st.booleans())
def test_nothing_but_one_tag_of_each_kind_is_lost(text: str, starts_inside: bool) -> None:
    thinking, answer = split(text, starts_inside=starts_inside)
    opening = "" if starts_inside or not text.lstrip().startswith("<think>") else text[: text.index("<think>") + 7]
    assert text in (f"{opening}{thinking}{answer}", f"{opening}{thinking}</think>{answer}")


def test_thinking_text_is_shown_as_it_comes() -> None:
    splitter = ThinkingSplitter(starts_inside=True)
    assert [segment.text for segment in splitter.push("one two")] == ["one two"]
    assert [segment.text for segment in splitter.push(" three </th")] == [" three "]
    assert [(segment.kind, segment.text) for segment in splitter.push("ink> four")] == [("answer", " four")]


def test_a_prompt_that_opens_the_block_is_noticed() -> None:
    assert opens_thinking("<|im_start|>assistant\n<think>\n")
    assert not opens_thinking("<|im_start|>assistant\n<think>\n\n</think>\n\n")
    assert not opens_thinking("<|im_start|>assistant\n")
