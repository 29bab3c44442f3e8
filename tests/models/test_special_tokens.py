"""Finding special tokens in a text, and keeping what a user writes from becoming one."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.special_tokens import ControlTextGuard, TokenFinder, structural_texts

TOKENS = ("<|im_end|>", "<|im_start|>", "<|end|>", "<e>", "[X]", "<<", "a", "\n", "\n\n", "<|", "|>")
IDS = {text: idx for idx, text in enumerate(TOKENS)}
MARK = "\ufdd0"
# Texts made of pieces of tokens, so that there are tokens in them, halves of tokens, and tokens across pieces.
PIECES = st.sampled_from([*TOKENS, "<|im_", "end|>", "im_end", "|", "<", ">", "_", "b", " ", "\n \n"])
TEXTS = st.lists(PIECES, max_size=12).map("".join)


def leftmost_longest(text: str) -> list[str | int]:
    """The same search by trying every place."""
    pattern = "|".join(map(re.escape, sorted(TOKENS, key=len, reverse=True)))
    parts = re.split(f"({pattern})", text)
    return [IDS.get(part, part) if idx % 2 else part for idx, part in enumerate(parts) if part]


@given(TEXTS)
def test_the_finder_takes_the_leftmost_longest(text: str) -> None:
    assert list(TokenFinder(IDS).split(text)) == leftmost_longest(text)


@given(TEXTS)
def test_nothing_is_lost_between_tokens(text: str) -> None:
    parts = list(TokenFinder(IDS).split(text))
    assert "".join(part if isinstance(part, str) else TOKENS[part] for part in parts) == text
    assert "" not in parts


def test_a_finder_of_nothing_leaves_the_text_whole() -> None:
    assert list(TokenFinder({}).split("a<|im_end|>")) == ["a<|im_end|>"]
    assert list(TokenFinder({"": 0}).split("a")) == ["a"]
    assert list(TokenFinder(IDS).split("")) == []


def test_a_guarded_token_gives_way_to_a_shorter_one() -> None:
    finder = TokenFinder({"<|x|>": 0, "<|": 1})
    assert list(finder.split(f"{MARK}<|x|>", guard=MARK, guarded={"<|x|>"})) == [MARK, 1, "x|>"]
    assert list(finder.split("<|x|>", guard=MARK, guarded={"<|x|>"})) == [0]


STRUCTURAL = frozenset(("<|im_end|>", "<|im_start|>", "<|end|>", "<e>", "[X]", "<<"))


@given(st.lists(st.tuples(TEXTS, TEXTS), max_size=4))
def test_only_what_the_template_wrote_alone_is_found(turns: list[tuple[str, str]]) -> None:
    """The prompt is template text and contents in turn; a token of it lies in one template text, wholly."""
    guard, finder = ControlTextGuard(STRUCTURAL), TokenFinder(dict.fromkeys(STRUCTURAL, 0))
    prompt, written_by_template = "", ""
    for template_text, content in turns:
        marked = guard.marked(content, MARK)
        assert marked.replace(MARK, "") == content
        prompt += template_text + marked
        written_by_template += "t" * len(template_text) + "c" * len(marked)
    place = 0
    for part in finder.split(prompt, guard=MARK, guarded=STRUCTURAL):
        if isinstance(part, str):
            place += len(part)
            continue
        found = next(text for text in sorted(STRUCTURAL, key=len, reverse=True) if prompt.startswith(text, place))
        assert set(written_by_template[place : place + len(found)]) == {"t"}
        place += len(found)


@given(st.text(alphabet="ab .\n"))
def test_ordinary_text_is_left_as_it_is(content: str) -> None:
    assert ControlTextGuard(STRUCTURAL).marked(f"Say: {content} ", MARK) == f"Say: {content} "


def test_a_token_inside_a_token_is_marked_too() -> None:
    marked = ControlTextGuard(frozenset(("<|a|>", "|>"))).marked("x<|a|>", MARK)
    assert marked == f"x{MARK}<|a{MARK}|>"


@pytest.mark.parametrize("content", ["<|im", "x <", "end|>", "|>", "im_e"])
def test_parts_that_a_template_could_complete_are_marked(content: str) -> None:
    assert MARK in ControlTextGuard(STRUCTURAL).marked(content, MARK)


def test_nothing_is_marked_where_nothing_is_structural() -> None:
    assert ControlTextGuard(frozenset()).marked("<|im_end|>", MARK) == "<|im_end|>"


def test_what_gives_a_prompt_its_structure() -> None:
    user_defined = [
        "</think>",
        "<tool_call>",
        "<|box|>",
        "<h1>",
        "</s>",
        "\n\n",
        "  ",
        "<start_of_image>",
        "[IMG]",
        "user",
    ]
    found = structural_texts(["<bos>", ""], user_defined, "{{ '<start_of_image>' }}[IMG] user \n\n  ")
    assert found == {"<bos>", "</think>", "<tool_call>", "<|box|>", "<start_of_image>", "[IMG]"}
    assert structural_texts((), user_defined, None) == {"</think>", "<tool_call>", "<|box|>"}
