"""Control characters never reach the terminal, ordinary text passes unchanged."""

from hypothesis import given
from hypothesis import strategies as st

from app.chat.plain_text import NeutralisingStream, neutralise, one_line, shortened


def test_escape_sequences_become_pictures() -> None:
    assert neutralise("\x1b[31mred\x1b[0m \x1b]52;c;AAAA\x07") == "␛[31mred␛[0m ␛]52;c;AAAA␇"
    assert neutralise("\x00\x08\x7f\x9b31m\x90") == "␀␈␡\ufffd31m\ufffd"


def test_line_ends_become_newlines() -> None:
    assert neutralise("a\r\nb\rc\u2028d\x85e\tf") == "a\nb\nc\nd\ne\tf"


def test_ordinary_text_is_untouched() -> None:
    text = "[/] [bold] x[0] {} \\ naïve — 日本語 العربية 👩‍👩‍👧 \u00a0\ttab\n"
    assert neutralise(text) == text


def test_reordering_and_half_surrogates_are_replaced() -> None:
    assert neutralise("a\u202eb\u2066c\ud800d") == "a\ufffdb\ufffdc\ufffdd"


def test_one_line_and_shortened() -> None:
    assert one_line("  a\n\tb \x1b c ") == "a b ␛ c"
    assert shortened("abcdef", 4) == "abc…"
    assert shortened("abcd", 4) == "abcd"
    assert shortened("日本語の文", 6) == "日本…"
    assert shortened("日本語", 6) == "日本語"


@given(st.text(alphabet=st.characters(codec="utf-8"), max_size=60), st.data())
def test_pieces_give_what_the_whole_gives(text: str, data: st.DataObject) -> None:
    stream = NeutralisingStream()
    shown = ""
    rest = text
    while rest:
        size = data.draw(st.integers(1, len(rest)))
        shown += stream.feed(rest[:size])
        rest = rest[size:]
    shown += stream.finish()
    assert shown == neutralise(text)
    assert not any(ord(char) < 0x20 and char not in "\n\t" or 0x7F <= ord(char) < 0xA0 for char in shown)
