"""Windows of a text: every token counts once, with enough before it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from runtime.evaluation.windows import cut_windows


@given(st.integers(1, 60), st.integers(2, 20), st.data(), st.booleans())
def test_every_token_counts_once_and_has_enough_before_it(
    num_tokens: int, size: int, data: st.DataObject, has_start: bool
) -> None:
    stride = data.draw(st.integers(1, size))
    text = list(range(100, 100 + num_tokens))
    windows = cut_windows(text, size=size, stride=stride, start_id=7 if has_start else None)
    counted = [token_id for window in windows for token_id in window.ids[window.first_counted :]]
    heads = {100} if stride < size else set(range(100, 100 + num_tokens, size))
    assert counted == [token_id for token_id in text if has_start or token_id not in heads]
    for number, window in enumerate(windows):
        assert len(window.ids) <= size + has_start
        assert (window.ids[0] == 7) == has_start
        own = window.ids[has_start:]
        assert list(own) == list(range(own[0], own[0] + len(own)))
        if number and stride < size:
            assert window.first_counted - has_start >= size - stride
        assert window.first_counted >= 1


def test_a_text_that_fits_is_one_window() -> None:
    (window,) = cut_windows([5, 6, 7], size=8, stride=4, start_id=None)
    assert window.ids == (5, 6, 7) and window.first_counted == 1 and window.num_counted == 2


def test_one_token_is_predicted_only_behind_a_start_token() -> None:
    assert cut_windows([5], size=8, stride=4, start_id=None) == ()
    (window,) = cut_windows([5], size=8, stride=4, start_id=2)
    assert window.ids == (2, 5) and window.num_counted == 1
