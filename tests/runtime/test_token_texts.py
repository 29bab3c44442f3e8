"""Texts that an answer never has, however the tokens are cut."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from runtime.sampling import Sampler, SamplingOptions
from runtime.token_texts import BannedStrings, TokenTexts

PIECES = [b"", b"a", b"b", b"c", b"ab", b"bca", b" ", b"ca b", "é".encode(), "é".encode()[:1], "é".encode()[1:], b"abc"]
TEXTS = TokenTexts(PIECES.__getitem__, num_tokens=len(PIECES))
strings = st.lists(st.text(alphabet="abc é", min_size=1, max_size=5), min_size=1, max_size=3)


def allowed(mask: BannedStrings, history: list[int]) -> list[int]:
    row = np.zeros(len(PIECES), dtype=np.float32)
    mask.apply(row, history)
    return np.flatnonzero(row == 0).tolist()


def test_tokens_are_found_by_their_bytes() -> None:
    assert TEXTS.holding(b"b").tolist() == [2, 4, 5, 7, 11]
    assert TEXTS.beginning(b"ab").tolist() == [4, 11]
    assert TEXTS.beginning("é".encode()[:1]).tolist() == [9, 8]
    assert TEXTS.beginning(b"zz").tolist() == []


@given(strings, st.integers(0, 2**32))
def test_an_answer_never_has_a_banned_text(banned: list[str], seed: int) -> None:
    mask = BannedStrings(banned, TEXTS, num_prompt=2)
    sampler = Sampler(SamplingOptions(temperature=1, top_k=0, top_p=1, min_p=0), seed=seed, masks=[mask])
    history = [1, 4]
    for _ in range(30):
        history.append(sampler.sample(np.zeros(len(PIECES), dtype=np.float32), history))
    text = b"".join(PIECES[token_id] for token_id in history[2:])
    assert not any(string.encode() in text for string in banned)


@given(strings, st.lists(st.integers(0, len(PIECES) - 1), max_size=8), st.integers(0, len(PIECES) - 1))
def test_exactly_the_tokens_that_complete_a_banned_text_are_forbidden(
    banned: list[str], answer: list[int], token_id: int
) -> None:
    mask = BannedStrings(banned, TEXTS, num_prompt=1)
    before = b"".join(PIECES[token] for token in answer)
    after = before + PIECES[token_id]
    completes = any(
        after.find(string.encode(), max(0, len(before) - len(string.encode()) + 1)) >= 0 for string in banned
    )
    assert (token_id in allowed(mask, [3, *answer])) == (not completes or not PIECES[token_id])


def test_what_the_prompt_ends_with_does_not_count() -> None:
    mask = BannedStrings(["ab"], TEXTS, num_prompt=2)
    assert 2 in allowed(mask, [3, 1])
    assert 2 not in allowed(mask, [3, 1, 1])
