"""Which vocabularies mean the same by their ids."""

from __future__ import annotations

from typing import Any

import pytest
from tiny_models import byte_pair_vocabulary

from models.vocabulary import Vocabulary, load_vocabulary
from runtime.speculation.vocabularies import difference

_NORMAL, _UNUSED = 1, 5


def vocabulary(*more: tuple[str, int], renamed: dict[int, str] | None = None) -> Vocabulary:
    """The tiny one, with further tokens (text, kind) at its end and some with another text."""
    metadata: dict[str, Any] = byte_pair_vocabulary()
    texts, kinds = list(metadata["tokenizer.ggml.tokens"]), list(metadata["tokenizer.ggml.token_type"])
    for token_id, text in (renamed or {}).items():
        texts[token_id] = text
    texts += [text for text, _ in more]
    kinds += [kind for _, kind in more]
    metadata |= {"tokenizer.ggml.tokens": texts, "tokenizer.ggml.token_type": kinds}
    return load_vocabulary(metadata)


PADDING = (("[PAD400]", _UNUSED), ("[PAD401]", _UNUSED))


def test_equal_ones_mean_the_same() -> None:
    assert difference(vocabulary(), vocabulary()) is None
    assert difference(vocabulary(*PADDING), vocabulary(*PADDING)) is None


@pytest.mark.parametrize(
    "padding", [PADDING, (("[PAD400]", _NORMAL),), (("filler", _UNUSED),), (("<unused7>", _NORMAL),)]
)
def test_padding_is_no_difference(padding: tuple[tuple[str, int], ...]) -> None:
    assert difference(vocabulary(*padding), vocabulary()) is None
    assert difference(vocabulary(), vocabulary(*padding)) is None


def test_rows_that_are_padding_in_both_may_be_written_differently() -> None:
    assert difference(vocabulary(*PADDING), vocabulary(("<pad1>", _UNUSED), ("<pad2>", _UNUSED))) is None


def test_the_first_token_that_differs_is_named() -> None:
    last = vocabulary().size - 20
    found = difference(vocabulary(), vocabulary(renamed={last: "other", last + 3: "another"}))
    assert found is not None
    assert f"token {last} " in found and '"other"' in found and vocabulary().token_text(last) in found
    assert "another" not in found


def test_a_real_token_beyond_the_others_end_is_a_difference() -> None:
    size = vocabulary().size
    found = difference(vocabulary(), vocabulary(*PADDING, ("extra", _NORMAL)))
    assert found is not None and f"token {size + 2}," in found and '"extra"' in found and "the draft model" in found
    found = difference(vocabulary(("extra", _NORMAL)), vocabulary())
    assert found is not None and f"token {size}," in found and "the model alone" in found


def test_what_could_steer_a_terminal_is_shown_escaped() -> None:
    found = difference(vocabulary(), vocabulary(renamed={300: "\x1b[2J"}))
    assert found is not None and "\x1b" not in found and "\\x1b[2J" in found
