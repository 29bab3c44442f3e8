"""The index of a text's own end against a search through the whole text."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from runtime.speculation.suffix_index import MAX_MATCH, MIN_MATCH, Match, SuffixIndex


def search(token_ids: list[int]) -> Match | None:
    """The longest earlier occurrence of the end, of equal ones the latest."""
    best: Match | None = None
    for end in range(MIN_MATCH, len(token_ids)):
        length = 0
        while length < min(end, MAX_MATCH) and token_ids[end - 1 - length] == token_ids[-1 - length]:
            length += 1
        if length >= MIN_MATCH and (best is None or length >= best.length):
            best = Match(end=end, length=length)
    return best


texts = st.lists(st.integers(0, 3), max_size=110)


@given(texts)
def test_finds_what_a_search_finds_at_every_length(text: list[int]) -> None:
    index = SuffixIndex()
    for length in range(len(text) + 1):
        assert index.match(text[:length]) == search(text[:length])


@given(texts, st.lists(st.integers(0, 12), max_size=12))
def test_a_text_may_grow_by_any_steps(text: list[int], steps: list[int]) -> None:
    index = SuffixIndex()
    length = 0
    for step in steps:
        length = min(length + step, len(text))
        assert index.match(text[:length]) == search(text[:length])


def test_matches_that_run_into_the_end_are_found() -> None:
    assert SuffixIndex().match([7, 7, 7, 7]) == Match(end=3, length=3)
    assert SuffixIndex().match([1, 2, 1, 2, 1, 2]) == Match(end=4, length=4)


def test_short_texts_have_no_match() -> None:
    for text in ([], [1], [1, 1], [1, 2, 3]):
        assert SuffixIndex().match(text) is None


def test_a_pair_that_is_everywhere_is_looked_up_quickly_all_the_same() -> None:
    text = [0, 0] * 20_000
    index = SuffixIndex()
    match = index.match(text)
    assert match is not None and match.length == MAX_MATCH
    assert match.end == len(text) - 1
