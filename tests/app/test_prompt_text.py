"""What of a prompt file is text."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.errors import AppError
from app.generate import prompt_text


def read(file: Path, content: bytes) -> str:
    """The prompt of a file that holds these bytes."""
    file.write_bytes(content)
    return prompt_text(None, file, from_stdin=False)


@pytest.mark.parametrize(
    ("content", "prompt"),
    [(b"\xef\xbb\xbfHi\r\n", "Hi"), (b"Hi\r", "Hi\r"), (b"Hi\r\n\n", "Hi\r\n"), (b"\xff\n", "\udcff"), (b"", "")],
)
def test_a_byte_order_mark_and_a_line_end_of_two_bytes_are_no_text(tmp_path: Path, content: bytes, prompt: str) -> None:
    assert read(tmp_path / "prompt.txt", content) == prompt


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
def test_a_file_in_utf_16_is_refused(tmp_path: Path, encoding: str) -> None:
    with pytest.raises(AppError, match=r"prompt\.txt is UTF-16 text; UTF-8 was expected\.") as refusal:
        read(tmp_path / "prompt.txt", "\ufeffHi".encode(encoding))
    assert refusal.value.hint is not None and refusal.value.hint.startswith("iconv -f UTF-16")


def test_a_file_without_end_does_not_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.generate.MAX_PROMPT_BYTES", 1 << 20)
    with pytest.raises(AppError, match="/dev/zero holds more than 1 MiB"):
        prompt_text(None, Path("/dev/zero"), from_stdin=False)
